"""Computes how many new offsets may be acquired: the in-flight limit, and the rules while records wait (PL-131,
PL-935).

Without dead letters and delayed records the limit counts offsets, as Kafka does. It never changes a record.
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
    """Return whether delayed records keep new offsets from being acquired: they are too many, or the window is in too
    many pieces because of them (PL-935)."""
    if not window.counts_records:
        return False
    return window.delayed >= settings.delayed_max or window.batch_count >= SHARE_PARTITION_BATCHES_MAX


def is_below_bound_again(delays: Delays, settings: GroupConfig) -> bool:
    """Return whether the bound, once reached, counts as left: a tenth of it is free again. Between the two nothing is
    logged; otherwise records that are tried again at the bound would log it over and over."""
    most, pieces = settings.delayed_max, SHARE_PARTITION_BATCHES_MAX
    return not delays.counts or (delays.records < most - most // 10 and delays.pieces < pieces - pieces // 10)


def join_settled(window: Window) -> None:
    """While records wait, keep settled records anywhere in the window in as few pieces as possible.

    It runs when the changes since the last join, in batches and in finished records, reach both the limit and half the
    number of batches at that time. A join reads all batches, so without the second condition its cost would grow with
    the records that wait (P-3).
    """
    count, closing = window.joined_at
    changed = abs(window.batch_count - count) + abs(window.closing - closing)
    if not window.counts_records or changed < max(window.limits.settled_changes, count // 2):
        return
    batches = list(window.walk())
    for begin, end in list(settled_stretches(batches)):
        window.merge_settled(batches[begin].first, batches[end - 1].last + 1)
    window.joined_at = window.batch_count, window.closing
