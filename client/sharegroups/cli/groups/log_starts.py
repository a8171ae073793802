"""Prints the start offsets of topics that keep only the records that some group still needs (CM-162).

No group can be reset to an earlier offset. This is only a hint: errors of the cluster are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kip932.errors import KafkaError
from kip932.ids import OFFSET_EARLIEST, TopicPartition
from sharegroups.admin import Admin
from sharegroups.cli.output import print_stderr
from sharegroups.cli.topic_retention import keep_only_needed

_SHOWN: Final = 5


def note_deleted_records(admin: Admin, starts: Mapping[TopicPartition, int]) -> None:
    """Print the topics whose first records were deleted because every group had finished them.

    `starts`: the start offsets of their logs.
    """
    moved = {part: start for part, start in starts.items() if start > 0}
    for topic in sorted(keep_only_needed(admin, {part.topic for part in moved})):
        print_stderr(
            f"Note: Topic {topic} has sharegroups.retention=consumed: what every group had finished is deleted. Its "
            f"log begins at {_listed(part for part in moved.items() if part[0].topic == topic)}."
        )


def warn_of_deleted_records(admin: Admin, plan: Mapping[TopicPartition, int]) -> None:
    """After a group's offsets were set, print the partitions of such topics whose log now starts after the group's
    offset."""
    topics = keep_only_needed(admin, {part.topic for part in plan})
    asked = [part for part in plan if part.topic in topics]
    try:
        found = admin.list_offsets(dict.fromkeys(asked, OFFSET_EARLIEST)) if asked else {}
    except KafkaError:
        return
    starts = {part: start for part, start in found.items() if isinstance(start, int) and start > plan[part]}
    if starts:
        print_stderr(
            "Warn: Meanwhile records that every group had finished were deleted (sharegroups.retention=consumed). The "
            f"group begins where the log does: at {_listed(starts.items())}."
        )


def _listed(starts: Iterable[tuple[TopicPartition, int]]) -> str:
    every = [f"{start} in {part.topic}-{part.partition}" for part, start in sorted(starts)]
    more = f" and in {len(every) - _SHOWN} more partitions" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
