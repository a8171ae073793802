"""The bounds of one topic log: memory, flush sizes, snapshots. Every queue and cache of the log is named here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TopicLogSettings:
    """Settings of every topic log of a process; sizes in bytes, times in milliseconds."""

    tail_cache_bytes: int = 16 * _MIB
    """Newest batches kept in memory for all groups (CM-46, P-8)."""
    read_ahead_bytes: int = _MIB
    """Read at least this much when a read must go to the store; kept until the next such read."""
    cold_read_max_bytes: int = 8 * _MIB
    """Read at most about this much from the store at once."""
    queue_max_bytes: int = 32 * _MIB
    """Batches of producers that wait for, or are in, a flush; above it a produce is refused."""
    flush_max_bytes: int = 4 * _MIB
    flush_max_batches: int = 512
    snapshot_batches: int = 1_000
    """Producers are written down after so many batches (CM-40) …"""
    snapshot_bytes: int = 16 * _MIB
    """… or after so many bytes."""
    control_entries_max: int = 64
    """Entries of the control log above which its newest are written again and the rest is cut off (CM-18)."""
    producers_max: int = 10_000
    producer_expiration_ms: int = 86_400_000
    """A producer silent for so long is forgotten."""
    jump_offsets: int = 1_000_000
    """How far the log end jumps when a tail may be lost (CM-47)."""
