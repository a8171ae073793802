"""The bounds of one topic log: memory, flush sizes, snapshots, and every queue and cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TopicLogSettings:
    """Settings of every topic log of a process; sizes in bytes, times in milliseconds."""

    tail_cache_bytes: int = 64 * _MIB
    """The memory for the newest batches, shared by all groups (CM-46, P-8)."""
    read_ahead_bytes: int = _MIB
    """The minimum that a read from the store reads; it is kept in memory until the next such read."""
    cold_read_max_bytes: int = 8 * _MIB
    """About the maximum that a read from the store reads."""
    queue_max_bytes: int = 32 * _MIB
    """The maximum bytes of batches that wait for a flush or are in one; above it, produce requests are refused."""
    flush_max_bytes: int = 4 * _MIB
    flush_max_batches: int = 512
    snapshot_batches: int = 1_000
    """A snapshot of the producers is written after this many batches (CM-40) …"""
    snapshot_bytes: int = 16 * _MIB
    """… or after this many bytes."""
    control_entries_max: int = 64
    """If the control log has more entries, its newest values are written again and the rest is trimmed (CM-18)."""
    producers_max: int = 10_000
    producer_expiration_ms: int = 86_400_000
    """A producer without an append for this long is forgotten."""
    jump_offsets: int = 1_000_000
    """How far the log end jumps when a tail may be lost (CM-47)."""
