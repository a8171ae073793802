"""Checks from inside whether a server still accepts new clients, by calling its real port on a new connection.

Without this check, a server that accepts no clients would keep its leases for ever (CM-85). A busy event loop, a
stopped process and a suspended machine do not count as misses: a call's time-out is counted in turns of the event loop,
each at least TURN_S long, so anything that stops the loop also stops the count. Nor does it count as a miss when other
calls were accepted in the meantime, as in a flood of connections, or when this process has too few file descriptors for
the call.
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
#: File descriptors that a call to this server may need: both ends of its connection, and gRPC's own.
DESCRIPTORS_NEEDED: Final = 8
_CHECK: Final = "/grpc.health.v1.Health/Check"
_UNANSWERED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
#: Use a new connection for each call, and no proxy.
_NEWCOMER: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))

Probe = Callable[[], Awaitable[bool]]


class AcceptWatch:
    """Decides when to give up a server that does not answer: after `misses_max` misses in a row. It never waits."""

    def __init__(self, misses_max: int = MISSES_MAX) -> None:
        self._misses_max = misses_max
        self._misses = 0

    def seen(self, answered: bool, taken_meanwhile: bool) -> bool:
        """Note the outcome of a call to this server. Returns True when it has missed too many in a row."""
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
    """Call this server every `every_s`; return when it no longer accepts calls."""
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
    """Return a probe that requests the server's health; any answer counts. `host` may be the wildcard address."""
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
    """Return whether descriptors are left for both ends of a connection: with one, the call would be sent and never
    accepted."""
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(DESCRIPTORS_NEEDED):
                opened.enter_context(socket.socket())
        except OSError:
            return False
    return True
