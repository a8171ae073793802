"""Until when a directory holds all that was written: a note beside the rows, moved on by the job behind its batches.

Without it a page could not tell a system in which nobody does anything from an ingest that died (PM-37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from share_metrics.causes import cause

_NAME: Final = "read-up-to"


def read_up_to(data: Path) -> datetime | None:
    """All entries that were written before this time are in the directory; None where nobody has noted it."""
    with suppress(OSError, ValueError):
        found = datetime.fromisoformat((data / _NAME).read_text().strip())
        return found if found.tzinfo else None
    return None


class Note:
    """Keeps the time in the directory of a job, for as long as that runs. No row depends on it: what fails is told."""

    def __init__(self, data: Path, rows_max: int, tell: Callable[[str], None]) -> None:
        self._path = data / _NAME
        self._rows_max = rows_max
        self._tell = tell
        self._at = read_up_to(data)
        self._failed = False

    def look(self, queries: Iterable[Mapping[str, Any] | None]) -> None:
        """Move on to what all queries have read, from their newest progress; None where there is none yet."""
        times = [complete_up_to(progress, self._rows_max) for progress in queries]
        if times and None not in times:
            self.move(min(at for at in times if at is not None))

    def move(self, at: datetime) -> None:
        """Move on to a time, never back."""
        if self._at is not None and at <= self._at:
            return
        self._at = at
        new = self._path.with_suffix(".new")
        try:
            new.write_text(at.isoformat())
            new.replace(self._path)
            self._failed = False
        except OSError as error:
            if not self._failed:
                self._tell(f"how far was read was not noted, which is tried again: {cause(str(error))}")
            self._failed = True


def complete_up_to(progress: Mapping[str, Any] | None, rows_max: int) -> datetime | None:
    """When a query planned its last batch, if that held all there was: less rows than a batch may have."""
    if progress is None or progress["numInputRows"] >= rows_max:
        return None
    return datetime.fromisoformat(progress["timestamp"])
