"""Acknowledgements: shapes, ranges above and below the held records, renewals, and the state after a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest
from tests.integration.scenarios.sessions import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Session,
    acquired,
    another,
    fx_rpc,
    part,
)
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import unique

pytestmark = pytest.mark.asyncio

NONE = 0
INVALID = errors.InvalidRequestError.code
STATE = errors.InvalidRecordStateError.code
EPOCH = errors.InvalidShareSessionEpochError.code
NOT_HERE = errors.UnknownTopicOrPartitionError.code


async def _holding_ten(wire: Wire, settings: dict[str, str] | None = None) -> tuple[Session, str]:
    session, topic = await fx_rpc(wire, settings)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    return session, topic


async def _ack(session: Session, *batches: tuple[int, int, list[int]], renew: bool = False) -> int:
    answer = await session.acknowledge(*batches, renew=renew)
    assert answer.error_code == NONE, answer.error_message
    return int(part(answer).error_code)


async def test_each_type_one_after_the_other(wire: Wire) -> None:
    session, topic = await _holding_ten(wire)
    lags = []
    for batch in ((0, 1, [GAP]), (4, 5, [REJECT]), (8, 9, [ACCEPT]), (2, 3, [RELEASE])):
        assert await _ack(session, batch) == NONE
        lags.append((await wire.lag(session.group, topic))[1])
    assert lags == [8, 6, 4, 4]
    assert await session.acquire() == [(2, 3, 2)]


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ((0, 3, []), INVALID),
        ((0, 3, [ACCEPT] * 2), INVALID),
        ((0, 3, [ACCEPT] * 5), INVALID),
        ((0, 0, [ACCEPT] * 2), INVALID),
        ((0, 3, [ACCEPT] * 4), NONE),
        ((0, 3, [ACCEPT]), NONE),
        ((3, 0, [ACCEPT]), INVALID),
        ((-3, -1, [ACCEPT]), INVALID),
        ((-1, 2, [ACCEPT]), INVALID),
        ((20, 25, [ACCEPT]), INVALID),
        ((5, 12, [ACCEPT]), INVALID),
    ],
)
async def test_ranges_and_numbers_of_types(wire: Wire, batch: tuple[int, int, list[int]], code: int) -> None:
    session, topic = await _holding_ten(wire)
    assert await _ack(session, batch) == code
    assert await wire.lag(session.group, topic) == ((4, 6) if code == NONE else (0, 10))


async def test_what_lies_below_the_start_offset_is_passed_over(wire: Wire) -> None:
    session, topic = await _holding_ten(wire)
    assert await _ack(session, (0, 4, [ACCEPT])) == NONE
    assert [await _ack(session, (1, 3, [kind])) for kind in (ACCEPT, RELEASE, REJECT)] == [NONE] * 3
    assert await _ack(session, (3, 6, [ACCEPT])) == NONE
    assert await wire.lag(session.group, topic) == (7, 3)


@pytest.mark.parametrize("held", [(0, 9), (3, 5)])
async def test_another_members_records(wire: Wire, held: tuple[int, int]) -> None:
    session, topic = await _holding_ten(wire)
    other = await another(session, topic)
    await other.fetch(epoch=0, min_bytes=0)
    assert await _ack(other, (*held, [ACCEPT])) == STATE
    assert await _ack(session, (0, 9, [ACCEPT])) == NONE


@pytest.mark.rule("PL-415")
@pytest.mark.parametrize("bad_first", [False, True])
async def test_a_bad_batch_undoes_its_partition_and_no_other(wire: Wire, bad_first: bool) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic, 2)
    session = Session(wire, group, await wire.join(group, [topic]), topic_id, partitions=(0, 1))
    for partition in (0, 1):
        await wire.produce(topic_id, 5, partition)
    held: list[tuple[int, int, int]] = []
    async for _ in attempts():
        held += acquired(await session.fetch(wait_ms=200))
        if len(held) == 2:
            break
    batches = [(7, 8, [ACCEPT]), (0, 2, [ACCEPT])] if bad_first else [(0, 2, [ACCEPT]), (7, 8, [ACCEPT])]
    answer = await session.acknowledge(*batches, more={1: [(0, 4, [ACCEPT])]})
    (result,) = answer.responses
    assert {one.partition_index: one.error_code for one in result.partitions} == {0: INVALID, 1: NONE}
    assert await wire.lag(group, topic, 0) == (0, 5)
    assert await wire.lag(group, topic, 1) == (5, 0)


async def test_partitions_that_are_not_there_and_one_that_was_not_fetched(wire: Wire) -> None:
    topic = unique("t")
    session, _ = await _holding_ten(wire)
    unfetched = await wire.create_topic(topic)
    request = ShareAcknowledgeRequest(
        group_id=session.group, member_id=session.member, share_session_epoch=session.epoch,
        session_id=session.session_id,
    )  # fmt: skip
    for topic_id, index in ((bytes(range(16)), 0), (session.topic_id, 9), (unfetched, 0)):
        request.topics.add(topic_id=topic_id).partitions.add(partition_index=index).acknowledgement_batches.add(
            first_offset=0, last_offset=0, acknowledge_types=[ACCEPT]
        )
    answer: Any = await wire.call("ShareAcknowledge", request)
    codes = {
        (topic.topic_id, one.partition_index): one.error_code for topic in answer.responses for one in topic.partitions
    }
    assert codes == {
        (bytes(range(16)), 0): errors.UnknownTopicIdError.code,
        (session.topic_id, 9): NOT_HERE,
        (unfetched, 0): NOT_HERE,
    }


async def test_a_partition_twice_in_one_request_has_both_applied(wire: Wire) -> None:
    """Kafka applies only the last entry, and loses the first without an error."""
    session, topic = await _holding_ten(wire)
    answer = await session.acknowledge((0, 4, [ACCEPT]), more={0: [(5, 9, [ACCEPT])]})
    assert {one.error_code for result in answer.responses for one in result.partitions} == {NONE}
    assert await wire.lag(session.group, topic) == (10, 0)


async def test_epochs(wire: Wire) -> None:
    session, _ = await _holding_ten(wire)
    assert await _ack(session, (0, 0, [ACCEPT])) == NONE
    for epoch in (session.epoch - 1, session.epoch + 1, 0):
        assert (await session.acknowledge((1, 1, [ACCEPT]), epoch=epoch)).error_code == EPOCH
    before = session.epoch
    assert await _ack(session, (1, 1, [])) == INVALID
    assert (await session.acknowledge()).error_code == NONE
    assert session.epoch == before + 2, "a bad acknowledgement, and none at all, use the epoch up"
    assert await _ack(session, (1, 9, [ACCEPT])) == NONE


@pytest.mark.rule("PL-321")
async def test_renewals(wire: Wire) -> None:
    session, topic = await _holding_ten(wire)
    assert await _ack(session, (0, 9, [RENEW])) == INVALID
    answer = await session.acknowledge((0, 9, [RENEW]), renew=True)
    assert (part(answer).error_code, answer.acquisition_lock_timeout_ms) == (NONE, 30_000)
    assert await _ack(session, (0, 0, [ACCEPT]), renew=True) == NONE, "the mark without a renewal"
    assert await _ack(session, (1, 4, [RENEW, ACCEPT, RENEW, RELEASE]), renew=True) == NONE
    assert await _ack(session, (1, 1, [RENEW]), (3, 3, [ACCEPT]), renew=True) == NONE
    assert await _ack(session, (2, 2, [RENEW]), renew=True) == STATE, "accepted already"
    assert await _ack(session, (0, 0, [RENEW]), renew=True) == NONE, "below the start offset"
    assert await _ack(session, (20, 20, [RENEW]), renew=True) == INVALID
    assert (await wire.lag(session.group, topic))[0] == 1


@pytest.mark.rule("PL-323")
@pytest.mark.parametrize("batches", [[(0, 9, [RENEW])], [(0, 0, [ACCEPT]), (1, 9, [RENEW])]])
async def test_renewals_of_a_group_that_does_not_allow_them(
    wire: Wire, batches: list[tuple[int, int, list[int]]]
) -> None:
    session, topic = await _holding_ten(wire, {"share.renew.acknowledge.enable": "false"})
    answer = await session.acknowledge(*batches, renew=True)
    assert part(answer).error_code == STATE
    assert "share.renew.acknowledge.enable" in part(answer).error_message
    assert await wire.lag(session.group, topic) == (0, 10)


async def test_an_acknowledgement_across_batches(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    for _ in range(3):
        await wire.produce(session.topic_id, 5)
    held: list[tuple[int, int, int]] = []
    while sum(last - first + 1 for first, last, _ in held) < 15:
        held += await session.acquire()
    assert await _ack(session, (3, 11, [ACCEPT])) == NONE
    assert await wire.lag(session.group, topic) == (0, 6)
    assert await _ack(session, (0, 2, [ACCEPT]), (12, 14, [ACCEPT])) == NONE
    assert await wire.lag(session.group, topic) == (15, 0)


async def test_acknowledgements_in_a_fetch(wire: Wire) -> None:
    session, _ = await _holding_ten(wire)
    await wire.produce(session.topic_id, 2)
    good = await session.fetch({0: [(0, 0, [ACCEPT])]})
    assert (part(good).acknowledge_error_code, acquired(good)) == (NONE, [(10, 11, 1)])
    await wire.produce(session.topic_id, 2)
    bad = await session.fetch({0: [(1, 1, [])]})
    assert (part(bad).acknowledge_error_code, acquired(bad)) == (INVALID, [(12, 13, 1)])
    empty = await session.fetch({0: [(1, 1, [])]}, wait_ms=100)
    assert (part(empty).acknowledge_error_code, acquired(empty)) == (INVALID, [])


async def test_a_fetch_that_releases_what_it_holds_gets_it_again(wire: Wire) -> None:
    session, _ = await _holding_ten(wire)
    answer = await session.fetch({0: [(0, 9, [RELEASE])]})
    assert (part(answer).acknowledge_error_code, acquired(answer)) == (NONE, [(0, 9, 2)])
