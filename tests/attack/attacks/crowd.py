"""Many tasks in one client that repeat the same call until their time is up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError
from tests.support.dial import Dial

AT_ONCE: Final = 16

OneCall = Callable[[GrpcTransport], Awaitable[str]]


async def crowd(one: OneCall, seconds: float, dial: Dial, at_once: int = AT_ONCE) -> Counter[str]:
    """Repeat `one` in `at_once` tasks for `seconds`; count the words it returned.

    A call that raises TransportError counts as its gRPC status. Any other error from `one` ends all tasks.
    """
    counts, transport = Counter[str](), dial.transport()
    deadline = time.monotonic() + seconds

    async def worker() -> None:
        while time.monotonic() < deadline:
            try:
                counts[await one(transport)] += 1
            except TransportError as error:
                counts[error.status.value] += 1

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(at_once):
                workers.create_task(worker())
    finally:
        await transport.close()
    return counts


def summary(counts: Counter[str], most: int | None = None) -> str:
    """Return the counts as one line, most frequent first."""
    return ", ".join(f"{count} {word}" for word, count in counts.most_common(most))
