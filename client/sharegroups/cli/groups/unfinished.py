"""The first records that a group has not finished: what `groups explain` tells of without --offset (CT-110)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kip932.ids import EXPLAINED_OFFSETS_MAX, TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import RecordExplanation, RecordsExplained

#: How many records, or runs of neighbours alike, are told of a partition, and of how many partitions.
SHOWN_MAX: Final = 5
PARTITIONS_MAX: Final = 20
#: States of what the group never gets, or never again.
_OVER: Final = frozenset({"acknowledged", "archived", "finished", "deleted", "hole"})


def first_unfinished(admin: Admin, group: str, partition: TopicPartition) -> RecordsExplained:
    """The leader's answer about the first records from the group's start offset on that are not finished.

    Where all are, about the next offset, where nothing is written yet. Raises KafkaError.
    """
    first, last = _span(admin.explain_record(group, partition, 0, 0))  # any offset: the answer tells the bounds
    told = admin.explain_record(group, partition, first, last)
    return replace(told, records=unfinished_of(told.records))


def unfinished_of(records: Sequence[RecordExplanation]) -> tuple[RecordExplanation, ...]:
    """The first of them that are not finished; the last one where all are."""
    left = [record for record in records if record.state not in _OVER]
    return tuple(left[:SHOWN_MAX] or records[-1:])


def nothing_left(told: RecordsExplained) -> bool:
    """Whether the group has finished every record of the partition."""
    return told.start_offset is not None and all(record.state == "beyond_end" for record in told.records)


def _span(told: RecordsExplained) -> tuple[int, int]:
    """The offsets to look at, inclusive."""
    first = max(told.log_start_offset, told.start_offset or 0)
    return first, max(first, min(first + EXPLAINED_OFFSETS_MAX, told.high_watermark) - 1)
