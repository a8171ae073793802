"""No time limit on the client's side ends later than the server's, even if messages are late, refused, repeated or lost
(CL-152).

Each run is drawn from a seed and takes place on virtual time, against a fake cluster that keeps the servers' clocks
(`tests/support/fake_cluster/uncertain.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import pairwise
from random import Random

import pytest

from kip932.errors import KafkaError, RequestTimedOutError
from sharegroups.aio import Producer
from sharegroups.aio.consumer import KeepAlive
from sharegroups.consuming.lock_renewals import Kept
from sharegroups.messages import AcknowledgeType, Message, delivered_of
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, play, produce
from tests.support.fake_cluster.uncertain import Chances, UncertainCluster
from tests.support.virtual_time import now_s

#: Differences that come only from rounding the clock, in seconds.
_TICK_S = 0.0011
FEW = range(8)
STEADY = Chances(lost=0.03, not_held=0.15)
CHANGING = Chances(lost=0.03, not_held=0.15, lock_changed=0.1, locks_ms=(1_500, 4_000, 6_000, 20_000))


def _each_seed(
    story: Callable[[UncertainCluster, Random], Awaitable[None]], chances: Chances, seeds: Iterable[int] = range(20)
) -> None:
    async def one(fake: FakeCluster, seed: int) -> None:
        assert isinstance(fake, UncertainCluster)
        fake.rng, fake.chances = Random(seed), chances
        try:
            await story(fake, fake.rng)
        except AssertionError as error:
            error.add_note(f"seed {seed}, at {now_s():.3f} s")
            raise

    for seed in seeds:
        play(partial(one, seed=seed), kind=UncertainCluster)


def _produce_some(fake: FakeCluster, rng: Random, most: int) -> None:
    if count := rng.randint(0, most):
        produce(fake, count)


@pytest.mark.rule("CL-82", "CL-94", "CL-96", "CL-152")
@pytest.mark.parametrize("chances", [STEADY, CHANGING], ids=["one lock", "a lock that is changed"])
def test_no_lock_is_believed_for_longer_than_the_leader_keeps_it(chances: Chances) -> None:
    """When a lock ends at the leader, the client reports it as lost; its warnings measure the lock from no later than
    the leader does."""
    believed = 0

    async def story(fake: UncertainCluster, rng: Random) -> None:
        nonlocal believed
        fake.lock_ms = 6_000
        produce(fake, 5)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            messages = list(await c.poll(30))
            blocks: list[KeepAlive] = []
            for _ in range(600):
                here = [one for one in messages if delivered_of(one).delivery.in_flight(one.offset())]
                if rng.random() < 0.03 and here:
                    blocks.append(c.keep_alive(rng.sample(here, rng.randint(1, len(here)))))
                    blocks[-1].begin()
                elif rng.random() < 0.01 and blocks:
                    blocks.pop(rng.randrange(len(blocks))).end()
                elif rng.random() < 0.003 and here:
                    c.acknowledge(rng.choice(here))
                    c.commit_async()
                await asyncio.sleep(0.05)
                for block in blocks:
                    for message in block.kept.messages:
                        believed += _believes_no_longer_than_the_leader(fake, block.kept, message)

    _each_seed(story, chances)
    assert believed > 3_000


def _believes_no_longer_than_the_leader(fake: UncertainCluster, kept: Kept, message: Message) -> bool:
    part, offset = delivered_of(message), message.offset()
    if kept.is_lost(message) or not part.delivery.in_flight(offset):
        return False
    ends_s = fake.held_until_s((part.id_partition, "g", offset))
    clock, kept._clock = kept._clock, lambda: ends_s + _TICK_S
    try:
        assert kept.is_lost(message), f"offset {offset}, locked until {ends_s:.3f}"
    finally:
        kept._clock = clock
    return True


@pytest.mark.rule("CL-82", "CL-83", "CL-27", "CL-152")
@pytest.mark.parametrize("chances", [STEADY, CHANGING], ids=["one lock", "a lock that is changed"])
def test_what_poll_returns_is_locked_and_no_later_than_the_client_says(chances: Chances) -> None:
    """Covers fetched records, renewed ones, and those that stayed in the buffer between polls."""
    returned = renewed = 0

    async def story(fake: UncertainCluster, rng: Random) -> None:
        nonlocal returned, renewed
        fake.lock_ms = 6_000
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            for _ in range(60):
                _produce_some(fake, rng, 2)
                messages = list(await c.poll(rng.choice((0.0, 0.2, 3.0))))
                start = fake.log("t").start("g")
                for message in messages:
                    part, offset = delivered_of(message), message.offset()
                    kinds = (AcknowledgeType.RENEW, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE)
                    c.acknowledge(message, rng.choice(kinds))
                    if offset < start:
                        continue  # meanwhile archived; a late acknowledgement then succeeds (PL-404)
                    ends_s = fake.held_until_s((part.id_partition, "g", offset))
                    assert now_s() < ends_s + _TICK_S, f"offset {offset} is handed out, locked until {ends_s:.3f}"
                    assert (part.acquired_ms + part.lock_ms) / 1000 <= ends_s + _TICK_S, f"offset {offset}"
                    returned, renewed = returned + 1, renewed + part.was_renewed
                await asyncio.sleep(rng.choice((0.0, 0.1, 1.0, 5.0)))

    _each_seed(story, chances)
    assert returned > 500
    assert renewed > 100


@pytest.mark.rule("CL-18", "CL-86", "CL-152")
@pytest.mark.parametrize(
    "chances",
    [Chances(late_s=25.0), Chances(late_s=25.0, lost=0.1), Chances(late_s=20.0, no_room=0.2)],
    ids=["late", "lost", "wishes"],
)
def test_no_member_is_silent_for_as_long_as_its_session_lasts(chances: Chances) -> None:
    """Holds as long as the coordinator accepts its heartbeats, however late the responses are and whatever they ask
    for."""
    heartbeats = 0

    async def story(fake: UncertainCluster, rng: Random) -> None:
        nonlocal heartbeats
        fake.chances = Chances(late=0.0)
        async with consumer(fake, **{"fetch.max.wait.ms": 5_000}) as c:
            c.subscribe(["t"])
            await c.poll(3)
            fake.chances = chances
            until_s = now_s() + 300
            while now_s() < until_s:
                _produce_some(fake, rng, 1)
                await c.poll(5)
            heartbeats += len(fake.heartbeats)
            sent = [*fake.beaten, now_s()]
            assert max(later - sooner for sooner, later in pairwise(sent)) < 45
            if not chances.no_room:
                assert max(b - a for a, b in pairwise(fake.taken)) < 45
            fake.chances = Chances(late=0.0)

    _each_seed(story, chances, FEW)
    assert heartbeats > 100


@pytest.mark.rule("CL-86", "CL-152")
def test_no_node_is_asked_for_anything_before_the_time_it_asked_for_is_over() -> None:
    """The node measures this time from its response; only requests that keep locks and sessions alive are sent
    anyway."""
    asked = 0

    async def story(fake: UncertainCluster, rng: Random) -> None:
        nonlocal asked
        async with consumer(fake) as c:
            c.subscribe(["t"])
            while now_s() < 120:
                _produce_some(fake, rng, 2)
                await c.poll(rng.choice((0.5, 3.0)))
                await asyncio.sleep(rng.choice((0.0, 1.0)))
            asked += len(fake.fetches) + len(fake.heartbeats)
            assert [what for what, left_s in fake.pushed if what in {"fetch", "heartbeat"}] == []
            fake.chances = Chances(late=0.0)

    _each_seed(story, Chances(late_s=1.5, no_room=0.1, wish_s=12.0), FEW)
    assert asked > 400


@pytest.mark.rule("CM-43", "CL-152")
def test_a_record_is_given_up_when_its_time_is_over_and_is_not_sent_after_that() -> None:
    """delivery.timeout.ms is measured from the call, whatever was tried since."""
    timed_out = 0

    async def story(fake: UncertainCluster, rng: Random) -> None:
        nonlocal timed_out
        settings = {"delivery.timeout.ms": 8_000, "request.timeout.ms": 3_000, "batch.num.records": 1}
        began: dict[str, float] = {}
        over: dict[str, tuple[float, KafkaError | None]] = {}
        async with Producer({"bootstrap.servers": fake.bootstrap} | settings, transport=fake.transport()) as p:

            def done(name: str, error: KafkaError | None, _: object) -> None:
                over[name] = (now_s(), error)

            for number in range(40):
                name = f"{number:03}"
                began[name] = now_s()
                await p.produce("t", name, on_delivery=partial(done, name))
                if rng.random() < 0.2:
                    fake.errors["produce"].extend([rng.choice((5, 6, 19, 56))] * rng.randint(1, 60))
                if rng.random() < 0.1:
                    fake.errors["produce_stream"].extend([1] * rng.randint(1, 4))
                await asyncio.sleep(rng.choice((0.0, 0.3, 2.0)))
            await asyncio.sleep(20)
            sent = len(fake.produces)
            for name, (at_s, error) in over.items():
                assert at_s - began[name] <= 8 + 3 + 1.1, f"{name} ends after {at_s - began[name]:.3f} s"
                if isinstance(error, RequestTimedOutError):
                    timed_out += 1
                    assert at_s - began[name] >= 8 - 1 - _TICK_S, f"{name} is given up after {at_s - began[name]:.3f} s"
            assert over.keys() == began.keys()
            assert len(fake.produces) == sent

    _each_seed(story, Chances(late=0.0))
    assert timed_out > 20


@pytest.mark.rule("CL-24", "CL-28", "CL-34", "CL-152")
def test_commit_sync_and_close_end_in_their_time_and_nothing_is_sent_for_what_has_timed_out() -> None:
    timed_out = 0

    async def story(fake: UncertainCluster, rng: Random) -> None:
        nonlocal timed_out
        c = consumer(fake, **EXPLICIT)
        c.subscribe(["t"])
        for _ in range(6):
            produce(fake, 2)
            for message in await c.poll(10):
                c.acknowledge(message)
            time_s, began_s = rng.choice((0.5, 2.0, 6.0)), now_s()
            results = await c.commit_sync(time_s)
            assert now_s() - began_s <= time_s + _TICK_S
            if any(isinstance(error, RequestTimedOutError) for error in results.values()):
                timed_out += 1
        time_s, began_s = rng.choice((0.5, 2.0)), now_s()
        await c.close(time_s)
        assert now_s() - began_s <= time_s + 0.05 + _TICK_S
        sent = len(fake.acknowledges), len(fake.fetches), len(fake.heartbeats)
        await asyncio.sleep(100)
        assert (len(fake.acknowledges), len(fake.fetches), len(fake.heartbeats)) == sent

    _each_seed(story, Chances(late_s=4.0, lost=0.1, no_room=0.15, wish_s=8.0), FEW)
    assert timed_out > 5
