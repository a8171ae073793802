"""A fake cluster whose leaders process produce requests at once, in order, and respond to each at a time set by the
test.

`pace` returns the seconds after which the response to the n-th request (from 1 on) is written, so that responses may
overtake each other. A negative value breaks the stream that many seconds after the request was processed, without a
response.
"""

from __future__ import annotations

import asyncio

from google.protobuf.descriptor import ServiceDescriptor

from kip932.api.v1 import produce_pb2
from shard_runtime.rpc.binding import ServerStream
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.leader import Leader

_PACE_S = 0.01


class PacedLeader(Leader):
    """One node's leader."""

    async def produce_stream(self, stream: ServerStream) -> None:
        fake = self.fake
        assert isinstance(fake, PacedCluster)
        broken, loop = asyncio.Event(), asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        async def answer(number: int, response: produce_pb2.ProduceResponse, pace_s: float) -> None:
            await asyncio.sleep(pace_s)
            await stream.write(produce_pb2.ProduceStreamResponse(correlation_id=number, response=response))

        async def read() -> None:
            while (message := await stream.read()) is not None:
                response = self._produce(message.request)
                fake.taken += 1
                pace_s = fake.pace.get(fake.taken, _PACE_S)
                if pace_s < 0:
                    loop.call_later(-pace_s, broken.set)
                else:
                    tasks.add(asyncio.create_task(answer(message.correlation_id, response, pace_s)))

        ends = {asyncio.create_task(read()), asyncio.create_task(broken.wait())}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, *tasks):
                task.cancel()


class PacedCluster(FakeCluster):
    """A fake cluster with paced leaders; see the module."""

    def __init__(self, nodes: int = 1) -> None:
        self.pace: dict[int, float] = {}
        self.taken = 0
        super().__init__(nodes)

    def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
        return [
            (service, PacedLeader(self, node) if isinstance(handler, Leader) else handler)
            for service, handler in super().services(node)
        ]
