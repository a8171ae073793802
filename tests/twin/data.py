"""The data of a store node: strings, hashes and streams, and the effects that change them.

Effects are plain tuples, applied in order. A replica or a disk is a `Data` that may not have the newest effects yet.
This module never decides whether a command may run.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, TypeAlias

StreamKey: TypeAlias = tuple[int, int]
Fields: TypeAlias = tuple[bytes, ...]
Effect: TypeAlias = tuple[str, str, Any]
"""Kind, key, argument: ("xadd", key, (id, fields)), ("xtrim", key, id), ("hset", key, {…}), ("hdel", key, name),
("set", key, bytes), ("del", key, None)."""


@dataclass(slots=True)
class Stream:
    """One stream: parallel lists of ids and fields, the last id ever given, and the number of entries ever added."""

    ids: list[StreamKey] = field(default_factory=list)
    fields: list[Fields] = field(default_factory=list)
    last: StreamKey = (0, 0)
    added: int = 0

    def copy(self) -> Stream:
        """Return a copy that shares the entries' bytes."""
        return Stream(list(self.ids), list(self.fields), self.last, self.added)

    def between(self, first: StreamKey, last: StreamKey) -> range:
        """Return the positions of the entries with first ≤ id ≤ last."""
        return range(bisect_left(self.ids, first), bisect_left(self.ids, (last[0], last[1] + 1)))


@dataclass(slots=True)
class Data:
    """All keys of a node."""

    strings: dict[str, bytes] = field(default_factory=dict)
    hashes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)

    def copy(self) -> Data:
        """Return an independent copy."""
        return Data(
            dict(self.strings),
            {key: dict(value) for key, value in self.hashes.items()},
            {key: stream.copy() for key, stream in self.streams.items()},
        )

    def exists(self, key: str) -> bool:
        """Return whether the key exists."""
        return key in self.strings or key in self.hashes or key in self.streams

    def apply(self, effect: Effect) -> None:
        """Carry out one effect."""
        _APPLY[effect[0]](self, effect[1], effect[2])


def _xadd(data: Data, key: str, argument: Any) -> None:
    entry_id, fields = argument
    stream = data.streams.setdefault(key, Stream())
    stream.ids.append(entry_id)
    stream.fields.append(fields)
    stream.last = entry_id
    stream.added += 1


def _xtrim(data: Data, key: str, argument: Any) -> None:
    stream = data.streams.get(key)
    if stream is not None:
        cut = bisect_left(stream.ids, argument)
        del stream.ids[:cut], stream.fields[:cut]


def _hset(data: Data, key: str, argument: Any) -> None:
    data.hashes.setdefault(key, {}).update(argument)


def _hdel(data: Data, key: str, argument: Any) -> None:
    value = data.hashes.get(key)
    if value is not None:
        value.pop(argument, None)
        if not value:
            del data.hashes[key]


def _set(data: Data, key: str, argument: Any) -> None:
    _del(data, key, None)
    data.strings[key] = argument


def _del(data: Data, key: str, _argument: Any) -> None:
    for keys in (data.strings, data.hashes, data.streams):
        keys.pop(key, None)


_APPLY = {"xadd": _xadd, "xtrim": _xtrim, "hset": _hset, "hdel": _hdel, "set": _set, "del": _del}
