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


def read_up_to(data: Path, now: datetime) -> datetime | None:
    """The time before which the directory holds all entries that were written; None if no job has noted one.

    A time after `now` is ignored, since a clock was wrong.
    """
    with suppress(OSError, ValueError, TypeError):
        found = datetime.fromisoformat((data / _NAME).read_text().strip())
        return found if found <= now else None
    return None


class Note:
    """Writes the time into the directory while a job runs. No row depends on it, so a failure is only reported."""

    def __init__(self, data: Path, rows_max: int, notify: Callable[[str], None]) -> None:
        self._path = data / _NAME
        self._rows_max = rows_max
        self._notify = notify
        self._at: datetime | None = None
        self._failed = False

    @property
    def at(self) -> datetime | None:
        """The time that was noted last; None if there is none, or if it was withdrawn."""
        return self._at

    def advance(self, queries: Iterable[Mapping[str, Any] | None]) -> None:
        """Advance to the time up to which all queries have read, by their newest progress.

        An item of `queries` is None while that query has no progress; then the note does not change.
        """
        times = [complete_up_to(progress, self._rows_max) for progress in queries]
        if times and None not in times:
            self.move(min(at for at in times if at is not None))

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
    if progress is None:
        return None
    planned = 0
    for source in progress["sources"]:
        begins, ends, latest = (_offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
        if ends is None or latest is None:
            return None
        for stream, end in ends.items():
            newest = latest.get(stream, end)
            added = end["n"] - (begins or {}).get(stream, {"n": 0})["n"]
            if added < 0 or (end["n"] >= newest["n"] and end["id"] != newest["id"]):
                return None
            planned += added
    return datetime.fromisoformat(progress["timestamp"]) if planned < rows_max else None


def counts(offsets: Any) -> dict[str, int]:
    """How many entries were ever added to each stream up to the `offsets` of Spark's progress; empty without them."""
    return {stream: at["n"] for stream, at in (_offsets(offsets) or {}).items()}


def _offsets(offsets: Any) -> dict[str, Any] | None:
    """Positions by stream; None where Spark has none, which differs from having no streams."""
    found: dict[str, Any] | None = json.loads(offsets) if isinstance(offsets, str) else offsets
    return found
