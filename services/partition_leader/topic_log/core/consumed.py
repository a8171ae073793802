"""Decides where a log that keeps only what some group still needs may start (`sharegroups.retention=consumed`, CM-160).

Records are kept unless it is certain that no group needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from kip932.state_values import StoredStart


class Kept(StrEnum):
    """Why records stay. Operators must be informed of NO_STATE and NOT_BEGUN, because no lag shows them."""

    NO_GROUP = "no group has state for the topic"
    NO_STATE = "a group has state for other partitions of the topic, and none for this one yet"
    NOT_BEGUN = "a group has not begun here yet"
    LOADING = "a group's state is being loaded"
    UNFINISHED = "a group has not finished them"
    READABLE = "they are at the end of the log, or after the beginning of an open transaction"


class Needed(NamedTuple):
    """`start`: the first offset that may still be needed. `why`: why it stays. `group_id`: the group that needs it; ""
    if none."""

    start: int
    why: Kept
    group_id: str = ""


def needed_from(
    partition: int,
    groups: Mapping[str, Mapping[int, StoredStart]],
    loaded: Mapping[str, int | None],
    *,
    log_start: int,
    last_stable: int,
) -> Needed:
    """Return the first offset of a partition that may still be needed; never below `log_start`.

    `groups`: for every group with state for the topic, its durable progress by partition.
    `loaded`: the start offsets in this leader's memory; None while the state is being loaded.
    """
    if not groups:
        return Needed(log_start, Kept.NO_GROUP)
    found = Needed(last_stable, Kept.READABLE)
    for group_id, starts in groups.items():
        stored = starts.get(partition)
        if stored is None:
            return Needed(log_start, Kept.NO_STATE, group_id)
        start = stored.start_offset
        if start < 0:
            return Needed(log_start, Kept.NOT_BEGUN, group_id)
        if start < found.start:
            found = Needed(start, Kept.UNFINISHED, group_id)
    for group_id, in_memory in loaded.items():
        if in_memory is None:
            return Needed(log_start, Kept.LOADING, group_id)
        if in_memory < found.start:
            found = Needed(in_memory, Kept.UNFINISHED, group_id)
    return found if found.start > log_start else found._replace(start=log_start)
