"""Kafka's messages in the words of kio, a second implementation of Kafka's protocol: the judge of ours."""

from __future__ import annotations

import dataclasses
import datetime
import io
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kafka_listener.messages.fields import ZERO_UUID

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from kafka_listener.messages.apis import Api

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ERRORS: Final = st.sampled_from(sorted(int(error) for error in ErrorCode))
#: What kio can say of these fields: known errors, and times that Python has.
SPECIAL: Final[Mapping[str, SearchStrategy[Any]]] = {
    "error_code": _ERRORS,
    "partition_error_code": _ERRORS,
    "log_append_time_ms": st.integers(-1, 4_000_000_000_000),
    "session_lifetime_ms": st.integers(0, 1_000_000_000_000),
}
#: kio's words for what is a number or bytes with us.
_WORDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "uuid": lambda value: None if value == ZERO_UUID else uuid.UUID(bytes=value),
    "error_code": ErrorCode,
    "datetime_i64": lambda value: None if value == -1 else _EPOCH + datetime.timedelta(milliseconds=value),
    "timedelta_i32": lambda value: datetime.timedelta(milliseconds=value),
    "timedelta_i64": lambda value: datetime.timedelta(milliseconds=value),
}


def schema(api: Api, direction: str, version: int) -> Any:
    """Return kio's class of a message."""
    load = load_request_schema if direction == "request" else load_response_schema
    return load(api.key, version)


def encoded(entity: Any) -> bytes:
    """Return the bytes that kio makes of a message."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def decoded(api: Api, direction: str, version: int, data: bytes) -> Any:
    """Return the message that kio finds in `data`, all of it."""
    entity, size = entity_reader(schema(api, direction, version))(data, 0)
    assert size == len(data)
    return entity


def entity_of(kind: Any, value: Any) -> Any:
    """Say one of our structs as kio's class `kind`, field by field, by name."""
    hints = get_type_hints(kind)
    made = {}
    for field in dataclasses.fields(kind):
        name = field.name if field.name in type(value).__slots__ else f"{field.name}_ms"
        made[field.name] = _said(field.metadata.get("kafka_type"), hints[field.name], getattr(value, name))
    return kind(**made)


def _said(type_: str | None, hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_said(type_, inner(hint), one) for one in value)
    if value is None:
        return None
    if type_ is None:
        return entity_of(inner(hint), value)
    return _WORDS[type_](value) if type_ in _WORDS else value


def inner(hint: Any) -> Any:
    """Return the class in `X | None`, `tuple[X, ...]`, or both."""
    while not dataclasses.is_dataclass(hint) and get_args(hint):
        hint = next(one for one in get_args(hint) if one not in (type(None), ...))
    return hint
