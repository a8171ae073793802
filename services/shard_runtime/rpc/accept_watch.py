"""Whether a server still takes calls of newcomers, seen from inside: a call on a new connection through the real port.

A server that accepts nobody would otherwise keep its leases for ever (CM-85). An event loop that was busy, a process
that stood still and a machine that was suspended are no misses: a call's patience is counted in turns of the event
loop, each at least TURN_S long, so whatever stops the loop stops the count. Nor is it a miss when other calls were
taken meanwhile, as amid a flood of connections, or when this process has too few file descriptors left to ask with.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import grpc
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]  # it ships no types

EVERY_S: Final = 2.0
TURN_S: Final = 0.1
TURNS: Final = 100
MISSES_MAX: Final = 3
#: File descriptors that a call to ourselves may need: both ends of its connection, and what gRPC opens beside them.
DESCRIPTORS_NEEDED: Final = 8
_CHECK: Final = "/grpc.health.v1.Health/Check"
_UNANSWERED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
#: A connection of its own for each call, and never by way of a proxy.
_NEWCOMER: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))

Probe = Callable[[], Awaitable[bool]]


class AcceptWatch:
    """Decides when a server that does not answer is given up: after so many misses in a row. Never waits."""

    def __init__(self, misses_max: int = MISSES_MAX) -> None:
        self._misses_max = misses_max
        self._misses = 0

    def seen(self, answered: bool, taken_meanwhile: bool) -> bool:
        """The outcome of a call to ourselves; whether that was one miss too many."""
        self._misses = 0 if answered or taken_meanwhile else self._misses + 1
        return self._misses >= self._misses_max


async def watch(
    probe: Probe,
    accepted: Callable[[], int],
    *,
    every_s: float = EVERY_S,
    turn_s: float = TURN_S,
    turns: int = TURNS,
    misses_max: int = MISSES_MAX,
) -> None:
    """Call ourselves again and again; returns when the server takes no calls any more."""
    decides = AcceptWatch(misses_max)
    while True:
        await asyncio.sleep(every_s)
        if not _can_ask():
            continue
        before = accepted()
        answered = await _patiently(probe, turn_s, turns)
        if decides.seen(answered, accepted() > before):
            return


def call_ourselves(host: str, port: int) -> Probe:
    """Asks the server at `host`, which may stand for all addresses of the machine, how it is; any answer is one."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    target = f"[{near}]:{port}" if ":" in near else f"{near}:{port}"
    request = health_pb2.HealthCheckRequest(service="liveness").SerializeToString()

    async def probe() -> bool:
        async with grpc.aio.insecure_channel(target, options=_NEWCOMER) as channel:
            try:
                await channel.unary_unary(_CHECK)(request)
            except grpc.aio.AioRpcError as error:
                return error.code() not in _UNANSWERED
            return True

    return probe


async def _patiently(probe: Probe, turn_s: float, turns: int) -> bool:
    call = asyncio.ensure_future(probe())
    try:
        for _ in range(turns):
            await asyncio.wait({call}, timeout=turn_s)
            if call.done():
                return call.result()
        return False
    finally:
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call


def _can_ask() -> bool:
    """Whether descriptors are left for both ends: with only one, we would ask, and could not accept ourselves."""
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(DESCRIPTORS_NEEDED):
                opened.enter_context(socket.socket())
        except OSError:
            return False
    return True
