"""Which records were archived without having been accepted, and why: for the log and the count of an operator.

Noted where it is decided, with the delivery counts of that moment, and told when the write that makes it true is
durable (PL-810). Records that the log no longer has, and gaps, are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kip932.ids import STATE_ARCHIVED
from partition_leader.share.core.effects import AcquiredRange, Archived
from partition_leader.share.core.in_flight import Window

DELIVERY_LIMIT: Final = "delivery_limit"
REJECTED: Final = "rejected"

#: Records with one delivery count, and the cause.
Mark = tuple[AcquiredRange, str]


def told(marks: Iterable[Mark]) -> list[Archived]:
    """One effect for each cause; its ranges ascend, and neighbours with the same delivery count are joined."""
    by_cause: dict[str, list[AcquiredRange]] = {}
    for found, cause in sorted(marks):
        ranges = by_cause.setdefault(cause, [])
        if ranges and ranges[-1].last_offset + 1 == found.first_offset and ranges[-1][2] == found[2]:
            ranges[-1] = ranges[-1]._replace(last_offset=found.last_offset)
        else:
            ranges.append(found)
    return [Archived(cause, tuple(ranges)) for cause, ranges in by_cause.items()]


def took_effect(window: Window, marks: Iterable[Mark]) -> list[Mark]:
    """Those that are archived, or finished and left behind, now that it is known what the store has (PL-707)."""
    return [mark for mark in marks if _is_archived(window, mark[0])]


def _is_archived(window: Window, found: AcquiredRange) -> bool:
    first = max(found.first_offset, window.start_offset)
    return all(
        code == STATE_ARCHIVED
        for batch in window.overlapping(first, found.last_offset)
        for _, _, code, _ in batch.runs(max(first, batch.first), min(found.last_offset, batch.last))
    )
