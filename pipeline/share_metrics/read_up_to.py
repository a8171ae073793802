"""Until when a directory holds all that was written: a note beside the rows, moved on by the job behind its batches.

Without it a page could not tell a system in which nobody does anything from an ingest that died (PM-37).
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
    """All entries that were written before this time are in the directory; None where nobody has noted it.

    A time behind `now` is none: a clock was wrong then.
    """
    with suppress(OSError, ValueError, TypeError):
        found = datetime.fromisoformat((data / _NAME).read_text().strip())
        return found if found <= now else None
    return None


class Note:
    """Keeps the time in the directory of a job, for as long as that runs. No row depends on it: what fails is told."""

    def __init__(self, data: Path, rows_max: int, tell: Callable[[str], None]) -> None:
        self._path = data / _NAME
        self._rows_max = rows_max
        self._tell = tell
        self._at: datetime | None = None
        self._failed = False

    def look(self, queries: Iterable[Mapping[str, Any] | None]) -> None:
        """Move on to what all queries have read, from their newest progress; None where there is none yet."""
        times = [complete_up_to(progress, self._rows_max) for progress in queries]
        if times and None not in times:
            self.move(min(at for at in times if at is not None))

    def move(self, at: datetime | None) -> None:
        """Keep a time; None: what was noted is no longer so."""
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
                self._tell(f"how far was read was not noted, which is tried again: {cause(str(error))}")
            self._failed = True


def complete_up_to(progress: Mapping[str, Any] | None, rows_max: int) -> datetime | None:
    """When a query planned its last batch, if that was to hold all there was; None if it may not have been.

    A batch is full by the entries it was planned for, however many of them were trimmed since; a stream that it begins
    counts as a whole. Of a stream that has lost its tail counts say nothing: they fall, or are those of other entries.
    A batch that another run had planned, and that only came again, has no latest offsets and says nothing either.
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
    """How many entries had ever been added to each stream up to an offset that Spark tells; empty if it does not."""
    return {stream: at["n"] for stream, at in (_offsets(offsets) or {}).items()}


def _offsets(offsets: Any) -> dict[str, Any] | None:
    """Positions by stream; None where Spark has none, which is not the same as having no streams."""
    found: dict[str, Any] | None = json.loads(offsets) if isinstance(offsets, str) else offsets
    return found
