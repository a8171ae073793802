"""The edge: a proxy between a cluster and its share coordinator that can hold or refuse calls.

Leader, share coordinator and store are real. The share coordinator is a separate process that advertises the edge's
address (`internal.advertised.port`): nodes send their calls there, and the edge forwards them unless a test has ordered
a fault for the call's group.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kip932 import errors
from kip932.api.v1 import cluster_service_pb2
from kip932.internal.v1 import share_coordinator_service_pb2
from kip932.internal.v1.read_share_group_state_pb2 import ReadShareGroupStateRequest
from kip932.internal.v1.state_stream_pb2 import StateStreamResponse
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import Method, service_methods
from shard_runtime.rpc.binding import ServerStream, snake_case
from shard_runtime.rpc.server import RpcServer
from tests.integration.scenarios.wire import CALL_S, METHODS
from tests.support.node import QUICK, Cluster, StartedProcess
from tests.support.ports import free_port

_CLUSTER = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
_STATE = share_coordinator_service_pb2.DESCRIPTOR.services_by_name["ShareCoordinatorService"]
READ, WRITE = "ReadShareGroupState", "WriteShareGroupState"
#: The error message of calls that the edge refuses.
REFUSED = "refused at the edge of the test"
INITIALIZE, DELETE = "InitializeShareGroupState", "DeleteShareGroupState"

#: How long the leader retries a state write, in ms: longer than the shortest lock, which can thus expire meanwhile.
WRITING_MS = 3_000


class Held:
    """Calls that are held at the edge."""

    def __init__(self) -> None:
        #: Set when the first call is held.
        self.came = asyncio.Event()
        self._open = asyncio.Event()

    def let_go(self) -> None:
        """Let the calls proceed: they are forwarded to the coordinator, or refused."""
        self._open.set()

    async def wait(self) -> None:
        """Wait until the calls may proceed."""
        self.came.set()
        await self._open.wait()


class StateEdge:
    """Forwards calls to the share coordinator at `target`, subject to the faults of each group and RPC."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._transport = GrpcTransport()
        self._held: dict[tuple[str, str], Held] = {}
        #: The error code, and the only partition that gets it; None for all.
        self._codes: dict[tuple[str, str], tuple[int, int | None]] = {}
        self._came: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()
        for service in (_CLUSTER, _STATE):
            for name, method in service_methods(service).items():
                if not method.streaming:
                    setattr(self, snake_case(name), partial(self._unary, method))

    def refuse(self, group: str, code: int, rpc: str = WRITE, partition: int | None = None) -> None:
        """Return this error from now on, for every share-partition or only for those of one partition number; forward
        the others."""
        self._codes[rpc, group] = code, partition

    def repair(self, group: str, rpc: str = WRITE) -> None:
        """Stop refusing."""
        del self._codes[rpc, group]

    def hold(self, group: str, rpc: str = WRITE) -> Held:
        """Hold calls from now on."""
        held = self._held[rpc, group] = Held()
        return held

    def release(self, group: str, rpc: str = WRITE) -> None:
        """Let held calls proceed, and hold no more."""
        self._held.pop((rpc, group)).let_go()

    def writes(self, group: str) -> int:
        """The number of WriteShareGroupState requests received, refused ones included."""
        return self._came[WRITE, group]

    def refused(self, group: str, rpc: str = WRITE) -> int:
        """The number of requests that were refused in whole or in part."""
        return self._refused[rpc, group]

    async def close(self) -> None:
        await self._transport.close()

    async def state_stream(self, stream: ServerStream) -> None:
        """Handle each request of the stream like the equivalent unary call."""
        async with asyncio.TaskGroup() as tasks:
            while (message := await stream.read()) is not None:
                tasks.create_task(self._streamed(stream, message))

    async def _streamed(self, stream: ServerStream, message: Any) -> None:
        kind = message.WhichOneof("request")
        answer = StateStreamResponse(correlation_id=message.correlation_id)
        passed = await self._pass(METHODS[WRITE if kind == "write" else READ], getattr(message, kind))
        getattr(answer, kind).CopyFrom(passed)
        await stream.write(answer)

    async def _unary(self, method: Method[Any, Any], request: Any, _context: object) -> Any:
        return await self._pass(method, request)

    async def _pass(self, method: Method[Any, Any], request: Any) -> Any:
        fault = method.name, getattr(request, "group_id", "")
        self._came[fault] += 1
        if fault in self._held:
            await self._held[fault].wait()
        if fault not in self._codes:
            return await self._transport.call(self._target, method, request, CALL_S)
        answer, left = _refusal(method, request, *self._codes[fault])
        self._refused[fault] += bool(answer.results)
        if left.topics:
            passed = await self._transport.call(self._target, method, left, CALL_S)
            answer.results.extend(passed.results)
        return answer


def _refusal(method: Method[Any, Any], request: Any, code: int, only: int | None) -> tuple[Any, Any]:
    # The refused part of the response, and the part of the request to forward.
    answer, left = method.response_type(), type(request)()
    left.CopyFrom(request)
    del left.topics[:]
    for topic in request.topics:
        refused = [one for one in topic.partitions if only in (None, one.partition)]
        others = [one for one in topic.partitions if only not in (None, one.partition)]
        if refused:
            results = answer.results.add(topic_id=topic.topic_id).partitions
            for one in refused:
                result = results.add(partition=one.partition, error_code=code, error_message=REFUSED)
                if isinstance(request, ReadShareGroupStateRequest) and code == errors.FencedLeaderEpochError.code:
                    # As after a read by a newer object of the same leader: the caller still leads (SC-29a).
                    result.leader_epoch = one.leader_epoch
        if others:
            left.topics.add(topic_id=topic.topic_id).partitions.extend(others)
    return answer, left


@asynccontextmanager
async def cluster_with_an_edge(
    *options: str, roles: str = "group_coordinator,partition_leader"
) -> AsyncIterator[tuple[Cluster, StateEdge]]:
    """A node that coordinates groups and leads partitions, or has other roles, and a share coordinator beyond the
    edge."""
    port = free_port()
    edge = StateEdge(f"127.0.0.1:{port}")
    server = RpcServer("127.0.0.1")
    for service in (_CLUSTER, _STATE):
        server.add(service, edge)
    profile = {**QUICK, "persister.operation.timeout.ms": str(WRITING_MS)}
    with Cluster({**profile, "node.roles": roles}, *options) as cluster:
        own = {
            **profile,
            "node.name": "state",
            "listen.port": "0",
            "internal.listen.port": str(port),
            "internal.advertised.port": str(await server.start()),
            "store.url": cluster.store_url,
            "store.fsync.always": "true",
        }
        words = ["share_node", "serve", "share_coordinator", *(f"{name}={value}" for name, value in own.items())]
        coordinator = StartedProcess(words, cluster.folder)
        try:
            assert coordinator.first_line().startswith("ready")
            yield cluster, edge
        finally:
            await server.drain(1.0, 0.0)
            await edge.close()
            coordinator.stop()
