"""A member and a share session belong to the principal that joined and opened them (GC-23b, PL-530).

Of "as long as it lives" (PL-530), these tests show a session that was closed, but not one whose stream ended or that
was idle. In Kafka, anyone with READ on group and topic may act for any member (kafka-answers/access.md, surprise 9).
"""

from __future__ import annotations

from typing import Any

import pytest

from kip932.acls import ANONYMOUS
from tests.integration.scenarios.sessions import ACCEPT
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.members import Member, beating, got, joined, parts, top
from tests.scenarios.access.stage import GROUP, NODE, TOPIC, Caller, Stage, error_name, on_stage, reading

ALICE, BOB = "User:alice", "User:bob"
MEMBER = "m-alice"


async def described(stage: Stage) -> Any:
    """Return the group as ShareGroupDescribe reports it."""
    request = METHODS["ShareGroupDescribe"].request_type(group_ids=[GROUP])
    return (await stage.admin.call("ShareGroupDescribe", request)).groups[0]


async def holder(stage: Stage) -> Member:
    """Return Alice's member, which holds three records."""
    await stage.allow(*reading(ALICE), *reading(BOB))
    alice = await joined(stage, ALICE, MEMBER)
    await stage.admin.produce(stage.topic_id, 3)
    await alice.open_with_records()
    return alice


def stolen(stage: Stage, alice: Member, principal: str | None = BOB) -> Member:
    """Return the requests of another client with Alice's member id, session and epochs."""
    bob = Member(stage, principal, alice.member)
    bob.epoch, bob.session_id, bob.member_epoch = alice.epoch, alice.session_id, alice.member_epoch
    return bob


async def beat(caller: Caller, epoch: int, *topics: str) -> str:
    """Send a heartbeat of Alice's member; return its error."""
    request = beating(MEMBER, epoch)
    if topics:
        request.subscribed_topic_names.values.extend(topics)
    return top(await caller.call("ShareGroupHeartbeat", request))


@pytest.mark.parametrize("access", ["true", "false"], ids=["with access control", "without it"])
@pytest.mark.rule("GC-23b")
def test_another_principal_cannot_act_for_a_member_and_changes_nothing(access: str) -> None:
    @on_stage(access_control_enable=access)
    async def story(stage: Stage) -> None:
        alice = await holder(stage)
        before, bob = await described(stage), stage.caller(BOB)
        for epoch, topics in (
            (alice.member_epoch, ()),
            (alice.member_epoch, (TOPIC,)),
            (alice.member_epoch, ("topic-other",)) if access == "false" else (alice.member_epoch, ()),
            (-1, ()),
            (0, (TOPIC,)),
            (alice.member_epoch + 7, ()),
        ):
            assert await beat(bob, epoch, *topics) == "UNKNOWN_MEMBER_ID", (epoch, topics)
        assert await described(stage) == before
        assert top(await alice.beat()) == "NONE"

    story()


@pytest.mark.rule("GC-23b")
@on_stage()
async def test_a_member_stays_its_principals_after_the_coordinator_was_started_again(stage: Stage) -> None:
    alice = await holder(stage)
    await stage.world.stop(NODE)
    await stage.world.start(NODE)
    await stage.world.settled()
    bob = stage.caller(BOB)
    assert top(await bob.heartbeat(GROUP, MEMBER, alice.member_epoch)) == "UNKNOWN_MEMBER_ID"
    assert top(await alice.caller.heartbeat(GROUP, MEMBER, alice.member_epoch)) == "NONE"
    assert await beat(stage.caller(None), alice.member_epoch) == "GAF"


@pytest.mark.rule("GC-23b")
@on_stage()
async def test_the_principal_may_use_its_member_from_several_connections(stage: Stage) -> None:
    alice = await holder(stage)
    assert await beat(stage.caller(ALICE), alice.member_epoch) == "NONE"
    assert await beat(stage.caller(ALICE), 0, TOPIC) == "NONE", "it rejoins"


@pytest.mark.rule("GC-23b")
@on_stage()
async def test_after_a_member_has_left_its_id_is_free(stage: Stage) -> None:
    alice = await holder(stage)
    assert top(await alice.leave()) == "NONE"
    assert await beat(stage.caller(BOB), 0, TOPIC) == "NONE"
    assert await beat(alice.caller, alice.member_epoch) == "UNKNOWN_MEMBER_ID"


@pytest.mark.rule("GC-23b")
@on_stage()
async def test_a_member_without_a_known_principal_gets_that_of_its_next_heartbeat(stage: Stage) -> None:
    await stage.allow(*reading(ANONYMOUS), *reading(ALICE), *reading(BOB))
    nameless = await joined(stage, None, MEMBER)
    assert await beat(stage.caller(ALICE), nameless.member_epoch) == "NONE"
    assert await beat(stage.caller(BOB), nameless.member_epoch) == "UNKNOWN_MEMBER_ID"
    assert await beat(nameless.caller, nameless.member_epoch) == "UNKNOWN_MEMBER_ID"


@pytest.mark.rule("GC-23b", "GC-149")
@on_stage()
async def test_without_read_on_the_group_another_principal_learns_nothing_of_a_member(stage: Stage) -> None:
    alice = await holder(stage)
    eve, before = stage.caller("User:eve"), await described(stage)
    for epoch in (alice.member_epoch, 0, -1, 99):
        request = beating(MEMBER, epoch)
        known = await eve.call("ShareGroupHeartbeat", request)
        request.member_id = "unknown"
        assert known == await eve.call("ShareGroupHeartbeat", request)
        assert top(known) == "GAF"
    assert await described(stage) == before


@pytest.mark.parametrize("access", ["true", "false"], ids=["with access control", "without it"])
@pytest.mark.rule("PL-530")
def test_another_principal_cannot_use_a_session_and_changes_nothing(access: str) -> None:
    @on_stage(access_control_enable=access)
    async def story(stage: Stage) -> None:
        alice = await holder(stage)
        bob = stolen(stage, alice)
        for answer in (
            await bob.fetch(wait_ms=0),
            await bob.fetch({0: [(0, 2, [ACCEPT])]}, wait_ms=0),
            await bob.fetch(epoch=0, wait_ms=0),
            await bob.fetch(epoch=99, wait_ms=0),
            await bob.fetch(epoch=-1),
            await bob.acknowledge((0, 2, [ACCEPT])),
            await bob.acknowledge(epoch=-1),
            await bob.acknowledge((0, 2, [ACCEPT]), epoch=-1),
        ):
            assert (top(answer), parts(answer)) == ("UNKNOWN_MEMBER_ID", [])
        assert await alice.ack(0, 2, ACCEPT) == 0, "its epoch and its locks must be unchanged"
        await stage.admin.produce(stage.topic_id, 1)
        assert got(await alice.fetch()) == [(3, 3, 1)]

    story()


@pytest.mark.rule("PL-530")
@on_stage()
async def test_another_principal_cannot_use_a_session_over_a_stream(stage: Stage) -> None:
    alice = await holder(stage)
    bob = stage.caller(BOB)
    request = METHODS["ShareStream"].request_type(correlation_id=1)
    request.acknowledge.group_id, request.acknowledge.member_id = GROUP, MEMBER
    request.acknowledge.share_session_epoch, request.acknowledge.session_id = alice.epoch, alice.session_id
    part = request.acknowledge.topics.add(topic_id=stage.topic_id).partitions.add(partition_index=0)
    part.acknowledgement_batches.add(first_offset=0, last_offset=2, acknowledge_types=[ACCEPT])
    answer = await bob.exchange("ShareStream", request)
    assert error_name(answer.acknowledge.error_code) == "UNKNOWN_MEMBER_ID"
    assert await alice.ack(0, 2, ACCEPT) == 0


@pytest.mark.rule("PL-530")
@on_stage()
async def test_the_principal_may_use_its_session_from_another_connection(stage: Stage) -> None:
    alice = await holder(stage)
    assert await stolen(stage, alice, ALICE).ack(0, 2, ACCEPT) == 0


@pytest.mark.rule("PL-530")
@on_stage()
async def test_after_a_session_was_closed_another_principal_may_open_one_for_the_member_id(stage: Stage) -> None:
    alice = await holder(stage)
    assert top(await alice.close_session()) == "NONE"
    assert got(await stolen(stage, alice).fetch(epoch=0)) == [(0, 2, 2)]


@pytest.mark.rule("PL-530", "PL-531")
@on_stage()
async def test_without_read_on_the_group_another_principal_learns_nothing_of_a_session(stage: Stage) -> None:
    alice = await holder(stage)
    eve = stolen(stage, alice, "User:eve")
    unknown = stolen(stage, alice, "User:eve")
    unknown.member = "unknown"
    for one in (eve, unknown):
        for answer in (
            await one.fetch(wait_ms=0),
            await one.fetch(epoch=-1),
            await one.acknowledge((0, 2, [ACCEPT])),
            await one.acknowledge(epoch=-1),
        ):
            assert (top(answer), parts(answer)) == ("GAF", [])
    assert await alice.ack(0, 2, ACCEPT) == 0
