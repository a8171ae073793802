"""A batch without producer fields has no producer (CM-110): an absent field differs from 0. Half an identity is
refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kip932.api.v1 import produce_pb2
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.produce import ProduceService
from shard_runtime.cluster import topic_admin
from shard_runtime.rpc.binding import NO_CALLER
from tests.unit.partition_leader.topic_log.harness import Cluster, record_bytes

from .requests import Directory, only, request

pytestmark = pytest.mark.asyncio

PRODUCER = 77


def bare(**fields: Any) -> produce_pb2.ProduceRequest.Batch:
    """A batch with bytes, a record count and `fields`, and nothing else."""
    return produce_pb2.ProduceRequest.Batch(record_batch=record_bytes([b"v"]), record_count=1, **fields)


@asynccontextmanager
async def leading() -> AsyncIterator[tuple[ProduceService, TopicLog]]:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        yield ProduceService(Directory(log)), log


@pytest.mark.rule("CM-110")
async def test_a_stub_that_sets_no_producer_stores_every_record() -> None:
    """Before the fix, the second and every later record got the response NONE with offset 0, and was not stored."""
    async with leading() as (service, log):
        for number in range(5):
            stored = only(await service.produce(request(bare())))
            assert (stored.error_code, stored.base_offset) == (0, number)
        none = bare(producer_id=-1, producer_epoch=-1, base_sequence=-1)
        assert only(await service.produce(request(none))).base_offset == 5
        assert log.high_watermark == 6


@pytest.mark.rule("CM-110")
@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": 0},
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
        {"producer_epoch": 0},
        {"base_sequence": 0},
        {"producer_epoch": 0, "base_sequence": 0},
        {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": PRODUCER, "producer_epoch": 0},
        {"producer_id": PRODUCER, "base_sequence": 0},
        {"producer_id": PRODUCER, "producer_epoch": -1, "base_sequence": -1},
    ],
    ids=str,
)
async def test_half_an_identity_and_producer_0_are_refused_with_what_to_set(fields: dict[str, int]) -> None:
    async with leading() as (service, log):
        refused = only(await service.produce(request(bare(**fields))))
        assert refused.error_code == 87
        assert "producer_id" in refused.error_message or f"producer {PRODUCER}" in refused.error_message
        assert "all three" in refused.error_message
        assert log.high_watermark == 0


@pytest.mark.rule("CM-110", "CM-43")
async def test_a_client_of_before_that_leaves_zeros_out_goes_on_working() -> None:
    """It leaves out the epoch, which is 0, and the sequence of its first batch."""
    async with leading() as (service, log):
        first = only(await service.produce(request(bare(producer_id=PRODUCER))))
        second = bare(producer_id=PRODUCER, base_sequence=1)
        assert (first.error_code, first.base_offset) == (0, 0)
        for _ in range(2):  # the sequence shows that the second attempt is a repetition
            again = only(await service.produce(request(second)))
            assert (again.error_code, again.base_offset) == (0, 1)
        assert log.high_watermark == 2


@pytest.mark.rule("CM-110", "CM-43")
async def test_the_smallest_producer_id_is_a_producers() -> None:
    async with leading() as (service, log):
        for _ in range(2):
            numbered = bare(producer_id=1, producer_epoch=0, base_sequence=0)
            assert only(await service.produce(request(numbered))).base_offset == 0
        assert log.high_watermark == 1


@pytest.mark.rule("CM-110")
async def test_a_batch_without_a_sequence_is_never_taken_for_a_repetition() -> None:
    """A stub that sets its id alone must get an error, not lose its second batch."""
    async with leading() as (service, log):
        assert only(await service.produce(request(bare(producer_id=PRODUCER)))).error_code == 0
        refused = only(await service.produce(request(bare(producer_id=PRODUCER))))
        assert refused.error_code == 46
        assert "base_sequence" in refused.error_message
        whole = bare(producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
        assert only(await service.produce(request(whole))).base_offset == 0  # a repetition, by its sequence
        assert log.high_watermark == 1


@pytest.mark.rule("CM-43a", "CM-110")
async def test_no_producer_is_given_id_0(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Iterator[int] = iter([0, 0, 41])
    monkeypatch.setattr("secrets.randbits", lambda bits: next(drawn))
    admin = topic_admin.TopicAdmin.__new__(topic_admin.TopicAdmin)
    answer = await admin.init_producer_id(InitProducerIdRequest(), NO_CALLER)
    assert (answer.producer_id, answer.producer_epoch) == (41, 0)
