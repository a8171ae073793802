"""The asyncio producer with two requests in flight, against the fake cluster, on a loop whose time jumps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import KafkaError
from sharegroups.aio import Producer
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster

NOT_ENOUGH_REPLICAS = 19
MESSAGE_TOO_LARGE = 10

Told = list[tuple[str, bytes | None, int]]


class Story:
    """A producer whose batches hold two records, and what it was told of each record, in order."""

    def __init__(self, fake: FakeCluster, **settings: Any) -> None:
        self.fake = fake
        self.told: Told = []
        common = {"bootstrap.servers": fake.bootstrap, "batch.num.records": 2}
        self.producer = Producer(common | settings, transport=fake.transport())

    def hear(self, error: KafkaError | None, report: DeliveryReport) -> None:
        self.told.append((error.name if error else "", report.value(), report.offset()))

    async def two_in_flight(self) -> None:
        """One record is stored; then seven more are produced while the leader is silent: 3 batches, and an open one."""
        await self.producer.produce("t", "0", on_delivery=self.hear)
        await self.producer.flush()
        self.fake.hold_produce = asyncio.Event()
        for number in range(1, 8):
            await self.producer.produce("t", str(number), on_delivery=self.hear)
            await asyncio.sleep(0.001)

    @property
    def in_flight(self) -> list[list[int]]:
        """The records in flight, by request."""
        groups = self.producer.sender.buffer.in_flight()
        return [[int(record[1] or b"") for batch in group.batches for record in batch.records] for group in groups]

    async def go_on(self) -> None:
        assert self.fake.hold_produce is not None
        self.fake.hold_produce.set()
        await self.producer.flush()


@pytest.mark.rule("CL-130", "P-1")
@on_fake_cluster()
async def test_full_batches_do_not_wait_for_the_answer_before_them(fake: FakeCluster) -> None:
    story = Story(fake)
    async with story.producer:
        await story.two_in_flight()
        assert story.in_flight == [[1], [2, 3]], "the batch behind them may still grow"
        await story.go_on()
        assert story.told == [("", str(number).encode(), number) for number in range(8)]
        assert fake.log("t").end == 8


@pytest.mark.rule("CL-130")
@pytest.mark.parametrize("settings", [{"enable.idempotence": False}, {"transactional.id": "t"}])
@on_fake_cluster()
async def test_without_numbers_and_in_transactions_one_request_is_in_flight(
    fake: FakeCluster, settings: dict[str, Any]
) -> None:
    story = Story(fake, **settings)
    async with story.producer as producer:
        if "transactional.id" in settings:
            await producer.begin_transaction()
        await story.two_in_flight()
        assert story.in_flight == [[1]]
        await story.go_on()
        if "transactional.id" in settings:
            await producer.end_transaction(commit=True)
        assert [value for _, value, _ in story.told] == [str(number).encode() for number in range(8)]


@pytest.mark.rule("CL-130", "CM-43")
@pytest.mark.parametrize("fault", ["produce_stream", "produce_lost"])
@on_fake_cluster()
async def test_two_requests_that_a_broken_stream_loses_are_stored_once_and_in_order(
    fake: FakeCluster, fault: str
) -> None:
    story = Story(fake)
    async with story.producer:
        await story.two_in_flight()
        fake.errors[fault].append(1)
        await story.go_on()
        assert story.told == [("", str(number).encode(), number) for number in range(8)]
        assert fake.log("t").end == 8


@pytest.mark.rule("CL-130", "CM-43")
@on_fake_cluster()
async def test_a_request_that_follows_a_refused_one_goes_again_with_it(fake: FakeCluster) -> None:
    story = Story(fake)
    async with story.producer:
        await story.two_in_flight()
        fake.errors["produce"].append(NOT_ENOUGH_REPLICAS)
        await story.go_on()
        assert story.told == [("", str(number).encode(), number) for number in range(8)]
        assert fake.log("t").end == 8


@pytest.mark.rule("CL-130", "CM-43")
@on_fake_cluster()
async def test_a_request_that_follows_one_that_can_never_be_stored_is_numbered_anew(fake: FakeCluster) -> None:
    story = Story(fake)
    async with story.producer:
        await story.two_in_flight()
        fake.errors["produce"].append(MESSAGE_TOO_LARGE)
        await story.go_on()
        assert story.told[:2] == [("", b"0", 0), ("MESSAGE_TOO_LARGE", b"1", -1)]
        assert story.told[2:] == [("", str(number).encode(), number - 1) for number in range(2, 8)]


@pytest.mark.rule("CL-130")
@on_fake_cluster()
async def test_a_producer_that_is_closed_with_two_requests_in_flight_tells_of_each_record_once(
    fake: FakeCluster,
) -> None:
    story = Story(fake)
    async with story.producer as producer:
        await story.two_in_flight()
        await producer.close(timeout=0.5)
        assert [value for _, value, _ in story.told] == [str(number).encode() for number in range(8)]
        assert [error for error, _, _ in story.told] == ["", *["NETWORK_EXCEPTION"] * 7]


@pytest.mark.rule("CL-130")
@on_fake_cluster()
async def test_a_loop_of_calls_lets_other_tasks_run(fake: FakeCluster) -> None:
    story = Story(fake, **{"batch.num.records": 1000})
    turns = 0

    async def another_task() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with story.producer as producer:
        await producer.ensure_topic("t")
        task = asyncio.create_task(another_task())
        for number in range(640):
            await producer.produce("t", str(number))
        task.cancel()
        assert turns >= 9, "one turn after every 64 records, and the first one starts the task"
