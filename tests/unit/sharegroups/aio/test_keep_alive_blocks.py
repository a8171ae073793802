"""Several keep_alive blocks for one record: nested ones, a lock lost in one of them, and an on_lost that raises."""

from __future__ import annotations

import asyncio
import sys

import pytest

from sharegroups.messages import Message
from sharegroups.producing.produced import encode
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.slow_answers import acknowledging_within
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce

_LOCK_MS = 3_000


def lose(fake: FakeCluster, message: Message) -> None:
    """Let the leader release the record's lock without notice."""
    fake.log("t").states["g"][message.offset()] = ("available", "", 1)


def raising(_: list[Message]) -> None:
    raise ValueError("of the application")


def reported_by_the_loop() -> list[str]:
    """From now on, collect the calls of the loop's exception handler."""
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(f"{context['message']}: {context['exception']}")
    )
    return reported


@on_fake_cluster(kind=acknowledging_within(0.05))
async def test_an_on_lost_that_raises_keeps_no_acknowledgement_from_being_sent(fake: FakeCluster) -> None:
    fake.lock_ms = _LOCK_MS
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        lost, other = await c.poll(5)
        reported = reported_by_the_loop()
        async with c.keep_alive(lost, raising):
            lose(fake, lost)
            await asyncio.sleep(_LOCK_MS / 3_000 + 0.02)  # the renewal is in flight
            c.acknowledge(other)
            assert list((await c.commit_sync(60)).values()) == [None]
        assert reported == ["on_lost of keep_alive for 1 records of t-0 raised an exception: of the application"]


@on_fake_cluster()
async def test_an_on_lost_that_raises_costs_no_other_record_its_lock(fake: FakeCluster) -> None:
    fake.lock_ms = _LOCK_MS
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (lost,) = await c.poll(5)
        reported = reported_by_the_loop()
        async with c.keep_alive(lost, raising):
            produce(fake)
            (other,) = await c.poll(5)
            async with c.keep_alive(other) as kept:
                lose(fake, lost)
                await asyncio.sleep(5 * _LOCK_MS / 1_000)
                assert len(reported) == 1
                assert not kept.lost
                assert fake.states("t")[other.offset()] == "acquired"


@on_fake_cluster()
async def test_a_record_is_kept_until_the_last_of_nested_blocks_ends(fake: FakeCluster) -> None:
    fake.lock_ms = _LOCK_MS
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        async with c.keep_alive(message) as outer:
            async with c.keep_alive(message):
                pass
            assert (await c.poll(0)).is_empty()
            await asyncio.sleep(3 * _LOCK_MS / 1_000)
            assert fake.states("t")[0] == "acquired"
            assert not outer.lost
        await asyncio.sleep(2 * _LOCK_MS / 1_000)
        assert fake.states("t")[0] == "available"


@on_fake_cluster()
async def test_all_nested_blocks_learn_of_a_lost_lock(fake: FakeCluster) -> None:
    fake.lock_ms = _LOCK_MS
    produce(fake)
    reported: list[str] = []
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        async with (
            c.keep_alive(message, lambda _: reported.append("outer")) as outer,
            c.keep_alive(message, lambda _: reported.append("inner")) as inner,
        ):
            lose(fake, message)
            await asyncio.sleep(_LOCK_MS / 2_000)
            assert (outer.lost, inner.lost, sorted(reported)) == (True, True, ["inner", "outer"])


@on_fake_cluster()
async def test_a_block_that_ends_after_its_loss_takes_the_record_from_no_other(fake: FakeCluster) -> None:
    fake.lock_ms = _LOCK_MS
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        before = c.keep_alive(message)
        before.begin()
        lose(fake, message)
        await asyncio.sleep(_LOCK_MS / 2_000)
        assert before.kept.lost
        async with c.keep_alive(message):
            before.end()
            before.end()
            assert (await c.poll(0)).is_empty()


@pytest.mark.parametrize("times", [1, 2])
@on_fake_cluster()
async def test_a_block_may_be_begun_and_ended_more_than_once(fake: FakeCluster, times: int) -> None:
    fake.lock_ms = _LOCK_MS
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        block = c.keep_alive(message)
        for _ in range(times):
            block.begin()
        block.end()
        await asyncio.sleep(2 * _LOCK_MS / 1_000)
        assert fake.states("t")[0] == "available"


@pytest.mark.rule("CL-148")
@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, asyncio.CancelledError])
@on_fake_cluster()
async def test_an_on_lost_that_would_end_the_loop_is_reported(fake: FakeCluster, kind: type[BaseException]) -> None:
    def ends(_: list[Message]) -> None:
        raise kind("of the application")

    fake.lock_ms = _LOCK_MS
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (lost,) = await c.poll(5)
        reported = reported_by_the_loop()
        async with c.keep_alive(lost, ends):
            lose(fake, lost)
            await asyncio.sleep(_LOCK_MS / 1_000)
    assert reported == ["on_lost of keep_alive for 1 records of t-0 raised an exception: of the application"]


@pytest.mark.rule("CL-148")
@pytest.mark.parametrize("part", ["key", "value"])
@on_fake_cluster()
async def test_a_deserializer_that_exits_fails_its_record_only(fake: FakeCluster, part: str) -> None:
    def exits(_: bytes) -> None:
        raise type("NoText", (SystemExit,), {"__str__": lambda _: sys.exit()})

    fake.log("t").append(encode([(b"k", b"v", (), 1000)])[0], 1)
    async with consumer(fake, **EXPLICIT, **{f"{part}.deserializer": exits}) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        error = message.error()
        assert error is not None
        assert f"the {part} deserializer failed: NoText: (its text cannot be read: SystemExit)" in error.message
        c.acknowledge(message)
