"""Formatters and deserializers that `consume` takes by name: Kafka's by class name, the user's as module:name."""

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
    """Turns records into text."""

    def line(self, message: Message) -> str:
        """Return the text of the record, with its line separator. Any exception is a formatting error (CT-32)."""
        ...


#: Makes a formatter from the formatter properties.
MakeFormatter = Callable[[Mapping[str, str]], LineFormatter]
Deserializer = Callable[[bytes], Any]


class NoOpFormatter:
    """Writes nothing; for counting records, or consuming all of them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        del properties

    def line(self, message: Message) -> str:
        """Return an empty text."""
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
    """Return the entry of `known` with this name, with or without Kafka's package; else the object at module:name.

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
