"""Shortens the refusals in an answer about many partitions or names: the first few say what can be done about them,
the others only what is refused. A refusal with its remedy has about 250 bytes, and one answer may be about 10,000
partitions.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from kip932.remedies import ADMINISTRATOR

#: Smaller answers stay as they are.
SMALL_BYTES: Final = 4_096
#: How many refusals of an answer keep their remedy; each text only once.
FULL_MAX: Final = 10
_FIELD: Final = "error_message"
_MARK: Final = ADMINISTRATOR.encode()


class _Way(NamedTuple):
    """The way to a message's error texts: whether it has one, and the lists of messages that lead to others."""

    has_text: bool
    lists: tuple[tuple[str, _Way], ...]


def serialized(message: Message) -> bytes:
    """Return a message's bytes. Refusals in its lists are shortened first if there are more than FULL_MAX."""
    data = message.SerializeToString()
    if len(data) <= SMALL_BYTES or data.count(_MARK) <= FULL_MAX:
        return data
    _shorten(message, _way(message.DESCRIPTOR), set())
    return message.SerializeToString()


@cache
def _way(kind: Descriptor) -> _Way:
    lists = []
    for field in kind.fields:
        inner = field.message_type
        if inner is not None and inner is not kind and field.is_repeated and not inner.GetOptions().map_entry:
            way = _way(inner)
            if way.has_text or way.lists:
                lists.append((field.name, way))
    return _Way(_FIELD in kind.fields_by_name, tuple(lists))


def _shorten(message: Any, way: _Way, full: set[str]) -> None:
    if way.has_text and ADMINISTRATOR in (text := message.error_message):
        if text in full or len(full) >= FULL_MAX:
            message.error_message = text.partition(ADMINISTRATOR)[0].rstrip()
        else:
            full.add(text)
    for name, inner in way.lists:
        for each in getattr(message, name):
            _shorten(each, inner, full)
