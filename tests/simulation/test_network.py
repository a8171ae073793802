"""The simulated network follows gRPC's contract, and its faults do what their descriptions say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from kip932.api.v1 import cluster_service_pb2, metadata_pb2, partition_leader_service_pb2, share_stream_pb2
from kip932.rpc.transport import ClientStream, TransportError, TransportStatus, service_methods
from tests.simulation import determinism
from tests.simulation.clock import Life, SimLoop, context_of, living
from tests.simulation.network import SimNetwork, SimTransport
from tests.simulation.points import CrashPoints, Point

CLUSTER = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
LEADER = partition_leader_service_pb2.DESCRIPTOR.services_by_name["PartitionLeaderService"]
METADATA: Any = service_methods(CLUSTER)["Metadata"]
STREAM: Any = service_methods(LEADER)["ShareStream"]


class Service:
    """Counts its requests, and responds after `busy_s`."""

    def __init__(self) -> None:
        self.asked = self.cancelled = 0
        self.busy_s = 0.0
        self.connections: list[str] = []
        self.got: list[int] = []
        self.five = asyncio.Event()

    async def metadata(self, request: Any, context: Any) -> metadata_pb2.MetadataResponse:
        self.asked += 1
        self.connections.append(context.connection_id)
        try:
            await asyncio.sleep(self.busy_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return metadata_pb2.MetadataResponse(cluster_id=str(self.asked))

    async def share_stream(self, stream: Any) -> None:
        try:
            while (request := await stream.read()) is not None:
                self.got.append(request.correlation_id)
                if len(self.got) == 5:
                    self.five.set()
                await stream.write(share_stream_pb2.ShareStreamResponse(correlation_id=request.correlation_id))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Net:
    """A network with one server `s` and one client `c`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        self.lives = {name: Life(loop, name, 1) for name in ("s", "c")}
        self.points = CrashPoints(loop, context_of(None), self.lives.get)
        self.network = SimNetwork(loop, self.points, Random(1))
        self.service = Service()
        self.serve()
        self.transport: SimTransport = self.network.transport(self.lives["c"])

    def serve(self) -> None:
        self.network.serve(self.lives["s"], "s:9000", CLUSTER, self.service)
        self.network.serve(self.lives["s"], "s:9000", LEADER, self.service)

    async def ask(self, timeout_s: float = 5.0) -> str:
        request = metadata_pb2.MetadataRequest()
        response = await self.transport.call("s:9000", METADATA, request, timeout_s)
        return str(response.cluster_id)

    async def fails(self, timeout_s: float = 5.0) -> TransportStatus:
        with pytest.raises(TransportError) as failed:
            await self.ask(timeout_s)
        return failed.value.status

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        with living(self.lives["c"]):
            return self.loop.create_task(work)


def simulated(test: Callable[[Net], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        await test(Net())

    def run() -> None:
        determinism.run(1, main)

    run.__name__ = test.__name__
    return run


def message(number: int) -> share_stream_pb2.ShareStreamRequest:
    return share_stream_pb2.ShareStreamRequest(correlation_id=number)


async def heard(stream: ClientStream[Any, Any]) -> int:
    answer = await stream.read()
    assert answer is not None
    return int(answer.correlation_id)


@simulated
async def test_a_call_takes_time_both_ways_and_keeps_its_connection(net: Net) -> None:
    assert await net.ask() == "1"
    assert 0.0002 <= net.loop.time() <= 0.004
    await net.ask()
    assert len(set(net.service.connections)) == 1


@simulated
async def test_a_call_that_times_out_cancels_its_handler(net: Net) -> None:
    net.service.busy_s = 60
    assert await net.fails(1.0) is TransportStatus.DEADLINE_EXCEEDED
    assert net.loop.time() == 1.0
    await asyncio.sleep(0.01)
    assert net.service.cancelled == 1


@simulated
async def test_a_cancelled_caller_cancels_its_handler(net: Net) -> None:
    net.service.busy_s = 60
    call = net.begin(net.ask())
    await asyncio.sleep(1)
    call.cancel()
    await asyncio.sleep(0.01)
    assert net.service.cancelled == 1


@simulated
async def test_a_killed_server_answers_no_caller_and_all_learn_it(net: Net) -> None:
    net.service.busy_s = 2
    call = net.begin(net.fails(30))
    await asyncio.sleep(1)
    net.lives["s"].die()
    net.network.gone(net.lives["s"], "killed")
    assert await call is TransportStatus.UNAVAILABLE
    assert net.loop.time() < 1.01
    assert await net.fails() is TransportStatus.UNAVAILABLE
    await asyncio.sleep(5)
    assert net.service.cancelled == 0, "no code of a killed process may run"


@simulated
async def test_a_restarted_server_is_reached_by_a_new_connection(net: Net) -> None:
    await net.ask()
    net.lives["s"].die()
    net.network.gone(net.lives["s"], "killed")
    net.lives["s"] = Life(net.loop, "s", 2)
    net.serve()
    await net.ask()
    assert len(set(net.service.connections)) == 2


@simulated
async def test_a_paused_server_answers_when_it_is_resumed(net: Net) -> None:
    net.lives["s"].pause()
    call = net.begin(net.ask(30))
    assert await net.fails(2.0) is TransportStatus.DEADLINE_EXCEEDED
    assert net.service.asked == 0
    await asyncio.sleep(0.01)
    net.lives["s"].resume()
    assert await call == "1", "the call that was given up is cancelled before it begins"


@simulated
async def test_a_paused_client_hears_its_answer_after_the_pause(net: Net) -> None:
    net.service.busy_s = 1
    call = net.begin(net.ask(30))
    await asyncio.sleep(0.5)
    net.lives["c"].pause()
    await asyncio.sleep(5)
    assert not call.done()
    net.lives["c"].resume()
    assert await call == "1"


@simulated
async def test_a_process_that_is_frozen_for_longer_than_keepalive_loses_its_connections(net: Net) -> None:
    net.network.keepalive_s = 3.0
    await net.ask()
    net.lives["s"].pause()
    net.network.unheard(net.lives["s"])
    call = net.begin(net.fails(60))
    assert await call is TransportStatus.UNAVAILABLE
    assert net.loop.time() < 3.1


@simulated
async def test_a_silent_cut_holds_messages_until_it_heals(net: Net) -> None:
    net.network.cut("c", "s")
    call = net.begin(net.ask(30))
    assert await net.fails(1.0) is TransportStatus.DEADLINE_EXCEEDED
    assert net.service.asked == 0
    net.network.heal("c", "s")
    assert await call in {"1", "2"}


@simulated
async def test_a_one_way_cut_lets_requests_through_and_no_answer(net: Net) -> None:
    net.network.cut("s", "c")
    assert await net.fails(1.0) is TransportStatus.DEADLINE_EXCEEDED
    assert net.service.asked == 1


@simulated
async def test_a_refused_way_fails_at_once_until_it_heals(net: Net) -> None:
    net.service.busy_s = 1
    call = net.begin(net.fails(30))
    await asyncio.sleep(0.5)
    net.network.cut("c", "s", refused=True)
    assert await call is TransportStatus.UNAVAILABLE
    assert await net.fails(30) is TransportStatus.UNAVAILABLE
    assert net.loop.time() < 0.6
    net.network.heal()
    assert await net.ask() == "2"


@simulated
async def test_lost_messages_are_seen_at_once_or_as_silence(net: Net) -> None:
    net.network.lose = 1.0
    seen = {await net.fails(1.0) for _ in range(20)}
    assert seen == {TransportStatus.UNAVAILABLE, TransportStatus.DEADLINE_EXCEEDED}
    assert net.service.asked == 0


@simulated
async def test_a_duplicate_is_served_twice_and_answered_once(net: Net) -> None:
    net.network.duplicate = 1.0
    await net.ask()
    await asyncio.sleep(1)
    assert net.service.asked == 2
    assert net.service.cancelled == 0


@simulated
async def test_a_stream_keeps_its_order(net: Net) -> None:
    net.network.delay_ms = (0.0, 500.0)
    stream = await net.transport.open_stream("s:9000", STREAM)
    for number in range(20):
        await stream.write(message(number))
    assert [await heard(stream) for _ in range(20)] == list(range(20))
    assert net.service.got == list(range(20))


@simulated
async def test_a_stream_keeps_its_order_over_a_cut(net: Net) -> None:
    stream = await net.transport.open_stream("s:9000", STREAM)
    for begin in range(0, 30, 10):
        net.network.cut("c", "s")
        for number in range(begin, begin + 5):
            await stream.write(message(number))
        await asyncio.sleep(0.5)
        net.network.heal("c", "s")
        for number in range(begin + 5, begin + 10):
            await stream.write(message(number))
    assert [await heard(stream) for _ in range(30)] == list(range(30))


@simulated
async def test_a_closed_stream_cancels_its_handler_when_the_news_arrive(net: Net) -> None:
    stream = await net.transport.open_stream("s:9000", STREAM)
    await stream.write(message(1))
    await stream.read()
    await stream.close()
    assert net.service.cancelled == 0
    await asyncio.sleep(0.01)
    assert net.service.cancelled == 1
    with pytest.raises(TransportError):
        await stream.write(message(2))


@simulated
async def test_a_broken_stream_is_seen_at_both_ends_and_the_next_one_has_another_connection(net: Net) -> None:
    stream = await net.transport.open_stream("s:9000", STREAM)
    await stream.write(message(1))
    await stream.read()
    net.network.break_streams(Random(1), 1.0)
    with pytest.raises(TransportError) as broken:
        await stream.read()
    assert broken.value.status is TransportStatus.UNAVAILABLE
    await asyncio.sleep(0)
    assert net.service.cancelled == 1
    again = await net.transport.open_stream("s:9000", STREAM)
    await again.write(message(2))
    assert await heard(again) == 2


@simulated
async def test_what_a_killed_server_had_sent_arrives_before_the_news_of_its_end(net: Net) -> None:
    net.network.delay_ms = (10.0, 50.0)
    stream = await net.transport.open_stream("s:9000", STREAM)
    for number in range(5):
        await stream.write(message(number))
    await net.service.five.wait()
    await asyncio.sleep(0)
    net.lives["s"].die()
    net.network.gone(net.lives["s"], "killed")
    assert [await heard(stream) for _ in range(5)] == list(range(5))
    with pytest.raises(TransportError):
        await stream.read()


@simulated
async def test_a_kill_before_an_answer_keeps_the_answer_back(net: Net) -> None:
    async def kill() -> None:
        net.lives["s"].die()
        net.network.gone(net.lives["s"], "killed")

    net.points.arm("s", Point.BEFORE_ANSWER, 2, kill)
    assert await net.ask() == "1"
    assert await net.fails() is TransportStatus.UNAVAILABLE
    assert net.service.asked == 2


@simulated
async def test_a_draining_server_takes_no_new_calls_and_ends_open_ones(net: Net) -> None:
    net.service.busy_s = 0.5
    call = net.begin(net.ask())
    await asyncio.sleep(0.1)
    net.network.refuse(net.lives["s"])
    assert net.network.busy(net.lives["s"])
    assert await net.fails() is TransportStatus.UNAVAILABLE
    assert await call == "1"
    assert not net.network.busy(net.lives["s"])
