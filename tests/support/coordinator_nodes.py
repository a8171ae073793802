"""Coordinator nodes for the persister's tests: the real service, and one with scripted responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from kip932.api.v1 import cluster_service_pb2
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorResponse
from kip932.ids import SharePartitionKey
from kip932.internal.v1 import share_coordinator_service_pb2 as service_pb
from kip932.internal.v1.state_stream_pb2 import StateStreamResponse
from kip932.internal.v1.write_share_group_state_pb2 import WriteShareGroupStateResponse
from kip932.state_batches import StateBatch
from kip932.state_values import WriteState
from share_persister import LocalCoordinator, PersisterClient, PersisterError, PersisterSettings
from tests.support.clocks import LoopClock
from tests.support.share_coordinators import SHARDS, CoordinatorProcess
from tests.support.share_state import TOPIC
from tests.support.virtual_time import now_s
from tests.twin.transport import InMemoryNetwork

STATE_SERVICE = service_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"]
CLUSTER_SERVICE = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]


def key(partition: int = 0, group: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group, TOPIC, partition)


FIRST: Final = key()


def change(
    *batches: tuple[int, int, int, int],
    start: int = 0,
    leader: int = 50_000,
    generation: int = 0,
    of: SharePartitionKey = FIRST,
) -> WriteState:
    return WriteState(of, 50_000, leader, generation, start, 0, tuple(StateBatch(*batch) for batch in batches))


async def failure_of(persister: PersisterClient, partition: int = 0) -> PersisterError:
    """Return the error with which a write fails."""
    with pytest.raises(PersisterError) as failure:
        await persister.write(change((0, 1, 2, 1), of=key(partition)))
    return failure.value


class Cluster:
    """Answers every FindCoordinator with the one address that a test sets."""

    def __init__(self, coordinator: str) -> None:
        self.coordinator = coordinator
        self.codes: list[int] = []
        self.asked: list[float] = []

    async def find_coordinator(self, request: Any, context: Any) -> FindCoordinatorResponse:
        self.asked.append(now_s())
        response = FindCoordinatorResponse()
        host, _, port = self.coordinator.partition(":")
        for name in request.coordinator_keys:
            code = self.codes.pop(0) if self.codes else 0
            response.coordinators.add(key=name, node_id=1, host=host, port=int(port), error_code=code)
        return response


#: The response to one attempt: an error code, or one of the words listed in `Scripted`.
Reply = int | str


class Scripted:
    """Answers writes and reads by script: each request gets the next reply; once none is left, requests succeed.

    `"hang"`: never answer; `"break"`: end the stream; `"empty"`: a response without results; `"other"`: results of
    other partitions; `"nothing"`: a message without a response.
    """

    def __init__(self, replies: list[Reply] | None = None, hint: str = "") -> None:
        self.replies: list[Reply] = replies or []
        self.hint = hint
        self.requests: list[Any] = []
        self.times: list[float] = []
        self.in_flight = self.most_in_flight = 0
        self.gate: asyncio.Event | None = None

    async def state_stream(self, stream: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            while (request := await stream.read()) is not None:
                self.requests.append(request)
                self.times.append(now_s())
                reply = self.replies.pop(0) if self.replies else 0
                if reply == "break":
                    return
                if reply != "hang":
                    tasks.create_task(self._answer(stream, request, reply))

    async def _answer(self, stream: Any, request: Any, reply: Reply) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if self.gate is not None:
            await self.gate.wait()
        self.in_flight -= 1
        answer = StateStreamResponse(correlation_id=request.correlation_id)
        if reply == "other":
            self._fill(answer, request, 0, shift=1)
        elif reply == "empty":
            answer.write.CopyFrom(WriteShareGroupStateResponse())
        elif isinstance(reply, int):
            self._fill(answer, request, reply)
        await stream.write(answer)

    def _fill(self, answer: Any, request: Any, code: int, shift: int = 0) -> None:
        kind = request.WhichOneof("request")
        for topic in getattr(request, kind).topics:
            results = getattr(answer, kind).results.add(topic_id=topic.topic_id)
            for partition in topic.partitions:
                result = results.partitions.add(partition=partition.partition + shift, error_code=code)
                if code == 16 and self.hint:
                    result.coordinator.host, port = self.hint.split(":")
                    result.coordinator.port = int(port)
                if code == 74:
                    result.leader_epoch = 9


class Net:
    """A network with a cluster node at `seed:1` and coordinators at addresses that a test chooses."""

    def __init__(self, coordinator: str = "one:1") -> None:
        self.network = InMemoryNetwork()
        self.cluster = Cluster(coordinator)
        self.network.serve("seed:1", CLUSTER_SERVICE, self.cluster)

    def scripted(self, *replies: Reply, address: str = "one:1", hint: str = "") -> Scripted:
        node = Scripted(list(replies), hint)
        self.network.serve(address, STATE_SERVICE, node)
        return node

    def real(self, address: str = "one:1") -> CoordinatorProcess:
        world = CoordinatorProcess()
        self.network.serve(address, STATE_SERVICE, world.service)
        return world

    def persister(
        self,
        *,
        nodes: tuple[str, ...] = ("seed:1",),
        resolve: Callable[[int], str | None] | None = None,
        local: LocalCoordinator | None = None,
        settings: PersisterSettings | None = None,
    ) -> PersisterClient:
        return PersisterClient(
            self.network.transport(),
            LoopClock(),
            Random(1),
            lambda: nodes,
            shards=SHARDS,
            resolve=resolve,
            local=local,
            settings=settings,
        )
