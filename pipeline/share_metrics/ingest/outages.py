"""Records, in an ingest's directory, the spans of time in which it read nothing (PM-105).

outages.json     these spans, and when the ingest last began to read

Rows that were written in such a span may have been read afterwards, but nothing sampled the ends of logs meanwhile, and
gauges showed nothing. Without this record, a page could not distinguish an idle cluster from an ingest that was down.

Times are in ms since 1970 in the file and in seconds for callers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from share_metrics.causes import cause

_FILE: Final = "outages.json"
#: The maximum number of spans in the file; the oldest are dropped.
SPANS_MAX: Final = 1_000
#: An ingest that read nothing for two triggers, and for at least this long, was down: a restart takes less.
_LEAST_MS: Final = 60_000
_TRIGGERS: Final = 2
#: The same number while a trigger has as many rows as it may have: then it is busy.
_TRIGGERS_FULL: Final = 10

Span = tuple[int, int]


class LastRead(NamedTuple):
    """When an ingest last began to read: in ms since 1970.

    `every_ms`: how often it reads; None if that is not known, and then no later time is an outage. `full`: that read
    had as many rows as it may have, so the next one may come late. `once`: it was the read of a job that runs once.
    """

    at_ms: int
    every_ms: int | None = None
    full: bool = False
    once: bool = False

    def outage(self, until_ms: int, *, full: bool = False) -> Span | None:
        """The span from this read to `until_ms`, if that is an outage; None if the next read came in time."""
        if self.every_ms is None:
            return None
        allowed_ms = max((_TRIGGERS_FULL if full else _TRIGGERS) * self.every_ms, _LEAST_MS)
        return (self.at_ms, until_ms) if until_ms - self.at_ms > allowed_ms else None


def spans(data: Path, begin: datetime, end: datetime, now: datetime | None = None) -> list[Span]:
    """The outages that overlap the time from `begin` to `end`, clipped to it, in seconds since 1970, in order.

    The last one may not be over: it lasts from the last read to `now` (the present time if absent). None of them
    overlap. Nothing is raised: a file that is missing or cannot be read has no spans.
    """
    found, last = _load(data)
    now_ms = round(time.time() * 1000) if now is None else _ms(now)
    if last is not None and (open_ := last.outage(now_ms, full=last.full)) is not None:
        found = added(found, open_)
    clipped = [(max(since // 1000, _s(begin)), min(-(-until // 1000), _s(end))) for since, until in found]
    return [(since, until) for since, until in clipped if since < until]


def added(known: Iterable[Span], new: Span) -> list[Span]:
    """The spans with `new`, in order. Spans that overlap or touch become one; only the newest SPANS_MAX are kept."""
    merged: list[Span] = []
    for since, until in sorted([*known, new]):
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(until, merged[-1][1]))
        else:
            merged.append((since, until))
    return merged[-SPANS_MAX:]


class Outages:
    """Writes the record while a job runs. No row depends on it, so a failure is only reported, once.

    `trigger_s`: None for a job that runs once. How often such jobs run is known from the time between the last two.
    The caller must own the directory. `corrected`: corrects the times of queries, which are those of this machine's
    clock.
    """

    def __init__(
        self,
        data: Path,
        trigger_s: float | None,
        notify: Callable[[str], None],
        corrected: Callable[[datetime], datetime] = lambda at: at,
    ) -> None:
        self._path = data / _FILE
        self._trigger_ms = None if trigger_s is None else round(trigger_s * 1000)
        self._notify = notify
        self._corrected = corrected
        self._spans, self._last = _load(data)
        self._own = False
        self._failed = False

    def read(self, at: datetime, *, full: bool = False) -> Span | None:
        """Note that the job began to read everything at `at`. Returns the outage that this ended, None if there was
        none.

        `full`: it had as many rows as it may have.
        """
        at_ms, last = _ms(at), self._last
        if last is not None and at_ms == last.at_ms:
            return None
        ended = last.outage(at_ms, full=last.full and self._own) if last is not None else None
        if ended is not None:
            self._spans = added(self._spans, ended)
        self._last = LastRead(at_ms, self._every_ms(at_ms, ended), full, self._trigger_ms is None)
        self._own = True
        self._save()
        return ended

    def read_by(self, queries: Sequence[Mapping[str, Any] | None], *, full: bool = False) -> Span | None:
        """Note what the queries of a continuous job have read, by their newest progress; `full` as in `read`.

        The slowest one counts. An item is None while that query has no progress; then nothing is noted.
        """
        there = [one for one in queries if one is not None]
        if not there or len(there) < len(queries):
            return None
        oldest = min(datetime.fromisoformat(one["timestamp"]) for one in there)
        return self.read(self._corrected(oldest), full=full)

    def _every_ms(self, at_ms: int, ended: Span | None) -> int | None:
        """How often the job reads. For one that runs once: the time since the one before, unless that was late."""
        last = self._last
        if self._trigger_ms is not None or last is None or not last.once:
            return self._trigger_ms
        if ended is not None or at_ms < last.at_ms:
            return last.every_ms
        return at_ms - last.at_ms

    def _save(self) -> None:
        try:
            new = self._path.with_suffix(".new")
            last = None if self._last is None else self._last._asdict()
            new.write_text(json.dumps({"spans": self._spans, "last": last}), encoding="utf-8")
            new.replace(self._path)
            self._failed = False
        except OSError as error:
            if not self._failed:
                self._notify(f"when the ingest last read was not noted, which is retried: {cause(str(error))}")
            self._failed = True


def _load(data: Path) -> tuple[list[Span], LastRead | None]:
    """The spans and the last read in the file; none if it is missing or cannot be read."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        stored: dict[str, Any] = json.loads((data / _FILE).read_text(encoding="utf-8"))
        found = [(int(since), int(until)) for since, until in stored["spans"]]
        if (last := stored["last"]) is None:
            return found, None
        every = last["every_ms"]
        every_ms = None if every is None else int(every)
        return found, LastRead(int(last["at_ms"]), every_ms, bool(last["full"]), bool(last["once"]))
    return [], None


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _s(at: datetime) -> int:
    return round(at.timestamp())
