"""Calls that their client resets leave no memory in use in a real server (CM-99)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import grpc
import pytest

from shard_runtime.rpc.grpc_server import GuardedServer
from share_node.process_memory.memory_checks import CLibrary
from tests.attack.http2 import Connection

pytestmark = pytest.mark.asyncio

CALLS = 4_000
#: grpcio leaked 96 bytes or more per reset call, in every round; other memory use varies by about 100,000 bytes.
LEFT_BYTES_MAX = 30
ROUNDS = 4


async def _echo(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def _unary(request: bytes, context: object) -> bytes:
    return request


def _reset(address: str, calls: int) -> None:
    with Connection(address) as connection:
        for number in range(calls):
            connection.reset(connection.call(("/t.T/Stream", "/t.T/Unary")[number % 2]))
            if number % 100 == 99:
                connection.pump(0.01)  # lets the server start them before they are reset
        connection.pump(0.2)


@pytest.mark.rule("CM-99")
async def test_calls_that_are_reset_leave_no_memory() -> None:
    server = GuardedServer((), 100_000)
    server.serve(
        "t.T",
        {"Stream": grpc.stream_stream_rpc_method_handler(_echo), "Unary": grpc.unary_unary_rpc_method_handler(_unary)},
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    library = CLibrary()

    async def settled() -> int:
        """Return the bytes in use once all calls have ended."""
        least = 1 << 62
        for _ in range(20):
            await asyncio.sleep(0.05)
            gc.collect()
            least = min(least, library.usage()[0])
        return least

    try:
        await asyncio.to_thread(_reset, address, CALLS)  # fills the memory that is kept for later calls
        left: list[float] = []
        while not left or (left[-1] >= LEFT_BYTES_MAX and len(left) < ROUNDS):
            before, accepted = await settled(), server.accepted
            await asyncio.to_thread(_reset, address, CALLS)
            calls = server.accepted - accepted
            assert calls > CALLS // 5, "the server did not even begin them"
            left.append((await settled() - before) / calls)
    finally:
        await server.stop(0)
    assert left[-1] < LEFT_BYTES_MAX, f"each round of calls left more: {left} bytes per call"
