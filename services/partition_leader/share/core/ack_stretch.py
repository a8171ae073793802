"""Combines many short acknowledgements of one cached batch into one array of types, so that each costs one entry.

Gathers them, and checks that the caller holds every acknowledged record. Never changes a record or reports an error:
ack batches that do not fit are applied one by one, which finds the reason (PL-406, PL-407).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, islice
from typing import Final, NamedTuple

from kip932.ids import STATE_ACQUIRED
from partition_leader.share.core.batch import InFlightBatch
from partition_leader.share.core.events import AckBatch
from partition_leader.share.core.in_flight import Window
from partition_leader.share.core.transitions import IS_TOUCHED, UNTOUCHED

_WIDTH_PER_ACK: Final = 16  # with wider gaps, walking the offsets between costs more than it saves


class AckStretch(NamedTuple):
    """`acks` ack batches of one cached batch. `types`: one byte for each offset from `first` on, an acknowledge type
    for each of the `records` acknowledged offsets and a marked code for those between them."""

    batch: InFlightBatch
    first: int
    types: bytearray
    acks: int
    records: int


def gather(window: Window, acks: Sequence[AckBatch], at: int) -> AckStretch | None:
    """Return the ack batches from `at` on that ascend on one cached batch, up to the first with delays or
    `undelivered`; None when there are fewer than two, or when they are too sparse."""
    if at + 1 >= len(acks):
        return None
    first = acks[at].first_offset
    batch = window.floor(first)
    if batch is None or first < window.start_offset or acks[at + 1].last_offset > batch.last:
        return None
    end = min(acks[-1].last_offset, batch.last)
    if end - first >= _WIDTH_PER_ACK * (len(acks) - at):
        return None
    types = batch.marked_codes(first, end)
    taken, previous = 0, first - 1
    for low, last, given, delays, undelivered in islice(acks, at, None):
        if not previous < low <= last <= end or delays or undelivered:
            break
        if low == last:
            types[low - first] = given[0]
        elif len(given) == 1:
            types[low - first : last - first + 1] = bytes(given) * (last - low + 1)
        elif len(given) == last - low + 1:
            types[low - first : last - first + 1] = given
        else:
            break
        previous = last
        taken += 1
    if taken < 2:
        return None
    del types[previous - first + 1 :]
    return AckStretch(batch, first, types, taken, types.translate(IS_TOUCHED).count(True))


def is_held(stretch: AckStretch, member: str) -> bool:
    """Return whether the member holds every acknowledged record: Acquired, not pending, its own (PL-406, PL-407)."""
    batch, types = stretch.batch, stretch.types
    if batch.codes is None:
        return batch.code == STATE_ACQUIRED and batch.member == member
    low = stretch.first - batch.first
    high = low + len(types)
    acquired = batch.codes.count(STATE_ACQUIRED, low, high) - types.count(UNTOUCHED | STATE_ACQUIRED)
    if acquired != stretch.records:
        return False
    holders = batch.members[low:high]
    if stretch.records < len(holders):
        holders = list(compress(holders, types.translate(IS_TOUCHED)))
    return holders.count(member) == stretch.records
