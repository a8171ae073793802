"""ShareGroupHeartbeat: joins, leaves, subscriptions, ids, sizes and intervals."""

from __future__ import annotations

import asyncio

import pytest

from kip932 import errors
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatResponse
from tests.integration.scenarios.sessions import Session, acquired
from tests.integration.scenarios.wire import Connect, Wire, assigned, attempts
from tests.support.node import KAFKA, Clusters, unique

pytestmark = pytest.mark.asyncio

NONE = 0
INVALID = errors.InvalidRequestError.code
UNKNOWN_MEMBER = errors.UnknownMemberIdError.code
NO_GROUP = errors.GroupIdNotFoundError.code
FULL = errors.GroupMaxSizeReachedError.code


def _reported(answer: ShareGroupHeartbeatResponse) -> tuple[int, int, dict[bytes, list[int]] | None]:
    """Return the error, the member epoch, and the assignment if the response has one."""
    return answer.error_code, answer.member_epoch, assigned(answer) if answer.HasField("assignment") else None


async def _settled(wire: Wire, group: str, member: str, topics: list[str]) -> int:
    """Join, and heartbeat until the assignment has arrived; returns the member epoch."""
    first = await wire.heartbeat(group, member, 0, topics)
    return (await wire.until_assigned(group, member, first.member_epoch)).member_epoch


@pytest.mark.rule("GC-22")
async def test_a_join_an_assignment_and_a_leave(kafka: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await kafka.create_topic(topic, 2)
    first = await kafka.heartbeat(group, "m", 0, [topic])
    assert (*_reported(first), first.member_id, first.heartbeat_interval_ms) == (NONE, 2, {}, "m", 5_000)
    second = await kafka.until_assigned(group, "m", 2)
    assert _reported(second) == (NONE, 3, {topic_id: [0, 1]})
    assert _reported(await kafka.heartbeat(group, "m", 3)) == (NONE, 3, None)
    left = await kafka.heartbeat(group, "m", -1)
    assert (*_reported(left), left.member_id, left.heartbeat_interval_ms) == (NONE, -1, None, "m", 0)
    for epoch in (3, -1):
        again = await kafka.heartbeat(group, "m", epoch)
        assert again.error_code == UNKNOWN_MEMBER
        assert again.error_message == f"Member m is not a member of group {group}."


@pytest.mark.parametrize(
    ("member", "code"),
    [("", INVALID), ("   ", INVALID), ("x" * 37, INVALID), ("x" * 36, NONE), ("me", NONE), ("é" * 36, NONE)],
)
async def test_member_ids(kafka: Wire, member: str, code: int) -> None:
    assert (await kafka.heartbeat(unique("g"), member, 0, ["any"])).error_code == code


@pytest.mark.rule("GC-17")
@pytest.mark.parametrize("topics", [None, []])
async def test_a_first_request_without_topics(kafka: Wire, topics: list[str] | None) -> None:
    answer = await kafka.heartbeat(unique("g"), "m", 0, topics)
    assert answer.error_code == INVALID
    assert answer.error_message == "SubscribedTopicNames must be set in first request."


@pytest.mark.parametrize(
    "topics", [["no-such-topic"], ["with blanks / and slashes"], [""], ["twice", "twice"], ["df-.*"]]
)
async def test_names_that_no_topic_has(kafka: Wire, topics: list[str]) -> None:
    assert _reported(await kafka.heartbeat(unique("g"), "m", 0, topics)) == (NONE, 2, {})


async def test_a_name_that_no_topic_can_have_by_its_length(kafka: Wire) -> None:
    """Kafka accepts the name, as it does any other name without a topic."""
    assert (await kafka.heartbeat(unique("g"), "m", 0, ["x" * 249])).error_code == NONE
    assert (await kafka.heartbeat(unique("g"), "m", 0, ["x" * 300])).error_code == INVALID


@pytest.mark.rule("GC-19")
@pytest.mark.parametrize("epoch", [3, -1])
async def test_a_group_that_does_not_exist(kafka: Wire, epoch: int) -> None:
    group = unique("g")
    answer = await kafka.heartbeat(group, "m", epoch)
    said = f"Group {group} not found." if epoch < 0 else f"Share group {group} not found."
    assert (answer.error_code, answer.error_message) == (NO_GROUP, said)


async def test_subscriptions_that_change(kafka: Wire) -> None:
    t, u, group = unique("t"), unique("u"), unique("g")
    t_id, u_id = await kafka.create_topic(t), await kafka.create_topic(u)
    epoch = await _settled(kafka, group, "m", [t])
    assert epoch == 3
    assert _reported(await kafka.heartbeat(group, "m", 3, [t, u])) == (NONE, 4, {t_id: [0]})
    assert _reported(await kafka.until_assigned(group, "m", 4, {t_id: [0], u_id: [0]}))[1] == 5
    assert _reported(await kafka.heartbeat(group, "m", 5, [u])) == (NONE, 6, {u_id: [0]})
    assert _reported(await kafka.heartbeat(group, "m", 6)) == (NONE, 6, None)
    assert _reported(await kafka.heartbeat(group, "m", 6, [])) == (NONE, 7, {})
    assert _reported(await kafka.heartbeat(group, "m", 7, [t])) == (NONE, 8, {t_id: [0]}), "its state was there already"
    assert _reported(await kafka.heartbeat(group, "m", 8, [t])) == (NONE, 8, {t_id: [0]}), "the list again, unchanged"


@pytest.mark.rule("GC-21", "OP-15")
async def test_a_full_group(clusters: Clusters, wire_to: Connect) -> None:
    cluster = clusters.of({**KAFKA, "group.share.max.size": "2", "group.share.max.share.sessions": "2"})
    async with wire_to(cluster) as wire:
        topic, group = unique("t"), unique("g")
        for member in ("a", "b"):
            assert (await wire.heartbeat(group, member, 0, [topic])).error_code == NONE
        refused = await wire.heartbeat(group, "c", 0, [topic])
        assert refused.error_code == FULL
        assert refused.error_message == "The share group has reached its maximum capacity of 2 members."
        assert (await wire.heartbeat(group, "a", 0, [topic])).error_code == NONE, "one of them joins again"
        for epoch in (3, -1):  # Kafka: GROUP_MAX_SIZE_REACHED for the first
            assert (await wire.heartbeat(group, "c", epoch)).error_code == UNKNOWN_MEMBER


async def test_three_members_share_one_partition(kafka: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await kafka.create_topic(topic)
    for member in ("a", "b", "c"):
        joined = await kafka.heartbeat(group, member, 0, [topic])
        if not assigned(joined):
            joined = await kafka.until_assigned(group, member, joined.member_epoch)
        assert assigned(joined) == {topic_id: [0]}


async def test_a_topic_that_is_made_after_the_join(kafka: Wire) -> None:
    topic, group = unique("t"), unique("g")
    assert _reported(await kafka.heartbeat(group, "m", 0, [topic])) == (NONE, 2, {})
    topic_id = await kafka.create_topic(topic)
    epochs = list[int]()
    async for _ in attempts():
        answer = await kafka.heartbeat(group, "m", epochs[-1] if epochs else 2)
        if answer.member_epoch not in epochs:
            epochs.append(answer.member_epoch)
        if assigned(answer):
            break
    assert (epochs[-1], assigned(answer)) == (4, {topic_id: [0]})


@pytest.mark.rule("GC-27")
async def test_the_heartbeat_interval_of_a_group(kafka: Wire) -> None:
    topic, group = unique("t"), unique("g")
    assert (await kafka.heartbeat(group, "m", 0, [topic])).heartbeat_interval_ms == 5_000
    await kafka.set_group(group, {"share.heartbeat.interval.ms": "300"})
    assert (await kafka.heartbeat(group, "m", 2)).heartbeat_interval_ms == 300
    assert (await kafka.heartbeat(group, "m", 0, [topic])).heartbeat_interval_ms == 300


async def test_leave_and_join_again_under_the_same_id(kafka: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await kafka.create_topic(topic, 2)
    assert await _settled(kafka, group, "m", [topic]) == 3
    await kafka.heartbeat(group, "m", -1)
    assert _reported(await kafka.heartbeat(group, "m", 0, [topic])) == (NONE, 5, {topic_id: [0, 1]})


async def test_a_member_that_expires_keeps_its_share_session(kafka: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await kafka.create_topic(topic)
    await kafka.set_group(group, {"share.session.timeout.ms": "1200", "share.heartbeat.interval.ms": "300"})
    assert await _settled(kafka, group, "m", [topic]) == 3
    session = Session(kafka, group, "m", topic_id)
    await session.open()
    await asyncio.sleep(1.5)
    async for _ in attempts():
        if (await kafka.heartbeat(group, "m", 3)).error_code == UNKNOWN_MEMBER:
            break
        await asyncio.sleep(1.3)
    await kafka.produce(topic_id, 2)
    assert await session.acquire() == [(0, 1, 1)]
    again = await kafka.heartbeat(group, "m", 0, [topic])
    assert _reported(again) == (NONE, 5, {topic_id: [0]})
    assert acquired(await session.fetch(wait_ms=0)) == []


async def test_an_assignment_interval_holds_a_new_assignment_back(kafka: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await kafka.create_topic(topic, 4)
    await kafka.set_group(group, {"share.assignment.interval.ms": "1500"})
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert _reported(await kafka.heartbeat(group, "a", 0, [topic])) == (NONE, 2, {})
    early = await kafka.heartbeat(group, "a", 2)
    first = await kafka.until_assigned(group, "a", 2)
    assert _reported(early) == (NONE, 2, None) or loop.time() - began > 1.5
    assert (first.member_epoch, assigned(first)) == (3, {topic_id: [0, 1, 2, 3]})
    assert loop.time() - began >= 1.5
    joined = await kafka.heartbeat(group, "b", 0, [topic])
    assert not assigned(joined)
    both = await kafka.until_assigned(group, "b", joined.member_epoch)
    async for _ in attempts():
        a = await kafka.heartbeat(group, "a", 3)
        if a.member_epoch == both.member_epoch:
            break
    assert sorted(assigned(a)[topic_id] + assigned(both)[topic_id]) == [0, 1, 2, 3]
