"""Transactional batches and markers at a leader, which asks the transaction's record about both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kip932.api.v1 import produce_pb2
from kip932.api.v1 import write_txn_markers_pb2 as pb
from kip932.errors import (
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTxnStateError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
)
from kip932.ids import TopicIdPartition
from partition_leader.topic_rpc.markers import MarkerService
from partition_leader.topic_rpc.produce import ProduceService
from tests.unit.partition_leader.topic_log.harness import Cluster, until
from transaction_coordinator.core.transaction import Identity, Transaction, ended, finished, initialised, joined
from transaction_coordinator.records import ReadRecord

from .requests import TOPIC, Directory, only, request, wire_batch

pytestmark = pytest.mark.asyncio

ID = 71
ONE = Identity(ID, 0)


class Records:
    """The record of `tx`, changed by the real rules. `hold`: an event that `join` waits for."""

    def __init__(self) -> None:
        self.known = initialised(None, None, 60_000, ID)
        self.joins = 0
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None

    async def join(self, transactional_id: str, identity: Identity, partitions: Collection[TopicIdPartition]) -> None:
        assert transactional_id == "tx"
        self.joins += 1
        if self.error is not None:
            raise self.error
        self.known = joined(self.known, identity, partitions, 0)
        if self.hold is not None:
            await self.hold.wait()

    async def read(self, transactional_id: str) -> ReadRecord:
        assert transactional_id == "tx"
        return ReadRecord(self.known, 0)

    def decide(self, commit: bool) -> None:
        self.known = ended(self.known, self.known.identity, [], commit=commit)

    def finish(self) -> None:
        made = finished(self.known, self.known.identity, ID)
        assert made is not None
        self.known = made


def transactional(sequence: int = 0, epoch: int = 0, **fields: Any) -> produce_pb2.ProduceRequest:
    numbers = {"producer_id": ID, "producer_epoch": epoch, "base_sequence": sequence, "is_transactional": True}
    made = request(wire_batch(**{**numbers, **fields}))
    made.transactional_id = "tx"
    return made


def marker(commit: bool, epoch: int = 0) -> pb.WriteTxnMarkersRequest:
    made = pb.WriteTxnMarkersRequest()
    one = made.markers.add(producer_id=ID, producer_epoch=epoch, transaction_result=commit, transactional_id="tx")
    one.topics.add(topic_id=TOPIC, partition_indexes=[0])
    return made


def result(response: pb.WriteTxnMarkersResponse) -> Any:
    return response.markers[0].topics[0].partitions[0]


@pytest.mark.rule("CM-153")
async def test_a_partition_joins_once_before_the_first_batch_of_a_transaction() -> None:
    async with Cluster() as cluster:
        log, records = await cluster.node().lead(), Records()
        service = ProduceService(Directory(log), transactions=records)
        for sequence in range(3):
            assert only(await service.produce(transactional(sequence))).error_code == 0
        assert records.joins == 1
        assert records.known.partitions == (TopicIdPartition(TOPIC, 0),)
        assert only(await service.produce(request(wire_batch()))).error_code == 0
        assert log.last_stable == 0


@pytest.mark.rule("CM-153")
@pytest.mark.parametrize("error", [ProducerFencedError, CoordinatorNotAvailableError, InvalidTxnStateError])
async def test_what_the_record_refuses_is_not_appended(error: Callable[[str], Exception]) -> None:
    async with Cluster() as cluster:
        log, records = await cluster.node().lead(), Records()
        records.error = error("no")
        service = ProduceService(Directory(log), transactions=records)
        refused = only(await service.produce(transactional()))
        assert (refused.error_code, refused.error_message) == (records.error.code, "no")  # type: ignore[attr-defined]
        assert log.high_watermark == 0


@pytest.mark.rule("CM-153")
async def test_a_request_is_of_one_transaction_or_of_none() -> None:
    async with Cluster() as cluster:
        log, records = await cluster.node().lead(), Records()
        service = ProduceService(Directory(log), transactions=records)
        outside = transactional()
        outside.ClearField("transactional_id")
        empty = transactional()
        empty.transactional_id = ""
        mixed = transactional()
        mixed.topic_data[0].partition_data[0].batches.add().CopyFrom(
            transactional(epoch=1).topic_data[0].partition_data[0].batches[0]
        )
        no_one = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
        for bad, code in (
            (outside, InvalidRecordError.code),
            (transactional(is_transactional=False), InvalidRecordError.code),
            (transactional(**no_one), InvalidRecordError.code),
            (empty, InvalidRequestError.code),
            (mixed, InvalidRequestError.code),
        ):
            assert only(await service.produce(bad)).error_code == code
        assert log.high_watermark == records.joins == 0


@pytest.mark.rule("CM-150", "CM-153", "CM-155")
async def test_a_batch_that_was_joined_comes_too_late_behind_the_marker() -> None:
    """The process pauses between join and append; meanwhile the transaction is aborted on all partitions."""
    async with Cluster() as cluster:
        log, records = await cluster.node().lead(), Records()
        records.hold = asyncio.Event()
        service, markers = ProduceService(Directory(log), transactions=records), MarkerService(Directory(log), records)
        late = asyncio.ensure_future(service.produce(transactional()))
        await until(lambda: records.joins == 1)
        records.decide(commit=False)
        assert result(await markers.write_txn_markers(marker(commit=False))).error_code == 0
        records.finish()
        records.hold.set()
        assert only(await late).error_code == InvalidProducerEpochError.code
        assert (log.last_stable, log.high_watermark) == (1, 1)


@pytest.mark.rule("CM-155")
@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_says_what_the_record_says_and_nothing_else(commit: bool) -> None:
    async with Cluster() as cluster:
        log, records = await cluster.node().lead(), Records()
        service, markers = ProduceService(Directory(log), transactions=records), MarkerService(Directory(log), records)
        await service.produce(transactional())
        for wrong in (True, False):
            assert result(await markers.write_txn_markers(marker(wrong))).error_code == InvalidTxnStateError.code
        records.decide(commit)
        assert result(await markers.write_txn_markers(marker(not commit))).error_code == InvalidTxnStateError.code
        assert log.high_watermark == 1
        for _ in range(2):
            assert result(await markers.write_txn_markers(marker(commit))).error_code == 0
        records.finish()
        assert result(await markers.write_txn_markers(marker(commit))).error_code == 0
        assert log.high_watermark == log.last_stable == 2
        found = await log.read(0, 1 << 20, committed=True)
        assert bool(found.aborted) is not commit


@pytest.mark.rule("CM-155")
async def test_a_marker_for_a_partition_that_is_led_elsewhere_names_its_leader() -> None:
    async with Cluster() as cluster:
        records = Records()
        records.known = joined(records.known, ONE, [TopicIdPartition(TOPIC, 1)], 0)
        records.decide(commit=True)
        asked = marker(commit=True)
        asked.markers[0].topics[0].partition_indexes[:] = [1]
        answer = await MarkerService(Directory(await cluster.node().lead()), records).write_txn_markers(asked)
        refused = result(answer)
        assert (refused.error_code, refused.current_leader.leader_id) == (NotLeaderOrFollowerError.code, 7)


@pytest.mark.rule("CM-153")
async def test_a_leader_that_took_over_goes_on_without_joining_again() -> None:
    async with Cluster() as cluster:
        one, two, records = cluster.node(), cluster.node(), Records()
        first = ProduceService(Directory(await one.lead()), transactions=records)
        assert only(await first.produce(transactional())).error_code == 0
        log = await two.lead()
        second = ProduceService(Directory(log), transactions=records)
        assert only(await second.produce(transactional(1))).error_code == 0
        assert records.joins == 1
        assert isinstance(records.known, Transaction)
