"""Quotas at one real node on virtual time: what callers get that wait as they are asked to, and those that do not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import pytest

from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasRequest
from kip932.api.v1.create_topics_pb2 import CreateTopicsRequest
from kip932.api.v1.delete_groups_pb2 import DeleteGroupsRequest
from kip932.api.v1.delete_topics_pb2 import DeleteTopicsRequest
from kip932.api.v1.fetch_pb2 import FetchRequest
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceStreamRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.errors import ThrottlingQuotaExceededError
from sharegroups.aio import Admin, Producer, ShareConsumer
from tests.integration.scenarios.sessions import ACCEPT, Session
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.stage import GROUP, NODE, OPEN, TOPIC, Stage, on_stage

PRODUCE, CONSUME, MUTATE = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
THROTTLED: Final = ThrottlingQuotaExceededError.code
ALICE: Final = "User:alice"
#: The size of the batches here, in bytes.
SIZE: Final = 5_000


async def limit(stage: Stage, user: str = "alice", **quotas: float) -> None:
    """Allow everything to everyone, and set quotas of a user."""
    await stage.allow(*OPEN)
    request = AlterClientQuotasRequest()
    entry = request.entries.add()
    entry.entity.add(entity_type="user", entity_name=user)
    for key, value in quotas.items():
        entry.ops.add(key=key, value=value)
    answer = await stage.admin.call("AlterClientQuotas", request)
    assert [each.error_code for each in answer.entries] == [0], answer


def produce_request(stage: Stage, size: int = SIZE) -> ProduceRequest:
    """Return a request with one batch of this many bytes, in one record."""
    overhead = len(RecordBatch(records=[Record(value=b"v" * (size - 20))]).SerializeToString()) - size
    data = RecordBatch(records=[Record(value=b"v" * (size - 20 - overhead))]).SerializeToString()
    batch = ProduceRequest.Batch(
        record_batch=data, record_count=1, producer_id=-1, producer_epoch=-1, base_sequence=-1, max_timestamp_ms=5
    )
    request = ProduceRequest(acks=-1, timeout_ms=10_000)
    request.topic_data.add(topic_id=stage.topic_id).partition_data.add(index=0, batches=[batch])
    return request


async def fill(stage: Stage, count: int) -> int:
    """Produce batches as the administrator; return their size together."""
    for _ in range(count):
        answer = await stage.admin.call("Produce", produce_request(stage))
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms == 0
    batch = produce_request(stage).topic_data[0].partition_data[0].batches[0]
    return count * len(batch.record_batch)


def clock(stage: Stage) -> float:
    return stage.world.loop.time()


def code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


# ---- producing


@pytest.mark.rule("CM-192")
@on_stage()
async def test_a_producer_that_does_not_wait_gains_nothing(stage: Stage) -> None:
    """20 requests of half a second's bytes each: the first three are free, the others are stored at the rate."""
    await limit(stage, producer_byte_rate=2 * SIZE)
    began, alice, asked = clock(stage), stage.caller(ALICE), []
    for _ in range(20):
        answer = await alice.call("Produce", produce_request(stage))
        assert code(answer) == 0
        asked.append(answer.throttle_time_ms)
    passed = clock(stage) - began
    assert passed == pytest.approx((20 - 3) / 2, abs=0.3)
    assert asked[0] == 0  # half of what may be used at once
    assert asked[3] == pytest.approx(500, abs=100)
    bob = stage.caller("User:bob")
    began = clock(stage)
    assert (await bob.call("Produce", produce_request(stage))).throttle_time_ms == 0
    assert clock(stage) - began < 0.3


@pytest.mark.rule("CM-192")
@on_stage()
async def test_parallel_requests_and_other_connections_of_a_user_share_its_rate(stage: Stage) -> None:
    await limit(stage, producer_byte_rate=2 * SIZE)
    began = clock(stage)
    callers = [stage.caller(ALICE) for _ in range(4)]
    answers = await asyncio.gather(*(each.call("Produce", produce_request(stage)) for each in callers * 4))
    assert [code(answer) for answer in answers] == [0] * 16
    assert clock(stage) - began == pytest.approx((16 - 3) / 2, abs=0.3)


@pytest.mark.rule("CM-192")
@on_stage()
async def test_a_request_that_would_wait_too_long_is_refused_and_not_stored(stage: Stage) -> None:
    await limit(stage, producer_byte_rate=100)
    alice = stage.caller(ALICE)
    first = await alice.call("Produce", produce_request(stage))
    assert (code(first), first.throttle_time_ms) == (0, 30_000)  # 49 s are owed; a client waits for 30 s at most
    began = clock(stage)
    second = await alice.call("Produce", produce_request(stage))
    assert clock(stage) - began < 0.3
    assert (code(second), second.throttle_time_ms) == (THROTTLED, 30_000)
    text = second.responses[0].partition_responses[0].error_message
    assert "nothing was stored, since the quota producer_byte_rate=100 of user-principal 'alice' is used up" in text
    await asyncio.sleep(45)
    third = await alice.call("Produce", produce_request(stage))
    assert [part.base_offset for part in third.responses[0].partition_responses] == [1]
    assert clock(stage) - began == pytest.approx(49, abs=1)


@pytest.mark.rule("CM-192")
@on_stage()
async def test_a_caller_that_gives_up_waiting_owes_nothing_for_it(stage: Stage) -> None:
    await limit(stage, producer_byte_rate=SIZE)
    alice = stage.caller(ALICE)
    for _ in range(2):
        await alice.call("Produce", produce_request(stage))
    waiting = [asyncio.ensure_future(alice.call("Produce", produce_request(stage))) for _ in range(5)]
    await asyncio.sleep(0.2)
    for each in waiting:
        each.cancel()
    await asyncio.sleep(0.2)
    began = clock(stage)
    assert code(await alice.call("Produce", produce_request(stage))) == 0
    assert clock(stage) - began < 1


@pytest.mark.rule("CM-192")
@on_stage()
async def test_a_stream_is_not_read_while_its_request_waits(stage: Stage) -> None:
    await limit(stage, producer_byte_rate=2 * SIZE)
    alice, began = stage.caller(ALICE), clock(stage)
    stream = await alice.transport.open_stream(alice.bootstrap, METHODS["ProduceStream"])
    for number in range(12):
        await stream.write(ProduceStreamRequest(correlation_id=number, request=produce_request(stage)))
    answers: list[Any] = [await stream.read() for _ in range(12)]
    assert [answer.correlation_id for answer in answers] == list(range(12))
    assert [code(answer.response) for answer in answers] == [0] * 12
    assert [answer.response.responses[0].partition_responses[0].base_offset for answer in answers] == list(range(12))
    assert clock(stage) - began == pytest.approx((12 - 3) / 2, abs=0.3)
    assert answers[-1].response.throttle_time_ms > 0
    await stream.close()


# ---- fetching


@pytest.mark.rule("CM-192")
@on_stage()
async def test_a_plain_fetch_that_does_not_wait_gains_nothing(stage: Stage) -> None:
    size = await fill(stage, 20)
    await limit(stage, consumer_byte_rate=2 * SIZE)
    alice, began, offset, calls = stage.caller(ALICE), clock(stage), 0, 0
    while offset < 20:
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
        request.topics.add(topic_id=stage.topic_id).partitions.add(
            partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        answer = await alice.call("Fetch", request)
        (part,) = answer.responses[0].partitions
        assert part.high_watermark == 20
        offset += len(part.records)
        calls += 1
        assert len(part.records) <= 2  # no more than may be used at once
    assert clock(stage) - began >= size / (2 * SIZE) - 2
    assert clock(stage) - began <= size / (2 * SIZE) + 1
    assert calls < 40  # each call waits for the records that it may have


@pytest.mark.rule("PL-532")
@on_stage()
async def test_a_share_fetch_over_the_quota_acquires_nothing_until_it_may(stage: Stage) -> None:
    size = await fill(stage, 20)
    await limit(stage, consumer_byte_rate=2 * SIZE)
    alice = stage.caller(ALICE)
    member = await alice.join(GROUP, [TOPIC])
    session, began, got, empty = Session(alice, GROUP, member, stage.topic_id), clock(stage), 0, 0
    while got < 20:
        answer = await session.fetch(wait_ms=300)
        assert answer.error_code == 0, answer.error_message
        acquired = [
            (each.first_offset, each.last_offset)
            for topic in answer.responses for part in topic.partitions for each in part.acquired_records
        ]  # fmt: skip
        count = sum(last - first + 1 for first, last in acquired)
        assert count <= 2
        empty += not count
        if count:
            acknowledged_s = clock(stage)
            assert await session.ack(acquired[0][0], acquired[-1][1], ACCEPT) == 0
            assert clock(stage) - acknowledged_s < 0.3  # an acknowledgement never waits
        else:
            assert answer.throttle_time_ms > 0
            assert (await alice.summary(GROUP, stage.topic_id)).start_offset >= 0
        got += count
    assert clock(stage) - began == pytest.approx(size / (2 * SIZE) - 1, abs=1.5)
    assert empty > 5
    assert empty < 60  # each waits for 0.3 s or until there are records


@pytest.mark.rule("PL-532")
@on_stage()
async def test_acknowledgements_are_applied_although_their_fetch_is_over_the_quota(stage: Stage) -> None:
    await fill(stage, 4)
    await limit(stage, consumer_byte_rate=100)
    alice = stage.caller(ALICE)
    member = await alice.join(GROUP, [TOPIC])
    session = Session(alice, GROUP, member, stage.topic_id)
    answer = await session.fetch()
    (acquired,) = answer.responses[0].partitions[0].acquired_records
    assert answer.throttle_time_ms == 30_000
    began = clock(stage)
    answer = await session.fetch({0: [(acquired.first_offset, acquired.last_offset, [ACCEPT])]}, wait_ms=500)
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0
    assert not answer.responses[0].partitions[0].acquired_records
    assert answer.throttle_time_ms == 30_000
    assert clock(stage) - began < 1
    assert (await stage.admin.lag(GROUP, TOPIC)) == (acquired.last_offset + 1, 3 - acquired.last_offset)
    beats = await alice.heartbeat(GROUP, member, 1)
    assert clock(stage) - began < 1.5
    assert beats.throttle_time_ms == 0


@pytest.mark.rule("PL-532")
@on_stage()
async def test_a_fetch_that_waits_for_its_quota_ends_with_its_session(stage: Stage) -> None:
    await fill(stage, 4)
    await limit(stage, consumer_byte_rate=100)
    alice = stage.caller(ALICE)
    member = await alice.join(GROUP, [TOPIC])
    session = Session(alice, GROUP, member, stage.topic_id)
    await session.fetch()
    parked = asyncio.ensure_future(session.fetch(wait_ms=20_000))
    await asyncio.sleep(0.5)
    began = clock(stage)
    await session.fetch(epoch=-1)
    await parked
    assert clock(stage) - began < 1


# ---- mutations


@pytest.mark.rule("CM-193", "CL-160")
@on_stage()
async def test_an_admin_client_waits_for_its_quota_and_reports_it_when_that_takes_too_long(stage: Stage) -> None:
    await limit(stage, controller_mutation_rate=0.5)  # six at once, and one every 2 s
    admin: Admin = await client_of(stage, Admin, default_api_timeout_ms=30_000)
    began, names = clock(stage), [f"t{number}" for number in range(10)]
    assert await admin.create_topics(names) == dict.fromkeys(names)
    assert clock(stage) - began == pytest.approx((10 - 6) * 2, abs=1.5)
    assert await admin.create_partitions(dict.fromkeys(names[:3], 2)) == dict.fromkeys(names[:3])
    assert clock(stage) - began == pytest.approx((13 - 6) * 2, abs=1.5)
    assert await admin.delete_topics(names[3:5]) == dict.fromkeys(names[3:5])
    assert clock(stage) - began == pytest.approx((15 - 6) * 2, abs=1.5)
    await admin.close()
    hasty: Admin = await client_of(stage, Admin, default_api_timeout_ms=3_000)
    began = clock(stage)
    errors = await hasty.create_topics(["u0", "u1", "u2", "u3"])
    assert [type(errors[name]) for name in ("u0", "u3")] == [type(None), ThrottlingQuotaExceededError]
    assert clock(stage) - began <= 3.1
    assert set(stage.world.processes[NODE].node.metadata.image.topics) & set(errors) == {
        name for name, error in errors.items() if error is None
    }
    await hasty.close()


def topics(*names: str, partitions: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    request = CreateTopicsRequest(timeout_ms=10_000, validate_only=validate_only)
    for name in names:
        request.topics.add(name=name, num_partitions=partitions, replication_factor=1)
    return request


@pytest.mark.rule("CM-193")
@on_stage()
async def test_topics_beyond_the_quota_are_refused_one_by_one(stage: Stage) -> None:
    await limit(stage, controller_mutation_rate=0.5)  # five at once, and one every 2 s
    alice = stage.caller(ALICE)
    answer = await alice.call("CreateTopics", topics("a", "b", "c", "d", partitions=2))
    assert [topic.error_code for topic in answer.topics] == [0, 0, 0, THROTTLED]
    assert "nothing was changed, since the quota controller_mutation_rate=0.5" in answer.topics[3].error_message
    assert answer.throttle_time_ms == pytest.approx(2_000, abs=200)
    check = await alice.call("CreateTopics", topics("e", validate_only=True))
    assert [topic.error_code for topic in check.topics] == [0]
    delete = DeleteTopicsRequest(timeout_ms=10_000)
    delete.topics.add(name="a")
    refused = await alice.call("DeleteTopics", delete)
    assert [topic.error_code for topic in refused.responses] == [THROTTLED]
    await asyncio.sleep(2.2)
    done = await alice.call("DeleteTopics", delete)
    assert [topic.error_code for topic in done.responses] == [0]
    names = set(stage.world.processes[NODE].node.metadata.image.topics)
    assert {"b", "c"} <= names
    assert not {"a", "d", "e"} & names
    assert [topic.error_code for topic in (await stage.admin.call("CreateTopics", topics("d"))).topics] == [0]


@pytest.mark.rule("CM-193")
@on_stage()
async def test_changes_of_groups_count_too(stage: Stage) -> None:
    await limit(stage, controller_mutation_rate=0.1)  # one at once, and one every 10 s
    alice = stage.caller(ALICE)
    names = ["group-g", "none1", "none2"]
    answer = await alice.call("DeleteGroups", DeleteGroupsRequest(groups_names=names), await alice.coordinator(GROUP))
    codes = {result.group_id: result.error_code for result in answer.results}
    assert codes["group-g"] == 0
    assert list(codes.values()).count(THROTTLED) >= 1
    assert answer.throttle_time_ms > 0


# ---- clients


async def client_of(stage: Stage, kind: Any, **settings: Any) -> Any:
    given = {"bootstrap.servers": f"{NODE}:9000", **{key.replace("_", "."): value for key, value in settings.items()}}
    return kind(given, transport=stage.world.transport(f"host-{kind.__name__}", ALICE))


@contextmanager
def lines_about_quotas() -> Iterator[list[str]]:
    """Return the lines that clients log about their quotas."""
    lines: list[str] = []
    logger, handler = logging.getLogger("sharegroups.connection.quota_waits"), logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


@pytest.mark.rule("CM-192", "CL-160", "CL-163")
@on_stage()
async def test_a_producer_delivers_everything_at_the_rate_and_says_that_it_waits(stage: Stage) -> None:
    await limit(stage, producer_byte_rate=20_000)
    producer: Producer = await client_of(stage, Producer)
    with lines_about_quotas() as lines:
        await _produce_at_the_rate(stage, producer)
    assert len(lines) == 1
    assert "makes this producer wait" in lines[0]
    metrics = {name: value for (_, name), value in producer.metrics().items()}
    assert metrics["produce-throttle-time-max"] >= metrics["produce-throttle-time-avg"] > 0


async def _produce_at_the_rate(stage: Stage, producer: Producer) -> None:
    began = clock(stage)
    rng = Random(1)
    for _ in range(10):
        for _ in range(20):
            await producer.produce(TOPIC, rng.randbytes(2_000))
        await producer.flush()
    await producer.close()
    assert clock(stage) - began == pytest.approx((400_000 - 40_000) / 20_000 - 1, rel=0.1)


@pytest.mark.rule("PL-532", "CL-160", "CL-163")
@on_stage()
async def test_a_consumer_gets_everything_at_the_rate_and_keeps_its_membership(stage: Stage) -> None:
    with lines_about_quotas() as lines:
        await _consume_at_the_rate(stage)
    assert lines
    assert all("makes this consumer wait" in line for line in lines)


async def _consume_at_the_rate(stage: Stage) -> None:
    size = await fill(stage, 40)
    await limit(stage, consumer_byte_rate=SIZE)
    consumer: ShareConsumer = await client_of(stage, ShareConsumer, group_id=GROUP)
    consumer.subscribe([TOPIC])
    began, got = clock(stage), 0
    while got < 40 and clock(stage) - began < 120:
        messages = await consumer.poll(1)
        assert {message.delivery_count() for message in messages} <= {1}
        got += len(messages)
    assert got == 40
    assert clock(stage) - began == pytest.approx(size / SIZE, rel=0.3)
    assert consumer.metrics()["consumer-share-fetch-manager-metrics", "fetch-throttle-time-max"] > 0
    await consumer.commit_sync()
    await consumer.close()
    assert (await stage.admin.lag(GROUP, TOPIC)) == (40, 0)
