"""Log lines that others cause: at once the first time, then one line per key and interval, with what was held back.

Whoever can make a process log, by a bad message or a failing record, would otherwise fill its disk. Nothing is dropped
silently: what was held back is told when the interval ends, in number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any, Final, Literal

EVERY_S: Final = 10.0
#: Keys that one log tells apart within an interval; all beyond share one line.
KEYS_MAX: Final = 200

Level = Literal["info", "warning", "error"]


class _Kept:
    """One key's present interval: what was held back in it, and the newest fields of that."""

    __slots__ = ("event", "fields", "held_back", "level", "sums", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.held_back = 0
        self.level: Level = "info"
        self.event = ""
        self.fields: dict[str, Any] = {}
        self.sums: dict[str, int] = {}


class RateLimitedLog:
    """One line per `key` and `every_s`, for `keys_max` keys; one shared line for all others. For one event loop.

    Make one for each object that logs, not one per module: each process of a simulation has its own. `close` tells what
    is still held back; without it the end of the interval does.
    """

    def __init__(self, log: Any, *, every_s: float = EVERY_S, keys_max: int = KEYS_MAX) -> None:
        self._log = log
        self._every_s = every_s
        self._keys_max = keys_max
        self._kept: dict[Hashable, _Kept] = {}

    def warning(self, event: str, *, key: Hashable, sums: Mapping[str, int] | None = None, **fields: Any) -> None:
        """As the log's own `warning`. `key`: who and why, such as (peer, cause); `sums`: numbers that are added up over
        the calls that are held back, such as records."""
        self._say("warning", event, key, sums or {}, fields)

    def error(self, event: str, *, key: Hashable, sums: Mapping[str, int] | None = None, **fields: Any) -> None:
        """As `warning`, at level error; `exc_info` stands in the first line of an interval only."""
        self._say("error", event, key, sums or {}, fields)

    def info(self, event: str, *, key: Hashable, sums: Mapping[str, int] | None = None, **fields: Any) -> None:
        """As `warning`, at level info."""
        self._say("info", event, key, sums or {}, fields)

    def close(self) -> None:
        """Tell at once what is held back, and forget all keys."""
        for key in list(self._kept):
            self._kept[key].timer.cancel()
            self._tell(key)
        self._kept.clear()

    def _say(self, level: Level, event: str, key: Hashable, sums: Mapping[str, int], fields: Mapping[str, Any]) -> None:
        kept = self._kept.get(key)
        if kept is None and len(self._kept) < self._keys_max:
            self._open(key)
            getattr(self._log, level)(event, **sums, **fields)
            return
        if kept is None:
            key = _Others
            kept = self._kept.get(key) or self._open(key)
        kept.held_back += 1
        kept.level, kept.event = level, event
        kept.fields = {name: value for name, value in fields.items() if name != "exc_info"}
        for name, number in sums.items():
            kept.sums[name] = kept.sums.get(name, 0) + number

    def _open(self, key: Hashable) -> _Kept:
        kept = self._kept[key] = _Kept(asyncio.get_running_loop().call_later(self._every_s, self._end, key))
        return kept

    def _end(self, key: Hashable) -> None:
        """An interval is over: what was held back is one line, which opens the next interval."""
        if self._kept[key].held_back:
            self._tell(key)
            self._open(key)
        else:
            del self._kept[key]

    def _tell(self, key: Hashable) -> None:
        kept = self._kept[key]
        if kept.held_back:
            also = {"and_others": True} if key is _Others else {}
            getattr(self._log, kept.level)(
                kept.event, **kept.sums, **kept.fields, **also, held_back=kept.held_back, within_s=self._every_s
            )


class _Others:
    """The key of everything beyond `keys_max`: its line names the newest of them."""
