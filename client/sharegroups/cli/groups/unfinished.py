"""Finds the first records that a group has not finished, which `groups explain` shows without --offset (CT-110)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kip932.ids import EXPLAINED_OFFSETS_MAX, TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import RecordExplanation, RecordsExplained

#: How many records, or runs of similar neighbours, are shown for a partition, and for how many partitions.
SHOWN_MAX: Final = 5
PARTITIONS_MAX: Final = 20
#: States of records that the group does not get, or does not get again.
_OVER: Final = frozenset({"acknowledged", "archived", "finished", "deleted", "hole"})


def first_unfinished(admin: Admin, group: str, partition: TopicPartition) -> RecordsExplained:
    """Return the leader's answer about the first unfinished records from the group's start offset on.

    If all are finished, it is about the next offset, where nothing is written yet. Raises KafkaError.
    """
    first, last = _span(admin.explain_record(group, partition, 0, 0))  # any offset: the answer contains the bounds
    told = admin.explain_record(group, partition, first, last)
    return replace(told, records=unfinished_of(told.records))


def unfinished_of(records: Sequence[RecordExplanation]) -> tuple[RecordExplanation, ...]:
    """Return the first records that are not finished; the last record if all are finished."""
    left = [record for record in records if record.state not in _OVER]
    return tuple(left[:SHOWN_MAX] or records[-1:])


def nothing_left(told: RecordsExplained) -> bool:
    """Return whether the group has finished every record of the partition."""
    return told.start_offset is not None and all(record.state == "beyond_end" for record in told.records)


def _span(told: RecordsExplained) -> tuple[int, int]:
    """Return the first and the last offset to ask about, both inclusive."""
    first = max(told.log_start_offset, told.start_offset or 0)
    return first, max(first, min(first + EXPLAINED_OFFSETS_MAX, told.high_watermark) - 1)
