"""A live member loses a permission: its records go to other members at once, it receives nothing more, and everything
continues when the permission is granted again (PL-531).

Kafka keeps the locks until they expire, delivers records to a waiting fetch, and refuses a leave or a close with
GROUP_AUTHORIZATION_FAILED (kafka-answers/access.md, "A right is taken from a live member").
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from kip932.acls import Acl, Operation, ResourceType
from partition_leader.topic_log.topic_log import TopicLog
from tests.integration.scenarios.sessions import ACCEPT
from tests.scenarios.access.members import Member, got, joined, parts, top
from tests.scenarios.access.stage import NODE, TOPIC, Stage, acl, denial, on_stage, reading
from tests.simulation.points import Point

ALICE, BOB = "User:alice", "User:bob"
G_READ = acl(ALICE, Operation.READ, ResourceType.GROUP)
T_READ = acl(ALICE, Operation.READ, ResourceType.TOPIC)
#: Permission to DESCRIBE the topic is not enough to read it.
T_DESCRIBE = acl(ALICE, Operation.DESCRIBE, ResourceType.TOPIC)
#: Far below the lock duration, 15 s, and the wait of a parked fetch.
AT_ONCE_MS = 500
WAIT_MS = 60_000


async def two(stage: Stage) -> tuple[Member, Member]:
    """Alice holds three records, Bob's session is open; both may read."""
    await stage.allow(*reading(ALICE), *reading(BOB))
    alice, bob = await joined(stage, ALICE, "alice"), await joined(stage, BOB, "bob")
    await stage.admin.produce(stage.topic_id, 3)
    await alice.open_with_records()
    await bob.open()
    return alice, bob


def parked(member: Member, **fields: Any) -> asyncio.Task[Any]:
    """Start a fetch that waits."""
    return asyncio.create_task(member.fetch(wait_ms=WAIT_MS, **fields))


async def take(stage: Stage, *acls: Acl) -> None:
    """Take entries away, and let the leader check its sessions."""
    await stage.change((), acls)


@pytest.mark.parametrize("lost", [T_READ, G_READ], ids=["T READ", "G READ"])
@pytest.mark.rule("PL-531")
@on_stage()
async def test_what_a_member_holds_goes_to_another_at_once_with_one_more_delivery(stage: Stage, lost: Acl) -> None:
    _, bob = await two(stage)
    waiting = parked(bob)
    await asyncio.sleep(1)
    assert not waiting.done()
    began_ms = stage.world.now_ms()
    await take(stage, lost)
    assert got(await waiting) == [(0, 2, 2)]
    assert stage.world.now_ms() - began_ms < AT_ONCE_MS


@pytest.mark.parametrize("lost", [T_READ, G_READ], ids=["T READ", "G READ"])
@pytest.mark.rule("PL-531")
@on_stage()
async def test_a_denial_frees_like_a_permission_that_is_taken(stage: Stage, lost: Acl) -> None:
    _, bob = await two(stage)
    waiting = parked(bob)
    await asyncio.sleep(1)
    await stage.change([denial(ALICE, Operation(lost.operation), ResourceType(lost.resource_type))])
    assert got(await waiting) == [(0, 2, 2)]


@pytest.mark.parametrize("lost", [T_READ, G_READ], ids=["T READ", "G READ"])
@pytest.mark.rule("PL-531")
@on_stage()
async def test_a_fetch_that_waits_is_answered_at_once_and_gets_nothing(stage: Stage, lost: Acl) -> None:
    alice, bob = await two(stage)
    assert await alice.ack(0, 2, ACCEPT) == 0
    waiting = parked(alice)
    await asyncio.sleep(1)
    began_ms = stage.world.now_ms()
    await take(stage, lost)
    answer = await waiting
    assert stage.world.now_ms() - began_ms < AT_ONCE_MS
    assert (top(answer), got(answer)) == ("NONE", [])
    await stage.admin.produce(stage.topic_id, 1)
    assert got(await bob.fetch()) == [(3, 3, 1)], "the ended fetch must not have acquired the record"


@pytest.mark.rule("PL-531", "GC-139", "PL-402")
@on_stage()
async def test_without_the_topic_the_partition_is_refused_and_stays_in_the_session(stage: Stage) -> None:
    alice, _ = await two(stage)
    await take(stage, T_READ)
    epoch = alice.epoch
    for _ in range(2):
        answer = await alice.fetch(wait_ms=0)
        assert (top(answer), parts(answer)) == ("NONE", ["TAF"])
        assert answer.acquisition_lock_timeout_ms == 15_000
    assert alice.epoch == epoch + 2, "the session goes on"
    acked = await alice.acknowledge((0, 2, [ACCEPT]))
    assert (top(acked), parts(acked)) == ("NONE", ["TAF"])


@pytest.mark.rule("PL-531")
@on_stage()
async def test_when_the_topic_comes_back_records_come_in_the_same_session(stage: Stage) -> None:
    alice, _ = await two(stage)
    session = alice.session_id
    await take(stage, T_READ)
    assert parts(await alice.fetch(wait_ms=0)) == ["TAF"]
    await stage.change([T_READ])
    assert got(await alice.fetch()) == [(0, 2, 2)]
    assert alice.session_id == session
    assert await alice.ack(0, 2, ACCEPT) == 0


@pytest.mark.rule("PL-531")
@on_stage()
async def test_other_topics_of_the_session_go_on(stage: Stage) -> None:
    other = await stage.admin.create_topic("topic-u")
    await stage.make_group("topic-u")
    await stage.allow(*reading(ALICE), acl(ALICE, Operation.READ, ResourceType.TOPIC, "topic-u"))
    alice = Member(stage, ALICE, "alice")
    for topic_id in (stage.topic_id, other):
        await stage.admin.produce(topic_id, 1)

    def both(request: Any) -> None:
        request.topics.add(topic_id=other).partitions.add(partition_index=0)

    found = got(await alice.fetch(change=both))
    while len(found) < 2:
        found += got(await alice.fetch())
    await take(stage, T_READ)
    await stage.admin.produce(other, 1)

    def accept(request: Any) -> None:
        for topic_id in (stage.topic_id, other):
            part = request.topics.add(topic_id=topic_id).partitions.add(partition_index=0)
            part.acknowledgement_batches.add(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])

    answer = await alice.fetch(change=accept)
    shown = {topic.topic_id: parts(mock.Mock(responses=[topic])) for topic in answer.responses}
    assert shown == {stage.topic_id: ["TAF TAF"], other: ["NONE"]}
    assert got(answer) == [(1, 1, 1)]


@pytest.mark.rule("PL-531", "GC-13")
@on_stage()
async def test_without_the_topic_a_member_goes_on_unless_it_names_it(stage: Stage) -> None:
    """As in Kafka: a heartbeat without topic names needs permission only on the group."""
    alice, _ = await two(stage)
    await take(stage, T_READ)
    assert top(await alice.beat()) == "NONE"
    answer = await alice.beat([TOPIC])
    assert (top(answer), answer.HasField("member_id"), answer.member_epoch) == ("TAF", False, 0)
    assert (answer.heartbeat_interval_ms, answer.HasField("assignment")) == (0, False)
    assert top(await alice.beat()) == "NONE", "the refused heartbeat changed nothing"
    assert top(await alice.leave()) == "NONE"


@pytest.mark.rule("PL-531", "GC-11", "GC-23b")
@on_stage()
async def test_without_the_group_the_session_keeps_its_epoch_and_everything_goes_on_when_it_comes_back(
    stage: Stage,
) -> None:
    alice, _ = await two(stage)
    await take(stage, G_READ)
    epoch = alice.epoch
    answers: list[Any] = [
        await alice.fetch(wait_ms=0),
        await alice.acknowledge((0, 2, [ACCEPT])),
        await alice.fetch({0: [(0, 2, [ACCEPT])]}, wait_ms=0),
    ]
    for answer in answers:
        assert (top(answer), parts(answer), answer.acquisition_lock_timeout_ms) == ("GAF", [], 0)
    assert alice.epoch == epoch
    assert top(await alice.beat()) == "GAF"
    await stage.change([G_READ])
    assert top(await alice.beat()) == "NONE"
    assert got(await alice.fetch()) == [(0, 2, 2)], "the session continues at the same epoch"
    assert await alice.ack(0, 2, ACCEPT) == 0


@pytest.mark.rule("PL-531", "GC-23b")
@on_stage()
async def test_without_the_group_a_member_can_still_close_its_session_and_leave(stage: Stage) -> None:
    """Kafka refuses both, and the member stays until its session times out."""
    alice, _ = await two(stage)
    await take(stage, G_READ)
    assert top(await alice.close_session()) == "NONE"
    assert top(await alice.leave()) == "NONE"
    await stage.change([G_READ])
    assert top(await alice.fetch(wait_ms=0)) == "SHARE_SESSION_NOT_FOUND"
    assert top(await alice.beat()) == "UNKNOWN_MEMBER_ID"


@pytest.mark.rule("PL-531")
@on_stage()
async def test_without_the_group_a_close_with_acknowledgements_is_refused_and_acknowledges_nothing(
    stage: Stage,
) -> None:
    alice, bob = await two(stage)
    await take(stage, G_READ)
    for answer in (
        await alice.acknowledge((0, 2, [ACCEPT]), epoch=-1),
        await alice.fetch({0: [(0, 2, [ACCEPT])]}, epoch=-1),
    ):
        assert top(answer) == "GAF"
    assert got(await bob.fetch()) == [(0, 2, 2)]


@pytest.mark.rule("PL-531")
@on_stage()
async def test_without_the_topic_closing_frees_and_names_the_topic_as_refused(stage: Stage) -> None:
    alice, bob = await two(stage)
    await take(stage, T_READ)
    answer = await alice.acknowledge((0, 2, [ACCEPT]), epoch=-1)
    assert (top(answer), parts(answer)) == ("NONE", ["TAF"])
    assert got(await bob.fetch()) == [(0, 2, 2)]
    assert top(await alice.fetch(wait_ms=0)) == "SHARE_SESSION_NOT_FOUND"


@pytest.mark.rule("PL-531")
@on_stage()
async def test_who_lost_nothing_goes_on_undisturbed(stage: Stage) -> None:
    alice, bob = await two(stage)
    waiting = parked(bob)
    await asyncio.sleep(1)
    await take(stage, acl("User:other", Operation.READ, ResourceType.TOPIC))
    await stage.change([acl(BOB, Operation.DELETE, ResourceType.GROUP), T_DESCRIBE])
    await asyncio.sleep(1)
    assert not waiting.done(), "a change that concerns others must not end the fetch"
    assert await alice.ack(0, 2, ACCEPT) == 0, "its locks must be unchanged"
    await stage.admin.produce(stage.topic_id, 1)
    assert got(await waiting) == [(3, 3, 1)]


@pytest.mark.rule("PL-531")
@on_stage()
async def test_a_topic_of_the_group_that_is_not_in_the_session_ends_no_wait(stage: Stage) -> None:
    """Alice was never allowed Bob's topic: her fetch keeps waiting, no matter what changes for others."""
    other = await stage.admin.create_topic("topic-u")
    await stage.make_group("topic-u")
    await stage.allow(*reading(ALICE), *reading(BOB), acl(BOB, Operation.READ, ResourceType.TOPIC, "topic-u"))
    alice, bob = Member(stage, ALICE, "alice"), Member(stage, BOB, "bob")
    bob.topic_id = other
    for member in (alice, bob):
        await member.open()
    waiting = parked(alice)
    await asyncio.sleep(1)
    await stage.change([acl("User:other", Operation.READ, ResourceType.TOPIC)])
    await asyncio.sleep(1)
    assert not waiting.done()
    await stage.admin.produce(stage.topic_id, 1)
    assert got(await waiting) == [(0, 0, 1)]


@pytest.mark.rule("PL-531")
@on_stage()
async def test_what_is_lost_already_ends_no_wait_again(stage: Stage) -> None:
    other = await stage.admin.create_topic("topic-u")
    await stage.make_group("topic-u")
    await stage.allow(*reading(ALICE), acl(ALICE, Operation.READ, ResourceType.TOPIC, "topic-u"))
    alice = Member(stage, ALICE, "alice")
    await alice.fetch(change=lambda request: _add(request, other), wait_ms=0)
    await take(stage, T_READ)
    waiting = parked(alice)
    await asyncio.sleep(1)
    await stage.change([acl("User:other", Operation.READ, ResourceType.TOPIC)])
    await asyncio.sleep(1)
    assert not waiting.done()
    await stage.change([T_READ])
    await stage.change((), [T_READ])
    await asyncio.sleep(1)
    assert not waiting.done(), "the topic was refused when the fetch began, so its loss does not end the fetch"
    await stage.admin.produce(other, 1)
    assert got(await waiting) == [(0, 0, 1)]


def _add(request: Any, topic_id: bytes) -> None:
    request.topics.add(topic_id=topic_id).partitions.add(partition_index=0)


@pytest.mark.rule("CM-61", "PL-531", "GC-23b")
@on_stage()
async def test_only_what_is_refused_is_counted_as_refused(stage: Stage) -> None:
    """The check of sessions after a change is not counted, nor is a close or a leave that needs no permission."""
    alice, _ = await two(stage)
    await take(stage, G_READ, T_READ)
    await asyncio.sleep(1)
    assert top(await alice.close_session()) == "NONE"
    assert top(await alice.leave()) == "NONE"
    assert not stage.access.refused
    assert top(await alice.leave()) == "GAF"
    assert dict(stage.access.refused) == {("", Operation.READ, ResourceType.GROUP): 1}


@pytest.mark.rule("PL-531")
@on_stage()
async def test_of_a_hundred_fetches_that_wait_those_without_the_right_get_nothing_and_all_are_answered(
    stage: Stage,
) -> None:
    names = [f"User:p{number}" for number in range(100)]
    rights = {name: reading(name) for name in names}
    await stage.allow(*(each for both in rights.values() for each in both))
    members = [Member(stage, name, name[5:]) for name in names]
    for member in members:
        await member.open()
    waiting = [parked(member) for member in members]
    await asyncio.sleep(1)
    losers, keepers = range(0, 100, 2), range(1, 100, 2)
    began_ms = stage.world.now_ms()
    await take(stage, *(rights[names[number]][number // 2 % 2] for number in losers))  # the group, or the topic
    for number in losers:
        answer = await waiting[number]
        assert (top(answer), got(answer)) == ("NONE", [])
    assert stage.world.now_ms() - began_ms < AT_ONCE_MS
    assert not any(waiting[number].done() for number in keepers)
    for _ in keepers:
        await stage.admin.produce(stage.topic_id, 1)
    found = [each for number in keepers for each in got(await waiting[number])]
    assert {count for _, _, count in found} == {1}
    delivered = sorted(offset for first, last, _ in found for offset in range(first, last + 1))
    assert len(set(delivered)) == len(delivered)
    for number in losers:
        answer = await members[number].fetch(wait_ms=0)
        assert "TAF" in parts(answer) or top(answer) == "GAF"


@pytest.mark.parametrize("lost", [T_READ, G_READ], ids=["T READ", "G READ"])
@pytest.mark.rule("PL-531")
@on_stage()
async def test_a_fetch_that_reads_during_the_change_delivers_nothing(stage: Stage, lost: Acl) -> None:
    alice, bob = await two(stage)
    assert await alice.ack(0, 2, ACCEPT) == 0
    going_on, begun = asyncio.Event(), asyncio.Event()
    read = TopicLog.read

    async def paused(self: TopicLog, *arguments: Any, **named: Any) -> Any:
        begun.set()
        await going_on.wait()
        return await read(self, *arguments, **named)

    with (
        mock.patch.object(TopicLog, "read_cached", return_value=None),
        mock.patch.object(TopicLog, "read", paused),
    ):
        waiting = parked(alice)
        await stage.admin.produce(stage.topic_id, 1)
        await begun.wait()
        await take(stage, lost)
        await asyncio.sleep(1)
        going_on.set()
        answer = await waiting
        assert (top(answer), got(answer), _records(answer)) == ("NONE", [], 0)
        assert got(await bob.fetch()) == [(3, 3, 1)]


@pytest.mark.parametrize("lost", [T_READ, G_READ], ids=["T READ", "G READ"])
@pytest.mark.rule("PL-531")
@on_stage()
async def test_what_a_fetch_acquired_before_the_change_is_not_delivered_after_it(stage: Stage, lost: Acl) -> None:
    """The fetch has acquired its record, and waits for the acknowledgement in the same request to be stored."""
    alice, bob = await two(stage)
    await stage.admin.produce(stage.topic_id, 1)
    stored = asyncio.Event()

    async def held_back() -> None:
        await stored.wait()

    stage.world.points.arm(NODE, Point.BEFORE_WRITE, 1, held_back)
    waiting = parked(alice, acks={0: [(0, 2, [ACCEPT])]}, max_records=1)
    await asyncio.sleep(0.05)
    assert not stage.world.points.armed(NODE, Point.BEFORE_WRITE), "the acknowledgement is on its way to the store"
    await take(stage, lost)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    stored.set()
    answer = await waiting
    assert (top(answer), got(answer), _records(answer)) == ("NONE", [], 0)
    assert parts(answer) == (["TAF"] if lost is T_READ else ["NONE"])
    assert got(await bob.fetch()) == [(3, 3, 2)]


def _records(answer: Any) -> int:
    return sum(len(part.records) for topic in answer.responses for part in topic.partitions)
