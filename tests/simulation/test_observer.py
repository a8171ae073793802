"""What the observers, the sampler and the final collection record in a run of a small cluster."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from shard_runtime.ownership.placement import ROLES
from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer, ShareConsumer
from tests.simulation import determinism
from tests.simulation.checkers.catalogue import judged
from tests.simulation.collect_final import collect_final
from tests.simulation.coordinator_events import TargetComputed
from tests.simulation.final import Final
from tests.simulation.history import (
    AckAnswered,
    Acquired,
    GroupSeen,
    HeartbeatAnswered,
    History,
    LimitsSeen,
    ProduceSent,
    SessionAnswered,
    SessionAsked,
    SessionEnded,
    SizesSeen,
    StateAnswered,
    StateSeen,
)
from tests.simulation.leader_events import AckDone, GivenBack, Locked, ObjectDropped, ObjectMade, StartResolved
from tests.simulation.observer import Observer
from tests.simulation.sampler import sampled
from tests.simulation.workload.by_hand import HandSession, heartbeat
from tests.simulation.workload.configs import alter
from tests.simulation.workload.witness import Witness
from tests.simulation.world import ProcessShape, Shape, World

RECORDS = 12
LOCK_S = 30
HEADERS = (("h", b""), ("h", None))


async def _run(world: World) -> Final:
    """Produce twelve records; a member accepts some and dies; a hand-written session fetches the rest and uses a wrong
    epoch."""
    world.observer = Observer(world)
    await world.open()
    for each in world.shape.processes:
        await world.start(each.name)
    await world.settled()
    async with sampled(world, 0.25):
        world.begin("work")
        async with Admin({"bootstrap.servers": world.bootstrap()}, transport=world.transport("admin")) as admin:
            await admin.create_topics([NewTopic("jobs", 1)])
        producer = Producer({"bootstrap.servers": world.bootstrap()}, transport=world.transport("p"))
        for number in range(RECORDS):
            Witness(world, "p").saw(ProduceSent, "jobs", b"%d" % number, None, HEADERS)
            await producer.send("jobs", b"%d" % number, headers=[*HEADERS])
        await producer.close()
        await _consume(world)
        await _by_hand(world)
        world.begin("rest")
        await asyncio.sleep(6)
    return await collect_final(world)


async def _consume(world: World) -> None:
    settings = {"bootstrap.servers": world.bootstrap(), "group.id": "g", "max.poll.records": 5}
    with world.client("c"):
        consumer = ShareConsumer(settings, transport=world.transport("c"))
        consumer.subscribe(["jobs"])
        while not await consumer.poll(1.0):
            pass
        await consumer.commit_sync()
        await consumer.poll(0.2)
        await asyncio.sleep(0.5)
    await world.kill_client("c")


async def _by_hand(world: World) -> None:
    (partition,) = {key for process in world.processes.values() for key in process.led}
    (leader,) = [process for process in world.processes.values() if process.led]
    session = HandSession(world.transport("h"), leader.address, "g", "hand", streaming=True)
    await session.fetch([(partition.topic_id, partition.partition)], wait_ms=3_000, records=100)
    response = await session.acknowledge({}, epoch=9)
    assert response.error_code == 123
    session.epoch = 1
    await session.drop()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(Shape((ProcessShape("a", ROLES),)), id="all in one process"),
        pytest.param(
            Shape(tuple(ProcessShape(role, frozenset({role})) for role in sorted(ROLES))), id="each role by itself"
        ),
    ],
)
def seen(request: pytest.FixtureRequest) -> tuple[History, Final]:
    """Return the run's history and final state; once with state calls within a process, once between processes."""

    async def main() -> tuple[History, Final]:
        world = World(5, request.param)
        final = await asyncio.wait_for(_run(world), 200)
        assert world.complaints == []
        return world.history, final

    return determinism.run(5, main)


def test_what_was_locked_was_answered_as_acquired(seen: tuple[History, Final]) -> None:
    history, _ = seen
    locked = [(e.request, e.share, e.first_offset, e.last_offset, e.delivery_count) for e in history.of(Locked)]
    given = [(e.request, e.share, e.first_offset, e.last_offset, e.delivery_count) for e in history.of(Acquired)]
    assert locked == given
    assert all(e.locked_ms <= e.at_ms and e.start_offset <= e.first_offset for e in history.of(Acquired))
    assert all(e.first_offset >= e.data[0][0] and e.last_offset <= e.data[-1][1] for e in history.of(Acquired))
    assert len({e.object_id for e in history.of(Locked)}) >= 1


def test_acknowledgements_are_asked_done_and_answered_in_this_order(seen: tuple[History, Final]) -> None:
    history, _ = seen
    (done,) = history.of(AckDone)
    (answered,) = history.of(AckAnswered)
    asked = next(event for event in history.of(SessionAsked) if event.acks)
    order = [history.events.index(event) for event in (asked, done, answered)]
    assert order == sorted(order)
    assert (done.code, answered.code, done.persisted, done.start_offset) == (0, 0, True, 0)
    assert done.begun <= history.events.index(done)
    assert (done.share, done.member_id) == (answered.share, asked.member_id)


def test_sessions_begin_go_on_and_end(seen: tuple[History, Final]) -> None:
    history, _ = seen
    hand = [event for event in history.of(SessionAsked) if event.member_id == "hand"]
    assert [(event.session_epoch, event.accepted > 0, event.code) for event in hand] == [(0, True, 0), (9, False, 123)]
    assert {event.member_id for event in history.of(SessionEnded)} >= {"hand"}
    assert {event.member_id for event in history.of(GivenBack)} >= {"hand"}
    codes = Counter(event.code for event in history.of(SessionAnswered))
    assert codes[123] == 1


def test_state_calls_and_heartbeats_of_every_way_are_seen(seen: tuple[History, Final]) -> None:
    history, _ = seen
    calls = Counter(event.call for event in history.of(StateAnswered) if event.code == 0)
    assert {"Initialize", "Read", "Write"} <= calls.keys()
    reads = {(event.share, event.leader_epoch, event.generation) for event in history.of(StateAnswered)}
    assert {(event.share, event.leader_epoch, event.generation) for event in history.of(Locked)} <= reads
    beats = list(history.of(HeartbeatAnswered))
    assert beats[0].sent_epoch == 0
    assert beats[0].member_epoch > 0
    assert any(event.assignment for event in beats)


def test_objects_are_seen_from_their_making_on_with_their_first_start(seen: tuple[History, Final]) -> None:
    history, _ = seen
    made = {event.object_id: history.events.index(event) for event in history.of(ObjectMade)}
    assert all(made[event.object_id] < history.events.index(event) for event in history.of(Locked, ObjectDropped))
    assert [(event.start_offset, event.log_start_offset) for event in history.of(StartResolved)] == [(0, 0)]
    assert {event.reason for event in history.of(ObjectDropped)} == {"released"}


def test_targets_are_seen_before_their_members_learn_them(seen: tuple[History, Final]) -> None:
    history, _ = seen
    heartbeats = [event for event in history.of(HeartbeatAnswered) if event.assignment]
    first = next(event for event in history.of(TargetComputed) if event.epoch == heartbeats[0].member_epoch)
    assert dict(first.target)[heartbeats[0].member_id] == heartbeats[0].assignment
    assert history.events.index(first) < history.events.index(heartbeats[0])
    assert heartbeats[0].subscribed in (None, ("jobs",))


def test_samples_show_what_changed(seen: tuple[History, Final]) -> None:
    history, final = seen
    states = list(history.of(StateSeen))
    assert len(states) == len({(s.start_offset, s.batches, s.leader_epoch, s.state_epoch) for s in states})
    assert states[-1].start_offset == next(iter(final.served.values())).start_offset
    groups = [event for event in history.of(GroupSeen) if event.members]
    assert groups[-1].subscribed == groups[-1].assignable == groups[-1].target[0][1]
    assert {limits.delivery_count_limit for limits in history.of(LimitsSeen)} == {10}
    assert all(size <= bound for event in history.of(SizesSeen) for _, size, bound in event.sizes)


@pytest.mark.rule("INV-13")
def test_the_end_is_the_same_in_three_ways(seen: tuple[History, Final]) -> None:
    _, final = seen
    assert len(final.served) == 1
    shapes = [
        {share: (s.state_epoch, s.start_offset, s.delivery_complete_count, s.batches) for share, s in found.items()}
        for found in (final.served, final.replayed, final.rebuilt)
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert final.logs == final.logs_replayed
    (values,) = final.values.values()
    assert values == {offset: b"%d" % offset for offset in range(RECORDS)}
    assert list(final.labels.values()) == [dict.fromkeys(range(RECORDS), (None, HEADERS))]
    assert (final.leftovers, final.fatal, final.torn) == ((), (), ())
    assert final.streams
    assert all(length <= bound for length, bound in final.streams.values())


def test_nothing_in_it_breaks_a_rule(seen: tuple[History, Final]) -> None:
    assert [str(violation) for violation in judged(*seen)] == []


@pytest.mark.rule("PL-104", "PL-1003")
@pytest.mark.parametrize("expires", [False, True], ids=["the session ends", "the lock runs out"])
def test_a_limit_that_held_only_when_a_record_came_back_is_seen(expires: bool) -> None:
    """The record becomes Available under a raised limit; after the limit is lowered again, that one delivery is still
    allowed, though nothing was delivered or acknowledged in between."""

    async def main() -> tuple[History, list[str]]:
        world = World(5, Shape((ProcessShape("a", ROLES),)))
        await asyncio.wait_for(_raised_for_a_moment(world, expires), 200)
        assert world.complaints == []
        return world.history, [str(violation) for violation in judged(world.history, await collect_final(world))]

    history, broken = determinism.run(5, main)
    assert broken == []
    assert [locked.delivery_count for locked in history.of(Locked)] == [1, 2, 3]
    assert [limits.delivery_count_limit for limits in history.of(LimitsSeen)] == [2, 10, 2]


async def _raised_for_a_moment(world: World, expires: bool) -> None:
    """Deliver one record twice under the limit 2, and once more because it was released under the limit 10."""
    world.observer = Observer(world)
    await world.open()
    await world.start("a")
    await world.settled()
    world.begin("work")
    async with Admin({"bootstrap.servers": world.bootstrap()}, transport=world.transport("admin")) as admin:
        await admin.create_topics([NewTopic("jobs", 1)])
        producer = Producer({"bootstrap.servers": world.bootstrap()}, transport=world.transport("p"))
        Witness(world, "p").saw(ProduceSent, "jobs", b"0")
        await producer.send("jobs", b"0")
        await producer.close()
        await _limit(world, admin, 2)
        ((partition,),) = (process.led for process in world.processes.values())
        address = world.processes["a"].address
        await heartbeat(world.transport("h"), address, "g", "hand", 0, topics=["jobs"])
        session = HandSession(world.transport("h"), address, "g", "hand", streaming=True)
        for limit in (2, 10):
            await session.fetch([(partition.topic_id, partition.partition)], wait_ms=3_000)
            await _limit(world, admin, limit)
            if expires:
                await asyncio.sleep(LOCK_S + 1)
            else:
                await session.drop()
                await asyncio.sleep(1)
        await _limit(world, admin, 2)
        await session.fetch([(partition.topic_id, partition.partition)], wait_ms=3_000)
        await session.drop()
        await asyncio.sleep(1)


async def _limit(world: World, admin: Admin, limit: int) -> None:
    changes = (("share.delivery.count.limit", str(limit)), ("share.auto.offset.reset", "earliest"))
    assert await alter(Witness(world, "admin"), admin, "g", changes) == ""
    await asyncio.sleep(0.1)
