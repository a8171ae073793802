"""Logs and counts each damaged entry of the store only once, however often this process reads it (CM-101)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from shard_runtime.record_log.protocol import Entry, StreamId

log = structlog.get_logger(__name__)

#: How many entries are remembered as logged. Further ones are neither logged nor counted; `state check` lists all.
NOTED_MAX: Final = 10_000


class DamageNotes:
    """The damaged entries found so far, shared by all clients of the store in a process.

    With `quiet`, nothing is logged: for a command that prints the damage itself.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._found: Callable[[str], None] = lambda stream: None
        self._noted: set[tuple[str, StreamId]] = set()

    def count(self, found: Callable[[str], None]) -> None:
        """Call `found` with the stream of each damaged entry: now for those already found, later for new ones."""
        self._found = found
        for stream, _ in self._noted:
            found(stream)

    def note(self, stream: str, entries: Iterable[Entry]) -> None:
        """Log and count those of `entries` that are damaged and were not logged yet."""
        for entry in entries:
            if entry.damage:
                self._note(stream, entry)

    def _note(self, stream: str, entry: Entry) -> None:
        if (stream, entry.id) in self._noted:
            return
        if len(self._noted) >= NOTED_MAX:
            return
        self._noted.add((stream, entry.id))
        if not self._quiet:
            log.error(
                "stored_entry_damaged",
                stream=stream,
                entry=str(entry.id),
                cause=entry.damage,
                size=len(entry.record) + len(entry.batch),
                effect="the entry is left out",
                try_next="list all damaged entries with `sharegroups state check`",
            )
        self._found(stream)
