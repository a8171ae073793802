"""Formatters and deserializers that `consume` is given by name: Kafka's by class name, the user's as module:name."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar

from sharegroups.cli.formatting import Formatter
from sharegroups.cli.output import UsageFailure
from sharegroups.messages import Message

T = TypeVar("T")


class LineFormatter(Protocol):
    """Writes records."""

    def line(self, message: Message) -> str:
        """The text of the record, its line separator included. Any exception is a formatting error (CT-32)."""
        ...


#: Called with the formatter properties.
MakeFormatter = Callable[[Mapping[str, str]], LineFormatter]
Deserializer = Callable[[bytes], Any]


class NoOpFormatter:
    """Writes nothing; for counting records, or consuming all of them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        del properties

    def line(self, message: Message) -> str:
        """Nothing."""
        return ""


def _number(form: str) -> Deserializer:
    return lambda data: struct.unpack(form, data)[0]


FORMATTERS: Final[Mapping[str, MakeFormatter]] = {
    "DefaultMessageFormatter": Formatter,
    "NoOpMessageFormatter": NoOpFormatter,
}
DESERIALIZERS: Final[Mapping[str, Deserializer]] = {
    "ByteArrayDeserializer": bytes,
    "StringDeserializer": bytes.decode,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "UUIDDeserializer": lambda data: uuid.UUID(data.decode()),
}


def find(option: str, name: str, known: Mapping[str, T]) -> T:
    """The entry of `known` with this name, with or without Kafka's package; else the object that module:name names.

    Raises UsageFailure when there is none.
    """
    found = known.get(name.rpartition(".")[2])
    if found is not None:
        return found
    module, colon, path = name.partition(":")
    if not colon:
        raise UsageFailure(f"{option} {name!r} is not known; known: {', '.join(known)}, or one of yours as module:name")
    try:
        own: Any = import_module(module)
        for part in path.split("."):
            own = getattr(own, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageFailure(f"{option} {name!r} cannot be loaded: {error}. Is its folder on PYTHONPATH?") from error
    if not callable(own):
        raise UsageFailure(f"{option} {name!r} is a {type(own).__name__}; expected a class or a function")
    made: T = own
    return made
