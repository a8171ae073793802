"""Reads every group's start offsets in some topics from one shard of share state (SC-116). Pure; nothing changes.

The answer is complete or refused: the leader that trims a log by it must know of every group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kip932.errors import InQuarantineError, InvalidRequestError
from kip932.ids import SharePartitionKey
from shard_runtime.hosting.shard import DamagedEntry
from share_coordinator.core.share_state import ShareState

#: The most share-partitions of one shard in one answer (CM-91).
STARTS_MAX: Final = 4_000


def topic_starts(
    states: Mapping[SharePartitionKey, ShareState], damaged: Iterable[DamagedEntry], topic_ids: Collection[bytes]
) -> tuple[tuple[SharePartitionKey, int], ...]:
    """Return each share-partition of the topics with its start offset; −1: its leader has not chosen one yet.

    Raises InQuarantineError when a damaged entry may belong to one of them, InvalidRequestError for too many of them.
    """
    for entry in damaged:
        if not isinstance(entry.key, SharePartitionKey) or entry.key.topic_id in topic_ids:
            whose = "nobody can tell whose it was" if entry.key is None else f"it is of {entry.key}"
            raise InQuarantineError(
                f"entry {entry.at} of {entry.stream} is damaged, and {whose}; how far its group is, is not known until "
                "an operator settles that: `sharegroups state repair` shows what can be done"
            )
    found = [(key, state.start_offset) for key, state in states.items() if key.topic_id in topic_ids]
    if len(found) > STARTS_MAX:
        raise InvalidRequestError(
            f"{len(found)} share-partitions of one shard have state for the {len(topic_ids)} topics; at most "
            f"{STARTS_MAX} go into one answer: ask for fewer topics at once"
        )
    return tuple(found)
