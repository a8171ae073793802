"""The checks that a request must pass before a shard decides it, in the order of table 2.3 (SC-20…SC-31, SC-43).

Each raises the KafkaError of its row of the table, or lets the request pass; none changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kip932.errors import FencedStateEpochError, InvalidRequestError, UnknownTopicOrPartitionError
from kip932.ids import (
    NULL_TOPIC_ID,
    STATE_ACKNOWLEDGED,
    STATE_ARCHIVED,
    STATE_ARCHIVING,
    STATE_AVAILABLE,
    SharePartitionKey,
    topic_id_text,
)
from kip932.state_batches import StateBatch
from share_coordinator.core.commands import MetadataView, StaleLeaderError
from share_coordinator.core.share_state import ShareState

#: The state epoch in a Delete whose epoch is not to be checked (SC-29).
UNCHECKED: Final = -1
_STORABLE: Final = frozenset({STATE_AVAILABLE, STATE_ACKNOWLEDGED, STATE_ARCHIVING, STATE_ARCHIVED})


def check_key(key: SharePartitionKey) -> None:
    """Rows 1 and 2: refuse a null topic id, or a negative partition."""
    if key.topic_id == NULL_TOPIC_ID:
        raise InvalidRequestError(f"group {key.group_id!r}: the topic id is null; expected a topic's id")
    if key.partition < 0:
        raise InvalidRequestError(f"{key.text}: partition {key.partition} is negative; expected 0 or more")


def check_epochs(key: SharePartitionKey, *, leader_epoch: int = 0, state_epoch: int = 0) -> None:
    """Row 2a (SC-28): refuse a negative epoch, which no leader or group has: such a request would not be fenced."""
    for name, epoch in (("leader", leader_epoch), ("state", state_epoch)):
        if epoch < 0:
            raise InvalidRequestError(f"{key.text}: {name} epoch {epoch} is negative; expected 0 or more")


def initialised(key: SharePartitionKey, state: ShareState | None) -> ShareState:
    """Row 3: return the state, or raise when the key has none."""
    if state is None:
        raise InvalidRequestError(f"{key.text} has no state; the group coordinator must initialise it first")
    return state


def check_leader(pair: tuple[int, int], state: ShareState) -> None:
    """Row 4: refuse an older leader, by (leader epoch, generation) as one ordered pair (SC-29a); equal and higher ones
    pass (SC-26)."""
    if state.fence > pair:
        raise StaleLeaderError(
            f"leader epoch {pair[0]} (generation {pair[1]}) is below the stored {state.fence[0]} "
            f"(generation {state.fence[1]}); another leader has taken over",
            state.fence[0],
        )


def check_state_epoch(state_epoch: int, state: ShareState | None) -> None:
    """Row 5: refuse an older state epoch. A key without state, or −1 in a Delete, is not checked (SC-27, SC-29)."""
    if state is not None and state_epoch != UNCHECKED and state.fence_state_epoch > state_epoch:
        raise FencedStateEpochError(
            f"state epoch {state_epoch} is below the stored {state.fence_state_epoch}; read the state again"
        )


def check_batches(key: SharePartitionKey, batches: Sequence[StateBatch]) -> None:
    """SC-43 [R]: refuse a batch that describes no possible state of records; overlapping batches are legal."""
    for batch in batches:
        first, last, state, count, until = batch
        if first > last or state not in _STORABLE or count < 0 or (until and (until < 0 or state != STATE_AVAILABLE)):
            raise InvalidRequestError(
                f"{key.text}: state batch {batch} (first-last:state:count@not_before_ms) is not valid; expected first "
                f"<= last, state one of {sorted(_STORABLE)}, count >= 0, not_before_ms >= 0, and 0 but with state 0"
            )


def check_metadata(key: SharePartitionKey, metadata: MetadataView) -> None:
    """Row 6: refuse an unknown topic or partition; always last, so that a stale leader of a deleted topic learns that
    it is stale (SC-30)."""
    count = metadata.partition_count(key.topic_id)
    if count is None:
        raise UnknownTopicOrPartitionError(f"topic {topic_id_text(key.topic_id)} is not in this node's metadata")
    if key.partition >= count:
        raise UnknownTopicOrPartitionError(
            f"topic {topic_id_text(key.topic_id)} has {count} partitions; partition {key.partition} was asked for"
        )
