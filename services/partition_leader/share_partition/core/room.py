"""Computes how many new offsets may be acquired: the in-flight limit, and the rules while records are delayed (PL-131,
PL-935).

If there are no dead letters or delayed records, the limit is on offsets, as in Kafka. This module never changes a
record.
"""

from __future__ import annotations

from kip932.ids import SHARE_PARTITION_BATCHES_MAX
from partition_leader.share_partition.core.dead_letters import DeadLetters
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.pieces import settled_stretches
from partition_leader.share_partition.core.status import Delays
from shard_runtime.config.group_config import GroupConfig


def room_for_new(window: Window, letters: DeadLetters, settings: GroupConfig) -> int:
    """Return how many new offsets may be acquired; 0 or less for none."""
    if not window.counts_records:
        return letters.room(window, settings)
    if delayed_full(window, settings) or letters.is_full(window, settings):
        return 0
    return settings.max_record_locks - window.counting


def delayed_full(window: Window, settings: GroupConfig) -> bool:
    """Return whether delayed records keep new offsets from being acquired: there are too many of them, or they have
    split the window into too many pieces (PL-935)."""
    if not window.counts_records:
        return False
    return window.delayed >= settings.delayed_max or window.batch_count >= SHARE_PARTITION_BATCHES_MAX


def is_below_bound_again(delays: Delays, settings: GroupConfig) -> bool:
    """Return whether delayed records are clearly below their bound again after reaching it: a tenth of it is free.
    Without this margin, retries at the bound would be logged over and over."""
    most, pieces = settings.delayed_max, SHARE_PARTITION_BATCHES_MAX
    return not delays.counts or (delays.records < most - most // 10 and delays.pieces < pieces - pieces // 10)


def join_settled(window: Window) -> None:
    """While records are delayed, keep settled records everywhere in the window in as few pieces as possible.

    It runs once the changes since the last join, in batches plus finished records, reach both the limit and half the
    number of batches at that time. A join reads all batches, so without the second condition its cost would grow with
    the number of delayed records (P-3).
    """
    count, closing = window.joined_at
    changed = abs(window.batch_count - count) + abs(window.closing - closing)
    if not window.counts_records or changed < max(window.limits.settled_changes, count // 2):
        return
    batches = list(window.walk())
    for begin, end in list(settled_stretches(batches)):
        window.merge_settled(batches[begin].first, batches[end - 1].last + 1)
    window.joined_at = window.batch_count, window.closing
