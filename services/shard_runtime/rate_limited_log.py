"""Limits log lines that clients can cause: the first is logged at once, then one per key and interval, with a count.

Without a limit, a client that sends bad messages or failing records could fill the disk with log lines. Nothing is
dropped silently: the line at the end of an interval says how many were held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any, Final, Literal

from shard_runtime.call_ids import call_fields

EVERY_S: Final = 10.0
#: How many keys have lines of their own within an interval; all others share one line.
KEYS_MAX: Final = 200

Level = Literal["info", "warning", "error"]


class _Interval:
    """One key's present interval: how many lines were held back, and the newest one's fields."""

    __slots__ = ("event", "fields", "held_back", "level", "sums", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.held_back = 0
        self.level: Level = "info"
        self.event = ""
        self.fields: dict[str, Any] = {}
        self.sums: dict[str, int] = {}


class RateLimitedLog:
    """Logs one line per `key` and `every_s` for `keys_max` keys, and one shared line for all others; on one event loop.

    Make one for each object that logs, not one per module: each process of a simulation has its own. `close` logs at
    once what is still held back; otherwise the end of the interval does.
    """

    def __init__(self, log: Any, *, every_s: float = EVERY_S, keys_max: int = KEYS_MAX) -> None:
        self._log = log
        self._every_s = every_s
        self._keys_max = keys_max
        self._kept: dict[Hashable, _Interval] = {}

    def warning(self, event: str, *, key: Hashable, sums: Mapping[str, int] | None = None, **fields: Any) -> None:
        """Log a warning, within the limit. `key`: the originator and the reason, such as (peer, cause). `sums`: numbers
        to add up over the lines held back, such as records."""
        self._say("warning", event, key, sums or {}, fields)

    def error(self, event: str, *, key: Hashable, sums: Mapping[str, int] | None = None, **fields: Any) -> None:
        """Like `warning`, but at level error; only the first line of an interval has `exc_info`."""
        self._say("error", event, key, sums or {}, fields)

    def info(self, event: str, *, key: Hashable, sums: Mapping[str, int] | None = None, **fields: Any) -> None:
        """Like `warning`, but at level info."""
        self._say("info", event, key, sums or {}, fields)

    def close(self) -> None:
        """Log at once what is held back, and forget all keys."""
        for key in list(self._kept):
            self._kept[key].timer.cancel()
            self._log_held_back(key)
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
        kept.fields = call_fields() | {name: value for name, value in fields.items() if name != "exc_info"}
        for name, number in sums.items():
            kept.sums[name] = kept.sums.get(name, 0) + number

    def _open(self, key: Hashable) -> _Interval:
        kept = self._kept[key] = _Interval(asyncio.get_running_loop().call_later(self._every_s, self._end, key))
        return kept

    def _end(self, key: Hashable) -> None:
        """End an interval: log one line for what was held back, which begins the next interval; else drop the key."""
        if self._kept[key].held_back:
            self._log_held_back(key)
            self._open(key)
        else:
            del self._kept[key]

    def _log_held_back(self, key: Hashable) -> None:
        kept = self._kept[key]
        if kept.held_back:
            also = {"and_others": True} if key is _Others else {}
            getattr(self._log, kept.level)(
                kept.event, **kept.sums, **kept.fields, **also, held_back=kept.held_back, within_s=self._every_s
            )


class _Others:
    """The shared key of all lines beyond `keys_max` keys; its line carries the newest one's fields."""
