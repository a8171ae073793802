"""Gives the persister of the same process access to this share coordinator without messages (P-12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kip932.errors import CoordinatorNotAvailableError, KafkaError, NotCoordinatorError
from kip932.ids import SharePartitionKey
from kip932.state_values import DelayedAt
from share_coordinator.core import commands as core
from share_coordinator.dispatch import Dispatcher
from share_persister.values import Answer, Payload, StateOperation, StoredState, TopicStarts, Value

_COMMANDS: Final[dict[StateOperation, Callable[[SharePartitionKey, Any], core.KeyCommand]]] = {
    StateOperation.READ: lambda key, read: core.ReadState(key, read.leader_epoch, read.generation),
    StateOperation.WRITE: core.WriteState,
    StateOperation.INITIALIZE: lambda key, init: core.InitializeState(key, init.state_epoch, init.start_offset),
    StateOperation.DELETE: core.DeleteState,
    StateOperation.SUMMARY: lambda key, asked: (
        core.ReadSummary(key, None, asked.wall_ms) if isinstance(asked, DelayedAt) else core.ReadSummary(key, asked)
    ),
}


class LocalShareCoordinator:
    """The `LocalCoordinator` of a persister in the same process."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def owns(self, shard_index: int) -> bool:
        """Return whether this process serves the shard at present."""
        return self._dispatcher.active and self._dispatcher.serves(shard_index)

    async def perform(
        self, operation: StateOperation, key: SharePartitionKey, payload: Payload, within_ms: int
    ) -> Answer:
        """Run one operation, for at most `within_ms`."""
        if not self._dispatcher.active:
            return Answer(CoordinatorNotAvailableError("the share coordinator has stopped"))
        outcome = await self._dispatcher.run_one(_COMMANDS[operation](key, payload), within_ms)
        return self._refusal(key, outcome) if isinstance(outcome, KafkaError) else Answer(None, _value(outcome))

    async def topic_starts(self, topic_ids: frozenset[bytes]) -> Mapping[int, TopicStarts | KafkaError]:
        """Return every group's start offsets in these topics, by shard served here (SC-116)."""
        return await self._dispatcher.topic_starts(topic_ids)

    def _refusal(self, key: SharePartitionKey, error: KafkaError) -> Answer:
        owner = self._dispatcher.owner(key) if isinstance(error, NotCoordinatorError) else None
        return Answer(
            error,
            leader_epoch=error.leader_epoch if isinstance(error, core.StaleLeaderError) else None,
            hint=f"{owner.host}:{owner.port}" if owner else None,
        )


def _value(reply: core.KeyReply) -> Value:
    if isinstance(reply, core.StateView):
        return StoredState(reply.state_epoch, reply.start_offset, reply.batches)
    return reply
