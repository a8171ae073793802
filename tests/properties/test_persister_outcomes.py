"""PL-707 as a law: a write that succeeded is stored; one with a known failure was never applied, nor will it be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932 import errors
from kip932.rpc.transport import ClientStream, Method, TransportError, TransportStatus
from kip932.state_values import WriteState
from share_coordinator.core.commands import CommandBatch
from share_persister import PersisterClient, PersisterError, PersisterSettings
from tests.support.clocks import LoopClock
from tests.support.coordinator_nodes import Net, change, key
from tests.support.share_coordinators import SHARDS, CoordinatorProcess, Host
from tests.support.virtual_time import run

#: What happens to one request: no fault, request lost, reply lost, delivered after its stream broke, never answered, or
#: refused by the host.
_FAULT = st.sampled_from(["none", "none", "lose_request", "lose_reply", "late", "hang", "load", "moved", "fenced"])
_REFUSALS: dict[str, type[errors.KafkaError]] = {
    "load": errors.CoordinatorLoadInProgressError,
    "moved": errors.NotCoordinatorError,
    "fenced": errors.FencedStateEpochError,
}


class LossyStream:
    """A stream that applies the next fault to each request."""

    def __init__(self, inner: ClientStream[Any, Any], owner: LossyTransport) -> None:
        self._inner = inner
        self._owner = owner
        self._broken = asyncio.Event()
        self._mute = False

    async def write(self, message: Any) -> None:
        if self._broken.is_set():
            raise self._gone()
        fault = next(self._owner.faults, "none")
        for host in self._owner.world.directory.hosts:
            host.refusal = _REFUSALS[fault]() if fault in _REFUSALS else None
        self._mute |= fault == "hang"
        if fault == "late":
            self._owner.later(self._inner.write(message))
        elif fault != "lose_request":
            await self._inner.write(message)
            await asyncio.sleep(0.001)  # long enough for the host to have decided
        if fault in {"lose_request", "lose_reply", "late"}:
            self._broken.set()

    async def read(self) -> Any:
        broken = asyncio.ensure_future(self._broken.wait())
        reading = asyncio.ensure_future(self._inner.read())
        try:
            await asyncio.wait({broken, *(() if self._mute else (reading,))}, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.is_set():
                raise self._gone()
            if self._mute:
                await self._broken.wait()
            return reading.result()
        finally:
            broken.cancel()
            reading.cancel()

    async def close(self) -> None:
        self._broken.set()

    def _gone(self) -> TransportError:
        return TransportError(TransportStatus.UNAVAILABLE, "one:1", "cut")


class LossyTransport:
    """The in-memory transport with faults on its streams; its unary calls have none."""

    def __init__(self, net: Net, world: CoordinatorProcess, faults: Iterator[str]) -> None:
        self.world = world
        self.faults = faults
        self._inner = net.network.transport()
        self._late: set[asyncio.Task[None]] = set()

    def later(self, delivery: Any) -> None:
        """Deliver 3 s from now."""

        async def deliver() -> None:
            await asyncio.sleep(3)
            for host in self.world.directory.hosts:
                host.refusal = None
            await delivery

        self._late.add(asyncio.get_running_loop().create_task(deliver()))

    async def call(self, address: str, method: Method[Any, Any], request: Any, timeout_s: float) -> Any:
        return await self._inner.call(address, method, request, timeout_s)

    async def open_stream(self, address: str, method: Method[Any, Any]) -> Any:
        return LossyStream(await self._inner.open_stream(address, method), self)

    async def close(self) -> None:
        await asyncio.gather(*self._late)
        await self._inner.close()


def _applied(hosts: list[Host]) -> set[int]:
    """Return the start offsets of all writes that reached a shard; each write in the test has a different one."""
    found = set()
    for host in hosts:
        for command in host.commands:
            parts = command.commands if isinstance(command, CommandBatch) else (command,)
            found |= {part.start_offset for part in parts if isinstance(part, WriteState)}
    return found


@pytest.mark.rule("PL-707", "PL-721", "PL-722", "PL-723")
@settings(max_examples=150)
@given(st.lists(_FAULT, max_size=12), st.integers(1, 6), st.integers(1, 4))
def test_what_is_said_of_a_write_is_true(faults: list[str], writes: int, attempts: int) -> None:
    async def main() -> None:
        net = Net()
        world = net.real()
        transport = LossyTransport(net, world, iter(faults))
        persister = PersisterClient(
            transport,
            LoopClock(),
            Random(5),
            lambda: ("seed:1",),
            shards=SHARDS,
            settings=PersisterSettings(attempts=attempts),
        )
        await persister.initialize("g", 0, {key(0).topic_partition: 0, key(1).topic_partition: 0})

        async def write(number: int) -> PersisterError | None:
            try:
                await persister.write(change(start=number, of=key(number % 2)))
            except PersisterError as failure:
                return failure
            return None

        outcomes = await asyncio.gather(*(write(number) for number in range(1, writes + 1)))
        await transport.close()
        applied = _applied(world.directory.hosts)
        for number, failure in enumerate(outcomes, start=1):
            if failure is None:
                assert number in applied
            elif not failure.outcome_unknown:
                assert number not in applied
        await persister.close()

    run(main())
