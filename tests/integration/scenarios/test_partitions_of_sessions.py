"""S-037, S-045: the partitions of a share session, and the ranges that it acquires."""

from __future__ import annotations

import pytest

from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from tests.integration.scenarios.sessions import ACCEPT, Session, acquired, fx_rpc
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import unique

pytestmark = pytest.mark.asyncio


def _reported(answer: ShareFetchResponse) -> dict[tuple[bytes, int], int]:
    """Return the number of records acquired from each partition that the response contains."""
    assert answer.error_code == 0, answer.error_message
    found = {}
    for topic in answer.responses:
        for part in topic.partitions:
            assert (part.error_code, part.acknowledge_error_code) == (0, 0)
            found[topic.topic_id, part.partition_index] = sum(
                one.last_offset - one.first_offset + 1 for one in part.acquired_records
            )
    return found


async def _all_acquired(session: Session, count: int) -> dict[tuple[bytes, int], int]:
    """Return the number of records acquired from each partition over several fetches, until there are `count` in
    total."""
    found: dict[tuple[bytes, int], int] = {}
    async for _ in attempts():
        for partition, records in _reported(await session.fetch(wait_ms=300)).items():
            found[partition] = found.get(partition, 0) + records
        if sum(found.values()) >= count:
            return found
    raise AssertionError(f"acquired {found}")


@pytest.mark.scenario("S-037")
async def test_one_partition_leaves_and_another_one_joins_a_session(wire: Wire) -> None:
    foo_name, bar_name, group = unique("foo"), unique("bar"), unique("g")
    foo, bar = await wire.create_topic(foo_name, 2), await wire.create_topic(bar_name)
    member = await wire.join(group, [foo_name, bar_name])
    session = Session(wire, group, member, foo, partitions=(0, 1))
    await session.open()

    def swap(request: ShareFetchRequest) -> None:
        request.forgotten_topics_data.add(topic_id=foo, partitions=[0])
        request.topics.add(topic_id=bar).partitions.add(partition_index=0)

    reported = _reported(await session.fetch(wait_ms=300, change=swap))
    async for _ in attempts():  # a share-partition whose state is still being read is omitted
        if reported:
            break
        reported = _reported(await session.fetch(wait_ms=300))
    assert reported == {(bar, 0): 0}, "no news of foo-1"
    assert _reported(await session.fetch(wait_ms=0)) == {}, "no news at all"
    for topic, partition in ((foo, 0), (foo, 1), (bar, 0)):
        await wire.produce(topic, 10, partition)
    assert await _all_acquired(session, 20) == {(foo, 1): 10, (bar, 0): 10}
    assert _reported(await session.fetch(wait_ms=300)) == {}, "nothing of foo-0"

    def forget_all(request: ShareFetchRequest) -> None:
        request.forgotten_topics_data.add(topic_id=foo, partitions=[1])
        request.forgotten_topics_data.add(topic_id=bar, partitions=[0])

    assert _reported(await session.fetch(wait_ms=0, change=forget_all)) == {}
    for topic in (foo, bar):
        await wire.produce(topic, 10, 1 if topic == foo else 0)
    assert _reported(await session.fetch(wait_ms=300)) == {}, "the session is there, and empty"

    def back(request: ShareFetchRequest) -> None:
        request.topics.add(topic_id=foo).partitions.add(partition_index=0)

    answer = await session.fetch(change=back)
    assert answer.session_id == session.session_id
    assert _reported(answer) == {(foo, 0): 10}


@pytest.mark.scenario("S-045")
async def test_ranges_follow_the_batches_of_the_producers_by_batch_size(wire: Wire) -> None:
    """The scenario's gap is covered by a core test: no producer can leave one in a log here."""
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 2)
    assert await session.acquire() == [(0, 1, 1)]
    assert await session.ack(0, 1, ACCEPT) == 0
    for records in (5, 5, 7, 6):
        await wire.produce(session.topic_id, records)
    answer = await session.fetch(batch_size=5, max_records=100)
    assert acquired(answer) == [(2, 6, 1), (7, 11, 1), (12, 18, 1), (19, 24, 1)]


@pytest.mark.scenario("S-045")
async def test_a_producers_batch_is_not_split_for_batch_size(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 5)
    assert acquired(await session.fetch(batch_size=2)) == [(0, 4, 1)]
