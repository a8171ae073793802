"""Records that were archived without having been accepted, and why; for an operator's log and counters.

They are noted where the decision is made, with the delivery counts of that moment, and reported when the write that
archives them is durable (PL-810). Records that the log no longer has, and gaps, are not included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kip932.state_batches import ARCHIVED_AT_LIMIT, ARCHIVED_REJECTED, ArchivedRange
from partition_leader.share_partition.core.effects import (
    DLQ_CLIENT_REJECT,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    AcquiredRange,
    Archived,
)
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.spans import Span

DELIVERY_LIMIT: Final = "delivery_limit"
REJECTED: Final = "rejected"


class Cause(NamedTuple):
    """Why records are archived: what is stored (PM-20 X9), the cause of their dead letters, the words of a log line."""

    reason: int
    letter: str
    effect: str


CAUSES: Final = {
    DELIVERY_LIMIT: Cause(
        ARCHIVED_AT_LIMIT,
        DLQ_DELIVERY_COUNT_EXCEEDED,
        "not delivered again: released, or held past their locks, share.delivery.count.limit times",
    ),
    REJECTED: Cause(ARCHIVED_REJECTED, DLQ_CLIENT_REJECT, "not delivered again: a consumer rejected them"),
}
_REASON_OF_LETTER: Final = {cause.letter: cause.reason for cause in CAUSES.values()}

#: Records with one delivery count, and the cause.
Mark = tuple[AcquiredRange, str]


def effects_of(marks: Iterable[Mark]) -> list[Archived]:
    """Return one effect per cause; its ranges ascend, and neighbours with the same delivery count are joined."""
    by_cause: dict[str, list[AcquiredRange]] = {}
    for found, cause in sorted(marks):
        ranges = by_cause.setdefault(cause, [])
        if ranges and ranges[-1].last_offset + 1 == found.first_offset and ranges[-1][2] == found[2]:
            ranges[-1] = ranges[-1]._replace(last_offset=found.last_offset)
        else:
            ranges.append(found)
    return [Archived(cause, tuple(ranges)) for cause, ranges in by_cause.items()]


def stored_ranges(window: Window, marks: Sequence[Mark], letters: Sequence[tuple[Span, str]]) -> list[ArchivedRange]:
    """Return what a write stores about the records that it gives up: `marks` get no dead letter, `letters` get one,
    each with its cause (PM-20 X9). The ranges ascend, and equal neighbours are joined."""
    found = [ArchivedRange(*mark, CAUSES[cause].reason) for mark, cause in marks]
    for span, cause in letters:
        for batch, first, last in window.pieces([span]):
            runs = batch.runs(first, last)
            found += [ArchivedRange(low, high, count, _REASON_OF_LETTER[cause]) for low, high, _, count in runs]
    joined: list[ArchivedRange] = []
    for one in sorted(found):
        if joined and joined[-1].last_offset + 1 == one.first_offset and joined[-1][2:] == one[2:]:
            joined[-1] = joined[-1]._replace(last_offset=one.last_offset)
        else:
            joined.append(one)
    return joined
