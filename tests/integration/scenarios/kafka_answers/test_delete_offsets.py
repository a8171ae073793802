"""DeleteShareGroupOffsets, case by case as a Kafka 4.4.0 broker responded; each difference with its rule."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.ids import NULL_TOPIC_ID
from tests.integration.scenarios.group_changes import delete_offsets, deleted, described, emptied, leave
from tests.integration.scenarios.sessions import ACCEPT, Session, fx_rpc
from tests.integration.scenarios.wire import Wire
from tests.support.node import unique

pytestmark = pytest.mark.asyncio

NONE = 0
NO_GROUP = errors.GroupIdNotFoundError.code
BAD_GROUP = errors.InvalidGroupIdError.code
NOT_EMPTY = errors.NonEmptyGroupError.code
NO_TOPIC = errors.UnknownTopicOrPartitionError.code


async def _group(wire: Wire) -> tuple[str, str, bytes]:
    """An empty group with offsets of a topic."""
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    await emptied(wire, group, topic)
    return group, topic, topic_id


@pytest.mark.rule("GC-96")
async def test_a_group_that_does_not_exist_and_one_without_an_id(wire: Wire) -> None:
    topic = unique("t")
    await wire.create_topic(topic)
    missing = unique("g")
    answer = await delete_offsets(wire, missing, [topic])
    assert (answer.error_code, list(answer.responses)) == (NO_GROUP, [])
    assert missing in answer.error_message
    assert (await delete_offsets(wire, "", [topic])).error_code == BAD_GROUP


@pytest.mark.rule("GC-96")
async def test_a_group_with_a_member(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    answer = await delete_offsets(wire, session.group, [topic])
    assert (answer.error_code, list(answer.responses)) == (NOT_EMPTY, [])


@pytest.mark.rule("GC-97")
async def test_a_topic_that_does_not_exist_and_one_without_offsets_in_the_group(wire: Wire) -> None:
    group, topic, topic_id = await _group(wire)
    other = unique("u")
    await wire.create_topic(other)
    answer = await delete_offsets(wire, group, ["no-such-topic", other, topic])
    assert deleted(answer) == {"no-such-topic": NO_TOPIC, other: NO_TOPIC, topic: NONE}
    assert [found.topic_id for found in answer.responses] == [NULL_TOPIC_ID, NULL_TOPIC_ID, topic_id]
    assert "nothing to delete" in answer.responses[1].error_message


@pytest.mark.parametrize("topics", [None, []])
async def test_no_topics(wire: Wire, topics: list[str] | None) -> None:
    group, _, _ = await _group(wire)
    answer = await delete_offsets(wire, group, topics)
    assert (answer.error_code, list(answer.responses)) == (NONE, [])


@pytest.mark.rule("GC-99")
async def test_the_group_epoch_stays_and_a_second_deletion_finds_nothing(wire: Wire) -> None:
    group, topic, _ = await _group(wire)
    before = (await described(wire, group)).group_epoch
    assert deleted(await delete_offsets(wire, group, [topic])) == {topic: NONE}
    assert deleted(await delete_offsets(wire, group, [topic])) == {topic: NO_TOPIC}
    assert (await described(wire, group)).group_epoch == before


async def test_a_member_after_that_begins_by_the_reset_and_counts_from_one(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)  # the group starts at earliest
    await wire.produce(session.topic_id, 5)
    assert await session.acquire() == [(0, 4, 1)]
    assert await session.ack(0, 2, ACCEPT) == NONE
    assert (await session.fetch(epoch=-1)).error_code == NONE
    await leave(wire, session.group, session.member)
    assert deleted(await delete_offsets(wire, session.group, [topic])) == {topic: NONE}
    again = Session(wire, session.group, await wire.join(session.group, [topic]), session.topic_id)
    assert await again.acquire() == [(0, 4, 1)]
