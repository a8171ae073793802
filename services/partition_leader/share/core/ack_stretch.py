"""Many short acknowledgements of one cached batch as one array of types, so that each costs no more than its entry.

Owns the gathering, and the question whether the caller holds everything that is acknowledged. Never changes a record,
and never says what is wrong: what does not fit is applied one by one, which finds the reason (PL-406, PL-407).
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

_WIDTH_PER_ACK: Final = 16  # wider, and walking the offsets between costs more than it saves


class AckStretch(NamedTuple):
    """`acks` ack batches of one cached batch: a type for each of their `records`, marked codes between them."""

    batch: InFlightBatch
    first: int
    types: bytearray
    acks: int
    records: int


def gather(window: Window, acks: Sequence[AckBatch], at: int) -> AckStretch | None:
    """As many ack batches from `at` on as are ascending and lie on one cached batch; None for fewer than two."""
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
    """Whether the member holds every acknowledged record: Acquired, not pending, its own (PL-406, PL-407)."""
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
