"""ShareStream: many requests of one session over one stream; the session ends when the stream does."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from tests.integration.scenarios.sessions import ACCEPT, Session, acquired, part
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import member, opened, produced, topic

SESSION_NOT_FOUND, INVALID_SESSION_EPOCH = 122, 123
CLOSE = -1


def fetch(session: Session, number: int, epoch: int, session_id: int | None = None, wait_ms: int = 0) -> Any:
    request = ShareFetchRequest(
        group_id=session.group, member_id=session.member, share_session_epoch=epoch, max_wait_ms=wait_ms, min_bytes=1,
        max_bytes=2**31 - 1, max_records=500, batch_size=500,
    )  # fmt: skip
    if session_id is not None:
        request.session_id = session_id
    if epoch == 0:
        request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0)
    return ShareStreamRequest(correlation_id=number, fetch=request)


def accept(session: Session, number: int, epoch: int, session_id: int, last: int) -> Any:
    request = ShareAcknowledgeRequest(
        group_id=session.group, member_id=session.member, share_session_epoch=epoch, session_id=session_id
    )
    ranges = request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0).acknowledgement_batches
    ranges.add(first_offset=0, last_offset=last, acknowledge_types=[ACCEPT])
    return ShareStreamRequest(correlation_id=number, acknowledge=request)


async def asked(stream: Any, message: Any) -> Any:
    await stream.write(message)
    answer = await stream.read()
    assert answer.correlation_id == message.correlation_id
    return answer


@contract
async def test_an_acknowledgement_overtakes_a_fetch_that_waits(services: Services) -> None:
    place = await topic(services)
    session = await member(services, place)
    await session.open()
    await produced(services, place, 2)
    stream = await services.stream("ShareStream", place.leaders[0])
    opening = (await asked(stream, fetch(session, 7, 0, wait_ms=5_000))).fetch
    assert acquired(opening) == [(0, 1, 1)]
    await stream.write(fetch(session, 8, 1, opening.session_id, 20_000))
    acknowledged = await asked(stream, accept(session, 9, 2, opening.session_id, 1))
    assert part(acknowledged.acknowledge).error_code == 0
    await produced(services, place, 1)
    woken = await stream.read()
    assert (woken.correlation_id, acquired(woken.fetch)) == (8, [(2, 2, 1)])
    await stream.close()


@contract
async def test_a_fetch_that_waits_when_its_session_ends_is_refused(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    stream = await services.stream("ShareStream", place.leaders[0])
    opening = (await asked(stream, fetch(session, 1, 0))).fetch
    await stream.write(fetch(session, 2, 1, opening.session_id, 20_000))
    closing = accept(session, 3, CLOSE, opening.session_id, 0)
    closing.acknowledge.ClearField("topics")
    await stream.write(closing)
    answers = {answer.correlation_id: answer for answer in [await stream.read(), await stream.read()]}
    assert answers[2].fetch.error_code == INVALID_SESSION_EPOCH
    assert answers[3].acknowledge.error_code == 0
    await stream.close()


@contract
async def test_refusals_come_over_the_stream_and_leave_it_open(services: Services) -> None:
    place = await topic(services)
    session = await member(services, place)
    stream = await services.stream("ShareStream", place.leaders[0])
    assert (await asked(stream, fetch(session, 1, 1))).fetch.error_code == SESSION_NOT_FOUND
    opening = (await asked(stream, fetch(session, 2, 0))).fetch
    wrong = accept(session, 3, 5, opening.session_id, 0)
    assert (await asked(stream, wrong)).acknowledge.error_code == INVALID_SESSION_EPOCH
    assert (await asked(stream, fetch(session, 4, 1, opening.session_id))).fetch.error_code == 0
    await stream.close()


@contract
async def test_a_session_ends_with_its_stream_and_gives_its_records_back(services: Services) -> None:
    place = await topic(services)
    other = await opened(services, place)
    client = services.another_client()
    session = await member(services, place, other.group)
    await produced(services, place, 2)
    stream = await client.stream("ShareStream", place.leaders[0])
    opening = (await asked(stream, fetch(session, 1, 0, wait_ms=5_000))).fetch
    assert acquired(opening) == [(0, 1, 1)]
    await stream.close()
    assert await other.acquire() == [(0, 1, 2)]
    session.session_id = opening.session_id
    async for _ in attempts():
        if (await session.fetch(epoch=1, wait_ms=0)).error_code == SESSION_NOT_FOUND:
            return
    raise AssertionError("the session is still there")
