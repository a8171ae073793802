"""Remembers records that were archived without being accepted: a late acknowledgement must not be confirmed (PL-418).

The window forgets records below the start offset. This module remembers, for the newest ranges that were rejected or
had reached the delivery limit, who archived them. It is in memory only, like every lock: a successor does not have it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kip932.errors import InvalidRecordStateError
from partition_leader.share_partition.core.batch import NO_MEMBER

#: How many ranges a share-partition remembers; the oldest is forgotten first.
RANGES_MAX: Final = 128


class _Range(NamedTuple):
    first: int
    last: int
    by: str


class GivenUp:
    """The newest ranges of one share-partition object. Adjacent ranges that were noted in succession are joined."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def note(self, first: int, last: int, by: str = NO_MEMBER) -> None:
        """Note that these records were archived for good, by an acknowledgement from `by`, or because a lock or session
        ended."""
        ranges = self._ranges
        if ranges and ranges[-1].last + 1 == first and ranges[-1].by == by:
            ranges[-1] = ranges[-1]._replace(last=last)
            return
        ranges.append(_Range(first, last, by))
        if len(ranges) > RANGES_MAX:
            del ranges[0]

    def check(self, first: int, last: int, caller: str) -> None:
        """Raise InvalidRecordStateError if one of these offsets, all below the start offset, was given up by something
        other than the caller's own acknowledgement."""
        for known in self._ranges:
            if known.first <= last and first <= known.last and known.by != caller:
                why = (
                    "its last delivery (share.delivery.count.limit) ended without an acknowledgement"
                    if known.by == NO_MEMBER
                    else "another member rejected it, or released it on its last delivery"
                )
                raise InvalidRecordStateError(
                    f"offset {max(first, known.first)} cannot be acknowledged by member {caller}: {why}, so it is "
                    "archived and not delivered again; produce it again if it is still to be done"
                )
