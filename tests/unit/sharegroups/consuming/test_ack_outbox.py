"""Acknowledgements that wait: how many are sent at once, and when they are retried."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeResponse
from kip932.errors import CoordinatorNotAvailableError, InvalidRecordStateError, KafkaError
from kip932.failures import REASONS_BYTES_MAX
from kip932.ids import ACKNOWLEDGED_RANGES_MAX, TopicIdPartition
from sharegroups.connection.core.backoff import Backoff
from sharegroups.consuming.ack_outbox import AckOutbox, PendingAck
from sharegroups.consuming.core.acknowledgements import AckBatch
from tests.support.virtual_time import now_s, virtual

TOPIC = b"t" * 16


class Owner:
    def __init__(self) -> None:
        self.reported: list[tuple[PendingAck, KafkaError | None]] = []

    def settled(self, ack: PendingAck, error: KafkaError | None) -> None:
        self.reported.append((ack, error))


def outbox(owner: Owner) -> AckOutbox:
    cluster: Any = SimpleNamespace(backoff=lambda: Backoff(100, 1000, lambda: 0.5), request_refresh=lambda: None)
    return AckOutbox(1, cluster, owner)


def ack(partition: int, ranges: int = 1) -> PendingAck:
    delivered: Any = SimpleNamespace(id_partition=TopicIdPartition(TOPIC, partition), generation=0)
    batches = [AckBatch(2 * number, 2 * number, (1,)) for number in range(ranges)]
    return PendingAck(delivered, batches, deadline_ms=60_000)


@pytest.mark.rule("CM-62", "CL-35")
@virtual
async def test_very_many_ranges_travel_in_several_requests() -> None:
    box = outbox(Owner())
    half = ACKNOWLEDGED_RANGES_MAX // 2
    acks = [ack(0, half - 1), ack(1, half), ack(2)]
    for one in acks:
        box.add(one)
    assert not box.fits_one_request
    first = box.take(renewals=True)
    assert first == acks[:2]
    assert sum(len(one.batches) for one in first) <= ACKNOWLEDGED_RANGES_MAX
    assert box.fits_one_request
    assert box.take(renewals=True) == acks[2:]
    assert not box


@pytest.mark.rule("CL-165", "CM-62")
@virtual
async def test_very_many_reasons_travel_in_several_requests() -> None:
    """A request has a bounded size, however many partitions' records were given up at once."""
    box = outbox(Owner())
    acks = [ack(number) for number in range(40)]
    for one in acks:
        one.batches = [AckBatch(offset, offset, (3,), reason="é" * 512) for offset in range(200)]
        box.add(one)
    assert not box.fits_one_request
    sizes = []
    while taken := box.take(renewals=True):
        sizes.append(sum(len(batch.reason.encode()) for one in taken for batch in one.batches))
    assert sum(sizes) == 40 * 200 * 1_024
    assert max(sizes) <= 5 * REASONS_BYTES_MAX
    assert len(sizes) < 20


@pytest.mark.rule("CL-34", "CL-14")
@virtual
async def test_acknowledgements_that_fail_together_make_one_step_of_the_back_off() -> None:
    owner = Owner()
    box = outbox(owner)
    for delay_ms in (100, 200):
        sent = [ack(number) for number in range(10)] if delay_ms == 100 else box.take(renewals=True)
        assert len(sent) == 10
        response = ShareAcknowledgeResponse()
        topic = response.responses.add(topic_id=TOPIC)
        for number in range(10):
            topic.partitions.add(partition_index=number, error_code=15)  # COORDINATOR_NOT_AVAILABLE
        now_ms = int(now_s() * 1000)
        box.acknowledge_answered(sent, response, retry=True)
        assert owner.reported == []
        assert {one.not_before_ms - now_ms for one in box._pending} == {delay_ms}
        await asyncio.sleep(delay_ms / 1000)


@pytest.mark.rule("CL-34")
@pytest.mark.scenario("S-112")
@virtual
async def test_a_retry_that_finds_nothing_acquired_does_not_deny_the_earlier_try() -> None:
    owner, sent = Owner(), ack(0)
    box = outbox(owner)
    for error_code in (15, 121):  # COORDINATOR_NOT_AVAILABLE, INVALID_RECORD_STATE
        response = ShareAcknowledgeResponse()
        response.responses.add(topic_id=TOPIC).partitions.add(partition_index=0, error_code=error_code)
        box.acknowledge_answered([sent], response, retry=True)
        await asyncio.sleep(0.1)
        box.take(renewals=True)
    assert owner.reported == [(sent, sent.unsure)]
    assert isinstance(sent.unsure, CoordinatorNotAvailableError)


@pytest.mark.rule("CL-34")
@virtual
async def test_a_first_try_that_finds_nothing_acquired_says_so() -> None:
    owner, sent = Owner(), ack(0)
    response = ShareAcknowledgeResponse()
    response.responses.add(topic_id=TOPIC).partitions.add(partition_index=0, error_code=121)
    outbox(owner).acknowledge_answered([sent], response, retry=True)
    ((_, error),) = owner.reported
    assert isinstance(error, InvalidRecordStateError)


@pytest.mark.rule("CL-34")
@virtual
async def test_a_partition_that_the_answer_leaves_out_fails_with_invalid_record_state() -> None:
    owner, reported, left_out = Owner(), ack(0), ack(1)
    response = ShareAcknowledgeResponse()
    response.responses.add(topic_id=TOPIC).partitions.add(partition_index=0)
    outbox(owner).acknowledge_answered([reported, left_out], response, retry=True)
    (first, ok), (second, error) = owner.reported
    assert (first, ok, second) == (reported, None, left_out)
    assert isinstance(error, InvalidRecordStateError)
