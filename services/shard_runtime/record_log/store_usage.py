"""What a store node reports about its memory, its disk and its copies: parsed from INFO, and compared with its limit
(CM-208, CM-211). Pure: the store watch asks, and reports what this decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

#: The commands that ask a store node for its usage.
ASKED: Final = (("INFO", "memory"), ("INFO", "persistence"), ("INFO", "stats"))
#: Parts of the limit, in percent, whose crossing is reported.
LEVELS: Final = (80, 95)
#: What helps before the limit, and at it.
MAKE_ROOM: Final = "make room: sharegroups topics delete-records, or a shorter retention.ms or retention.bytes"
MORE_MEMORY: Final = (
    "give the store more memory: CONFIG SET maxmemory, or a larger --store-memory at the next start of `sharegroups up`"
)
#: How far the use must fall below a level before its next crossing is reported, in percent of the limit.
_FALLS_BY: Final = 5


class StoreUsage(NamedTuple):
    """One node's usage. `used_bytes`: what counts towards its limit; `limit_bytes`: 0 if there is no limit.
    `fsyncs_delayed`: how often a write waited for an earlier fsync since the node started; `fork_s`: how long its last
    fork took; `rewrite_failed`: whether the last rewrite of its append-only file failed."""

    used_bytes: int
    limit_bytes: int
    fsyncs_delayed: int = 0
    fork_s: float = 0.0
    rewrite_failed: bool = False

    @property
    def left_bytes(self) -> int | None:
        """What is left before the limit; None without a limit."""
        return max(self.limit_bytes - self.used_bytes, 0) if self.limit_bytes else None

    @property
    def percent(self) -> int:
        """The part of the limit that is used; 0 without a limit."""
        return self.used_bytes * 100 // self.limit_bytes if self.limit_bytes else 0


def usage_of(replies: Sequence[object]) -> StoreUsage | None:
    """Return the usage in the replies to ASKED; None unless the node shows its memory. As the store does, leave out
    what does not count towards the limit: the buffers for replicas and for the append-only file."""
    found: dict[str, str] = {}
    for reply in replies:
        found |= info_fields(reply)
    used = _number(found, "used_memory")
    if not used:
        return None
    return StoreUsage(
        max(used - _number(found, "mem_not_counted_for_evict"), 0),
        _number(found, "maxmemory"),
        _number(found, "aof_delayed_fsync"),
        _number(found, "latest_fork_usec") / 1e6,
        found.get("aof_last_bgrewrite_status", "ok") != "ok",
    )


def info_fields(reply: object) -> dict[str, str]:
    """Return the fields of an INFO reply; none of an error."""
    if isinstance(reply, bytes):
        reply = reply.decode(errors="replace")
    lines = reply.split("\r\n") if isinstance(reply, str) else ()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _number(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isdecimal() else 0


class MemoryLevels:
    """Decides which crossings of LEVELS are news: each once, until the use has fallen clearly below it again. Keeps one
    number for each node that was named last."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}

    def crossed(self, usage: Mapping[str, StoreUsage]) -> list[str]:
        """Return the nodes that have crossed a level since the last call; `usage`: all nodes that are known now."""
        news = []
        for node, each in usage.items():
            before = self._reached.get(node, 0)
            reached = max((level for level in LEVELS if each.percent >= level), default=0)
            if reached > before:
                news.append(node)
            elif reached < before and each.percent > before - _FALLS_BY:
                reached = before
            self._reached[node] = reached
        for node in self._reached.keys() - usage.keys():
            del self._reached[node]
        return news
