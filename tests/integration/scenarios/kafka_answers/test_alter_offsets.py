"""AlterShareGroupOffsets, case by case as a Kafka 4.4.0 broker responded; each difference with its rule."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.ids import NULL_TOPIC_ID
from tests.integration.scenarios.group_changes import alter, altered, described, emptied, leave, starts
from tests.integration.scenarios.sessions import ACCEPT, Session, cut, fx_rpc
from tests.integration.scenarios.wire import Wire
from tests.support.node import unique

pytestmark = pytest.mark.asyncio

NONE = 0
NO_TOPIC = errors.UnknownTopicOrPartitionError.code
BAD_GROUP = errors.InvalidGroupIdError.code
NOT_EMPTY = errors.NonEmptyGroupError.code


async def _with_records(wire: Wire, count: int = 5) -> tuple[str, str, bytes]:
    """An empty group and its topic with records."""
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    await wire.produce(topic_id, count)
    await emptied(wire, group, topic)
    return group, topic, topic_id


async def _epoch(wire: Wire, group: str) -> int:
    return int((await described(wire, group)).group_epoch)


async def test_a_group_with_a_member(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    answer = await alter(wire, session.group, {topic: [(0, 0)]})
    assert (answer.error_code, list(answer.responses)) == (NOT_EMPTY, [])
    assert session.group in answer.error_message


async def test_an_unknown_topic_and_an_unknown_partition(wire: Wire) -> None:
    group, topic, topic_id = await _with_records(wire)
    answer = await alter(wire, group, {"no-such-topic": [(0, 0)], topic: [(9, 0)]})
    assert altered(answer) == {"no-such-topic": [(0, NO_TOPIC)], topic: [(9, NO_TOPIC)]}
    assert [found.topic_id for found in answer.responses] == [NULL_TOPIC_ID, topic_id]


@pytest.mark.rule("GC-105")
async def test_a_negative_partition(wire: Wire) -> None:
    """Kafka returns UNKNOWN_SERVER_ERROR for the whole call."""
    group, topic, _ = await _with_records(wire)
    assert altered(await alter(wire, group, {topic: [(-1, 0), (0, 1)]})) == {topic: [(-1, NO_TOPIC), (0, NONE)]}


@pytest.mark.rule("GC-105", "GC-106")
@pytest.mark.parametrize(
    ("start", "error"), [(-5, errors.InvalidRequestError.code), (5_000, errors.OffsetOutOfRangeError.code)]
)
async def test_an_offset_that_is_none_of_the_log(wire: Wire, start: int, error: int) -> None:
    """Kafka accepts both, and describes a start of −5 with lag 10 and one of 5000 with lag −4995."""
    group, topic, _ = await _with_records(wire)
    before = await starts(wire, group)
    assert altered(await alter(wire, group, {topic: [(0, start)]})) == {topic: [(0, error)]}
    assert await starts(wire, group) == before


@pytest.mark.rule("GC-104")
@pytest.mark.parametrize("topics", [None, {}])
async def test_no_topics(wire: Wire, topics: dict[str, list[tuple[int, int]]] | None) -> None:
    group, _, _ = await _with_records(wire)
    answer = await alter(wire, group, topics)
    assert (answer.error_code, list(answer.responses)) == (NONE, [])


async def test_an_empty_group_id(wire: Wire) -> None:
    assert (await alter(wire, "", {"t": [(0, 0)]})).error_code == BAD_GROUP


async def test_the_same_partition_twice(wire: Wire) -> None:
    group, topic, _ = await _with_records(wire)
    assert altered(await alter(wire, group, {topic: [(0, 1), (0, 3)]})) == {topic: [(0, NONE), (0, NONE)]}
    assert await starts(wire, group) == {topic: {0: 3}}


@pytest.mark.rule("GC-102", "OP-11", "GC-105")
async def test_what_an_accepted_alteration_does_to_the_group_epoch(wire: Wire) -> None:
    """Kafka 4.4.0 never changes it. Kafka's trunk and this suite do: otherwise a second alteration would be mistaken
    for the first."""
    group, topic, _ = await _with_records(wire)
    before = await _epoch(wire, group)
    for topics in (None, {topic: [(9, 0)]}, {topic: [(0, -1)]}):
        await alter(wire, group, topics)
        assert await _epoch(wire, group) == before
    for turn in (1, 2):
        await alter(wire, group, {topic: [(0, 1)]})
        assert await _epoch(wire, group) == before + turn


@pytest.mark.rule("GC-106")
async def test_an_offset_below_the_log_start_is_taken_and_the_leader_begins_where_there_is_something(
    wire: Wire,
) -> None:
    group, topic, topic_id = await _with_records(wire, 10)
    await cut(wire, topic_id, 5)
    assert altered(await alter(wire, group, {topic: [(0, 2)]})) == {topic: [(0, NONE)]}
    assert (await wire.lag(group, topic))[0] == 2
    reader = Session(wire, group, await wire.join(group, [topic]), topic_id)
    assert await reader.acquire() == [(5, 9, 1)]


@pytest.mark.rule("PL-523", "GC-102")
async def test_a_new_member_begins_at_the_new_start_though_the_old_connection_is_open(wire: Wire) -> None:
    """Kafka's leader still has the old state: it delivers the old records once more, and refuses their
    acknowledgement."""
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 5)
    assert await session.acquire() == [(0, 4, 1)]
    assert await session.ack(0, 2, ACCEPT) == NONE
    assert (await session.fetch(epoch=-1)).error_code == NONE
    await leave(wire, session.group, session.member)
    assert altered(await alter(wire, session.group, {topic: [(0, 0)]})) == {topic: [(0, NONE)]}
    again = Session(wire, session.group, await wire.join(session.group, [topic]), session.topic_id)
    assert await again.acquire() == [(0, 4, 1)]
    assert await again.ack(0, 4, ACCEPT) == NONE
