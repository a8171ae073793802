"""Stores the time up to which a directory holds everything that was written; the job advances it after its batches.

Without it a report could not distinguish an idle system from an ingest job that died (PM-37).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from share_metrics.causes import cause

_NAME: Final = "read-up-to"
#: How many runs of queries are remembered; only the newest of each query matters.
_RUNS_MAX: Final = 16


def read_up_to(data: Path, now: datetime) -> datetime | None:
    """The time before which the directory holds all entries that were written; None if no job has noted one.

    A time after `now` is ignored, since a clock was wrong.
    """
    with suppress(OSError, ValueError, TypeError):
        found = datetime.fromisoformat((data / _NAME).read_text().strip())
        return found if found <= now else None
    return None


class Note:
    """Writes the time into the directory while a job runs. No row depends on it, so a failure is only reported.

    `rows_max`: the most rows in a trigger. `first_rows`: in the first one of a query that was started; None: as many.
    `corrected`: corrects the times of queries, which are those of this machine's clock.
    """

    def __init__(
        self,
        data: Path,
        rows_max: int,
        notify: Callable[[str], None],
        first_rows: int | None = None,
        corrected: Callable[[datetime], datetime] = lambda at: at,
    ) -> None:
        self._path = data / _NAME
        self._rows_max = rows_max
        self._first_rows = rows_max if first_rows is None else first_rows
        self._notify = notify
        self._corrected = corrected
        self._at: datetime | None = None
        #: The batch of each run of a query that was seen first.
        self._firsts: dict[str, int] = {}
        #: True if a query's newest batch may have left some out, because it had as many rows as it may have.
        self.full = False
        self._failed = False

    @property
    def at(self) -> datetime | None:
        """The time that was noted last; None if there is none, or if it was withdrawn."""
        return self._at

    def advance(self, queries: Iterable[Mapping[str, Any] | None]) -> None:
        """Advance to the time up to which all queries have read, by their newest progress.

        An item of `queries` is None while that query has no progress; then the note does not change.
        """
        newest = [(progress, self._limit(progress)) for progress in queries]
        self.full = any((planned(progress) or 0) >= limit for progress, limit in newest)
        times = [complete_up_to(progress, limit) for progress, limit in newest]
        if times and None not in times:
            self.move(self._corrected(min(at for at in times if at is not None)))

    def _limit(self, progress: Mapping[str, Any] | None) -> int:
        """The most rows that the batch of a query may have had.

        The first of a run is limited further; or the second, if the first one repeated a batch of an earlier run.
        """
        if progress is None or (run := progress.get("runId")) is None:
            return self._rows_max
        if str(run) not in self._firsts and len(self._firsts) >= _RUNS_MAX:
            del self._firsts[next(iter(self._firsts))]
        first = self._firsts.setdefault(str(run), progress["batchId"])
        return self._first_rows if progress["batchId"] <= first + 1 else self._rows_max

    def move(self, at: datetime | None) -> None:
        """Note a time; None removes the note, because it is no longer true."""
        if at is not None and at == self._at:
            return
        self._at = at
        try:
            if at is None:
                self._path.unlink(missing_ok=True)
                return
            new = self._path.with_suffix(".new")
            new.write_text(at.isoformat())
            new.replace(self._path)
            self._failed = False
        except OSError as error:
            if not self._failed:
                self._notify(f"the time up to which all was read was not noted, which is retried: {cause(str(error))}")
            self._failed = True


def complete_up_to(progress: Mapping[str, Any] | None, rows_max: int) -> datetime | None:
    """The time at which a query planned its last batch, if that held all entries at that time; None if it may not have.

    A batch with `rows_max` planned entries or more may have left some out, even if some of the planned ones were
    trimmed since. If the batch is the first of a stream, all of the stream's entries up to its end count as planned. If
    a stream has lost its tail, its counts fall or belong to other entries, so the result is None. It is None, too, for
    a batch that an earlier run planned and this run only repeated, because such a batch has no latest offsets.
    """
    count = planned(progress)
    if progress is None or count is None or count >= rows_max:
        return None
    return datetime.fromisoformat(progress["timestamp"])


def planned(progress: Mapping[str, Any] | None) -> int | None:
    """How many entries a query's last batch had, as planned; None if that cannot be known, see `complete_up_to`."""
    if progress is None:
        return None
    total = 0
    for source in progress["sources"]:
        begins, ends, latest = (_offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
        if ends is None or latest is None:
            return None
        for stream, end in ends.items():
            newest = latest.get(stream, end)
            added = end["n"] - (begins or {}).get(stream, {"n": 0})["n"]
            if added < 0 or (end["n"] >= newest["n"] and end["id"] != newest["id"]):
                return None
            total += added
    return total


def counts(offsets: Any) -> dict[str, int]:
    """How many entries were ever added to each stream up to the `offsets` of Spark's progress; empty without them."""
    return {stream: at["n"] for stream, at in (_offsets(offsets) or {}).items()}


def _offsets(offsets: Any) -> dict[str, Any] | None:
    """Positions by stream; None where Spark has none, which differs from having no streams."""
    found: dict[str, Any] | None = json.loads(offsets) if isinstance(offsets, str) else offsets
    return found
