"""A listener that accepts no more calls reports it, and one that is only slow does not (CM-85)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from grpc._cython import cygrpc

from kip932.api.v1 import cluster_service_pb2
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterRequest, DescribeClusterResponse
from shard_runtime.rpc import grpc_server
from shard_runtime.rpc.server import (
    ACCEPT_MISSES_MAX,
    ACCEPT_TURN_S,
    ACCEPT_TURNS,
    AcceptWatch,
    ListenError,
    RpcServer,
    accept_probe,
    watch_accepting,
)

from .descriptors import no_descriptor_left

CLUSTER = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
BOUND_S = 30


class Service:
    async def describe_cluster(self, _request: DescribeClusterRequest, _context: object) -> DescribeClusterResponse:
        return DescribeClusterResponse(cluster_id="c")


async def _started(failures: list[str]) -> RpcServer:
    server = RpcServer("127.0.0.1", failed=failures.append)
    server.add(CLUSTER, Service())
    await server.start()
    return server


async def _until(failures: list[str]) -> None:
    for _ in range(BOUND_S * 50):
        if failures:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the failure was not reported")


@pytest.mark.rule("CM-85")
def test_it_is_given_up_after_misses_in_a_row() -> None:
    decides = AcceptWatch(misses_max=3)
    missed, answered, busy = (False, False), (True, False), (False, True)
    seen = [decides.seen(*each) for each in (missed, missed, answered, missed, missed, busy, missed, missed, missed)]
    assert seen == [False] * 8 + [True]


@pytest.mark.rule("CM-85")
@pytest.mark.asyncio
async def test_an_accept_loop_that_ends_by_an_error_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Any, method: bytes | None) -> None:
        await asyncio.sleep(0.05)
        raise ValueError("upside down")

    monkeypatch.setattr(grpc_server._Accepting, "_accept", broken)
    failures: list[str] = []
    server = await _started(failures)
    await _until(failures)
    assert f"the listener at {server.address} takes no calls any more (ValueError: upside down)" in failures[0]
    await server.drain(0)


@pytest.mark.rule("CM-85")
@pytest.mark.asyncio
async def test_a_server_that_takes_no_calls_is_reported_though_nothing_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asleep(self: Any, method: bytes | None) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise cygrpc._RequestCallError from None

    monkeypatch.setattr(grpc_server._Accepting, "_accept", asleep)
    server = grpc_server.GuardedServer((), 10)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with asyncio.timeout(BOUND_S):
        await watch_accepting(
            accept_probe("127.0.0.1", port), lambda: server.accepted, every_s=0.01, turn_s=0.01, turns=20
        )


@pytest.mark.rule("CM-85")
@pytest.mark.asyncio
async def test_a_loop_that_stands_still_is_no_server_that_does() -> None:
    """The loop is blocked during each of the watch's calls."""
    failures: list[str] = []
    server = await _started(failures)
    calls = 0

    async def probe() -> bool:
        nonlocal calls
        calls += 1
        time.sleep(0.3)  # noqa: ASYNC251 - what is tested
        return await accept_probe("127.0.0.1", server.port)()

    watching = asyncio.ensure_future(
        watch_accepting(probe, lambda: 0, every_s=0.01, turn_s=0.1, turns=40, misses_max=1)
    )
    for _ in range(BOUND_S * 50):
        if calls >= 5 or watching.done():
            break
        await asyncio.sleep(0.02)
    assert calls >= 5
    assert not watching.done()
    watching.cancel()
    await server.drain(0)
    assert failures == []


@pytest.mark.rule("CM-85")
@pytest.mark.asyncio
async def test_too_few_descriptors_for_both_ends_of_a_call_are_no_miss() -> None:
    """With the one descriptor that a flood of connections left, the node could call itself, but not accept the call."""
    asked = 0

    async def probe() -> bool:
        nonlocal asked
        asked += 1
        return False

    with no_descriptor_left(spare=1):
        watching = asyncio.ensure_future(
            watch_accepting(probe, lambda: 0, every_s=0.01, turn_s=0.01, turns=1, misses_max=3)
        )
        await asyncio.sleep(0.5)
        assert (asked, watching.done()) == (0, False)
    await asyncio.wait_for(watching, BOUND_S)
    assert asked == 3


@pytest.mark.rule("CM-85")
@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
async def test_it_asks_through_the_real_port_as_a_newcomer(host: str) -> None:
    server = grpc_server.GuardedServer((), 10)
    port = server.add_insecure_port(f"[{host}]:0" if ":" in host else f"{host}:0")
    await server.start()
    for calls in (1, 2):
        assert await accept_probe(host, port)(), "UNIMPLEMENTED is an answer"
        assert server.accepted == calls
    await server.stop(0)
    assert not await accept_probe(host, port)()


@pytest.mark.rule("CM-84")
def test_a_grpcio_without_what_is_replaced_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_NEEDED", ("_handle_rpc", "_gone_tomorrow"))
    with pytest.raises(ListenError, match="has no _gone_tomorrow"):
        RpcServer("127.0.0.1")


def test_its_patience_outlasts_a_slow_machine() -> None:
    assert ACCEPT_TURN_S * ACCEPT_TURNS * ACCEPT_MISSES_MAX >= 30
