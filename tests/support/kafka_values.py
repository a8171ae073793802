"""Values of Kafka's messages, drawn from the table of fields, cut to what a version can say, or damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from kafka_listener.messages.fields import FIXED, ZERO_UUID, Field, Message, Shape
from kafka_listener.messages.structs import default_source

if TYPE_CHECKING:
    import random

    from hypothesis.strategies import SearchStrategy

    from kafka_listener.messages.apis import Api

DIRECTIONS: Final = ("request", "response")
#: Lengths on both sides of where a varint gets a second byte are among them.
_STRINGS: Final = st.one_of(st.text(max_size=6), st.sampled_from(["", "ä" * 63, "x" * 126, "x" * 127, "x" * 128]))
_BYTES: Final = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"\0" * 126, b"\xff" * 127, b"r" * 20_000]))
_PRIMITIVES: Final[Mapping[str, SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(1 << 7), (1 << 7) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16)),
    "string": _STRINGS,
    "bytes": _BYTES,
    "records": _BYTES,
}


def values(api: Api, direction: str, special: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """Draw messages with all fields of all versions; `special` has strategies for fields of some names."""
    message = api.message(direction)
    top = getattr(api, direction)
    made: dict[str, SearchStrategy[Any]] = {}
    for name, shape in message.structs.items():  # nested ones come first
        fields = {field.name: _field(field, special.get(field.name), made) for field in shape.fields}
        made[name] = st.builds(top if shape is message.shape else getattr(top, name), **fields)
    return made[message.shape.name]


def _field(
    field: Field, special: SearchStrategy[Any] | None, made: Mapping[str, SearchStrategy[Any]]
) -> SearchStrategy[Any]:
    known = {**_PRIMITIVES, **made}
    single = known[field.type] if special is None else special
    drawn: SearchStrategy[Any] = st.lists(single, max_size=2) if field.is_array else single
    if field.type in FIXED and field.is_array:
        drawn = st.one_of(drawn, st.just([1] * 130)) if field.type != "uuid" else drawn
    if field.nullable.first <= field.nullable.last or field.default_is_null:
        return st.none() | drawn
    return drawn


def in_version(value: Any, message: Message, version: int, shape: Shape | None = None) -> Any:
    """Copy a struct with the defaults of all fields that a version does not have, or cannot make null."""
    shape = shape or message.shape
    made = {}
    for field in shape.fields:
        held = getattr(value, field.name)
        null = held is None and not field.is_array and field.tag is None and version not in field.nullable
        if version not in field.versions or null or (held is None and field.is_array and version not in field.nullable):
            continue
        if field.type in message.structs and held is not None:
            nested = message.structs[field.type]
            held = (
                [in_version(one, message, version, nested) for one in held]
                if field.is_array
                else in_version(held, message, version, nested)
            )
        made[field.name] = held
    return type(value)(**made)


def full(api: Api, direction: str, version: int) -> Any:
    """Return a message in which no field of the version has its default, and arrays have two elements."""
    return in_version(_Filler(api, direction).value(), api.message(direction), version)


class _Filler:
    """Makes values that differ from each other and from the defaults."""

    def __init__(self, api: Api, direction: str) -> None:
        self._message = api.message(direction)
        self._top = getattr(api, direction)
        self._count = 0

    def value(self) -> Any:
        return self._struct(self._message.shape)

    def _struct(self, shape: Shape) -> Any:
        made = self._top if shape is self._message.shape else getattr(self._top, shape.name)
        return made(**{field.name: self._field(field) for field in shape.fields})

    def _field(self, field: Field) -> Any:
        return [self._one(field), self._one(field)] if field.is_array else self._one(field)

    def _one(self, field: Field) -> Any:
        self._count += 1
        number = self._count % 100 + 10
        if field.type in self._message.structs:
            return self._struct(self._message.structs[field.type])
        if field.type == "bool":
            return default_source(field) != "True"
        if field.type == "uuid":
            return bytes([number]) * 16
        if field.type == "string":
            return f"{field.name[:8]}-{number}"
        if field.type in {"bytes", "records"}:
            return bytes([0, number, 255])
        return number + 0.5 if field.type == "float64" else number


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut a message, lengthen it, or change some of its bytes, to ones that lengths like to have."""
    kind = rng.random()
    if kind < 0.15:
        return data[: rng.randrange(len(data) + 1)]
    if kind < 0.25:
        return rng.randbytes(rng.randrange(80))
    held = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(held) + 1)
        byte = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        if at == len(held) or kind > 0.9:
            held.insert(at, byte)
        else:
            held[at] = byte
    return bytes(held)
