"""Observers of delays in partition leaders: the requests, the states that are read, and the current back-off and
clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kip932.ids import ACK_RELEASE
from tests.simulation.clock import WALL_START_MS
from tests.simulation.delay_events import BackoffSeen, ReleaseAsked, RetriesSeen, StateLoaded, TakeBackAsked
from tests.simulation.edge import Edge
from tests.simulation.history import Share

if TYPE_CHECKING:
    from partition_leader.share_partition.core.events import AckBatch
    from partition_leader.share_partition.host import SharePartitionHost
    from shard_runtime.config.group_config import GroupConfig


class Retries:
    """Back-offs of groups; records one when a decision uses a different value than the previous decision."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._seen: dict[str, tuple[BackoffSeen, int]] = {}

    def note(self, group_id: str, settings: GroupConfig) -> None:
        """Note the group settings that a decision reads."""
        found = (backoff_of(settings), settings.delay_max_ms)
        if self._seen.get(group_id) != found:
            self._seen[group_id] = found
            self._edge.report(RetriesSeen, group_id, *found)


class Delays:
    """Observes one share-partition object: the releases that it receives, and the states that it reads."""

    def __init__(self, edge: Edge, share: Share, object_id: int, host: SharePartitionHost) -> None:
        self._edge = edge
        self._share = share
        self._object_id = object_id
        self._host = host
        self._read: Callable[[int], Any] = host._read
        vars(host).update(_read=self.read)

    async def read(self, generation: int) -> Any:
        """Replaces `SharePartitionHost._read`; records the event at the moment at which stored end times are converted
        to delays."""
        stored = await self._read(generation)
        host, clock = self._host, self._host._clock
        ahead_ms = clock.wall_ms() - WALL_START_MS - self._edge.now_ms()
        loaded = (host.log.epoch, generation, ahead_ms, host.config.delay_max_ms)
        self._edge.report(StateLoaded, self._share, self._object_id, *loaded)
        return stored

    def asked(self, request: int, member_id: str, batches: Sequence[AckBatch]) -> None:
        """Note acknowledgements that arrive."""
        if back := tuple(_taken_back(batches)):
            self._edge.report(TakeBackAsked, self._share, member_id, self._object_id, back)
        settings = self._host.config
        if not (settings.backoff.initial_ms or any(batch.delays for batch in batches)):
            return
        sent = tuple((first, last, tuple(types), delays) for first, last, types, delays, *_ in batches)
        if any(ACK_RELEASE in types for _, _, types, _ in sent):
            names = (self._share, self._host.core._state.state_epoch, member_id, self._object_id)
            self._edge.report(ReleaseAsked, request, *names, sent, backoff_of(settings))


def _taken_back(batches: Sequence[AckBatch]) -> Iterator[tuple[int, int]]:
    for first, last, _, _, undelivered, _ in batches:
        if undelivered == (True,):
            yield first, last
        else:
            yield from [(first + at, first + at) for at, said in enumerate(undelivered) if said]


def backoff_of(settings: GroupConfig) -> BackoffSeen:
    """Return a back-off in the form used in histories."""
    return BackoffSeen(*settings.backoff) if settings.backoff.initial_ms else BackoffSeen()
