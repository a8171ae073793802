"""The classes of Kafka's structs, made from the table: slots, defaults, equality, and a text for people (KL-31)."""

import keyword
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from kafka_listener.messages.fields import ZERO_UUID, Field, Message, Shape

#: The default of parameters whose value has to be a new object for each struct.
UNSET: Final = object()


class Struct:
    """A struct of Kafka's protocol. Two are equal when they are of one class and all their fields are."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # they can be changed

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
        return f"{type(self).__qualname__}({fields})"


def classes_of(message: Message) -> Mapping[str, type[Any]]:
    """Make the classes of a message's structs, by name. Those of its nested structs are attributes of its own class."""
    made: dict[str, type[Any]] = {}
    top = message.shape.name
    for name, shape in message.structs.items():
        made[name] = _class(shape, name if name == top else f"{top}.{name}", made)
    for name, nested in made.items():
        if name != top:
            setattr(made[top], name, nested)
    return MappingProxyType(made)


def default_source(field: Field) -> str:
    """Return a field's default as an expression; a struct is named by its class."""
    if field.default_is_null:
        return "None"
    if field.is_array:
        return "[]"
    if field.is_struct:
        return f"{field.type}()"
    return "ZERO_UUID" if field.default == ZERO_UUID and field.type == "uuid" else repr(field.default)


def _class(shape: Shape, qualname: str, known: Mapping[str, type[Any]]) -> type[Any]:
    namespace: dict[str, Any] = {"UNSET": UNSET, "ZERO_UUID": ZERO_UUID, **known}
    exec("\n".join(_constructor(shape)), namespace)
    slots = tuple(field.name for field in shape.fields)
    body = {"__slots__": slots, "__init__": namespace["__init__"], "__qualname__": qualname, "__module__": __name__}
    return type(shape.name, (Struct,), body)


def _constructor(shape: Shape) -> Iterator[str]:
    """The lines of `__init__`. Lists and structs are made for each call: callers may change them."""
    made = {field.name: default_source(field) for field in shape.fields}
    fresh = {name for name, source in made.items() if source == "[]" or source.endswith("()")}
    wrong = [name for name in made if keyword.iskeyword(name)]
    if wrong:
        raise ValueError(f"the table of messages has fields in {shape.name} that cannot be attributes: {wrong}")
    parameters = ", ".join(f"{name}={'UNSET' if name in fresh else source}" for name, source in made.items())
    yield f"def __init__(self, {parameters}):"
    for name, source in made.items():
        yield f"    self.{name} = {f'{source} if {name} is UNSET else {name}' if name in fresh else name}"
