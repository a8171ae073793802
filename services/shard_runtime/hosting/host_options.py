"""A host's states, bounds and meter; `shard_host` uses them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from shard_runtime.hosting.compaction_plan import CompactionLimits


class HostState(StrEnum):
    """The state of a host's shard; the names are those of the `num-partitions` metric (GC-153)."""

    IDLE = "idle"
    LOADING = "loading"
    ACTIVE = "active"
    RELEASING = "releasing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Bounds of one host; times in milliseconds."""

    write_timeout_ms: int = 5_000
    release_timeout_ms: int = 5_000
    waiting_max: int = 10_000
    flush_records_max: int = 5_000
    flush_bytes_max: int = 8 * 1024 * 1024
    page_entries: int = 500
    settlements_every_ms: int = 5_000
    compaction: CompactionLimits = field(default_factory=CompactionLimits)


class HostMeter:
    """Receives a host's counts, once per batch or event, never per record (P-6). This one counts nothing."""

    def flushed(self, records: int, elapsed_ms: int) -> None:
        """One flush was committed."""

    def refused(self, records: int) -> None:
        """The store refused one flush, and the host undid it."""

    def loaded(self, entries: int, unknown: int, elapsed_ms: int) -> None:
        """A log was replayed; this build does not know the type or version of `unknown` of its entries (SC-51)."""

    def trimmed(self, entries_left: int) -> None:
        """The stream was compacted; a take-over would now replay `entries_left` entries."""
