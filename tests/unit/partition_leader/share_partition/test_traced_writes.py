"""Which write of share-partition state belongs to a traced request, and to none."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.tracing import tracing
from tests.support.telemetry import telemetry

from .worlds import World, run, settle

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traces(world: World) -> list[object]:
    """Return the spans of all writes that changed records."""
    return [write.trace for write in world.persister.writes if write.batches or write.start_offset > 0]


@pytest.mark.rule("CM-216")
def test_a_write_belongs_to_the_request_that_caused_it_also_behind_another_write() -> None:
    async def scenario(world: World) -> None:
        await world.produce(6)
        member = world.member()
        assert await member.fetch(0).ranges() == [(0, 5, 1)]
        first, second = (tracing.begin(TRACEPARENT, f"s/{number}") for number in range(2))
        assert first is not None
        assert second is not None
        world.persister.hold("write")
        one = tracing.within(first, member.accept, 0, 0)
        await settle()
        two = tracing.within(second, member.accept, 1, 1)  # waits until the first write is over
        await settle()
        world.persister.let_go("write")
        assert [await one.ack_error(), await two.ack_error()] == [None, None]
        assert await member.accept(2, 2).ack_error() is None
        assert traces(world) == [first, second, None]

    with telemetry():
        tracing.refresh()
        run(scenario)
    tracing.refresh()


@pytest.mark.rule("CM-216")
def test_a_refused_acknowledgement_and_a_lock_that_expires_belong_to_no_trace() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        member = world.member()
        assert await member.fetch(0).ranges() == [(0, 1, 1)]
        span = tracing.begin(TRACEPARENT, "s/m")
        assert span is not None
        assert await tracing.within(span, member.accept, 7, 7).ack_error() is not None
        await asyncio.sleep(60)  # the locks expire, and that is written
        assert traces(world)
        assert set(traces(world)) == {None}
        assert tracing.current is None

    with telemetry():
        tracing.refresh()
        run(scenario)
    tracing.refresh()
