"""The produce requests in flight to one leader, and the stream that carries them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from kip932.api.v1.produce_pb2 import ProduceResponse, ProduceStreamRequest, ProduceStreamResponse
from kip932.ids import TopicIdPartition
from sharegroups import wire
from sharegroups.aio.cluster import Cluster
from sharegroups.aio.leader_stream import LeaderStream
from sharegroups.aio.silent_nodes import SILENCE_S


class LeaderRequests:
    """The requests to the leader `node_id`. Each of `tasks` sends one and waits for its answer; there are at most two
    (CL-130)."""

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self.node_id: Final = node_id
        self.tasks: set[asyncio.Task[None]] = set()
        #: When the last task began, ms of the loop's clock.
        self.began_ms = 0
        self._asked: list[list[TopicIdPartition]] = []
        self.link: Final[LeaderStream[ProduceStreamRequest, ProduceStreamResponse]] = LeaderStream(
            node_id, cluster, wire.PRODUCE_STREAM, lambda: self._asked
        )

    @property
    def way(self) -> tuple[int, int]:
        """How the next request reaches the leader: the node id, and the number of the stream to it, starting with 1."""
        return self.node_id, self.link.opened + (self.link.current is None)

    def begin(self, work: Coroutine[Any, Any, None], now_ms: int) -> None:
        """Run `work` as one of the tasks; it must call `ended` at its end."""
        self.began_ms = now_ms
        self.tasks.add(asyncio.create_task(work))

    def ended(self) -> None:
        """Remove the running task, which is about to end."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.discard(task)

    async def ask(
        self, message: ProduceStreamRequest, places: Iterable[TopicIdPartition], timeout_s: float
    ) -> ProduceResponse:
        """Send a request about these partitions and wait for its answer. The message's `correlation_id` is 0 until it
        is written to the stream. Raises TransportError."""

        def make(number: int) -> ProduceStreamRequest:
            message.correlation_id = number
            return message

        held = list(places)
        self._asked.append(held)
        try:
            stream = await self.link.open()
            return (await stream.request(make, timeout_s, SILENCE_S)).response
        finally:
            self._asked = [one for one in self._asked if one is not held]
