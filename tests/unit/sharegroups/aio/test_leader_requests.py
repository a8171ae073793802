"""The asyncio producer with two requests in flight, against the fake cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from kip932.errors import KafkaError
from kip932.rpc.transport import Transport
from sharegroups.aio import Producer
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.paced import PacedCluster
from tests.support.fake_cluster.silence import SilentTransport
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.virtual_time import now_s

NOT_ENOUGH_REPLICAS = 19
MESSAGE_TOO_LARGE = 10

Reported = list[tuple[str, bytes | None, int]]


class Story:
    """A producer whose batches hold two records, and the delivery reports of its records, in order."""

    def __init__(
        self, fake: FakeCluster, settings: Mapping[str, Any] = MappingProxyType({}), transport: Transport | None = None
    ) -> None:
        self.fake = fake
        self.reported: Reported = []
        common = {"bootstrap.servers": fake.bootstrap, "batch.num.records": 2}
        self.producer = Producer({**common, **settings}, transport=transport or fake.transport())
        buffer = self.producer.sender.buffer
        buffer.follow_bytes = buffer.follow_bytes and 1  # here a batch of two small records is enough for a request

    def hear(self, error: KafkaError | None, report: DeliveryReport) -> None:
        self.reported.append((error.name if error else "", report.value(), report.offset()))

    async def two_in_flight(self) -> None:
        """Store one record. Then, while the leader is silent, produce seven more: three full batches and an open
        one."""
        await self.producer.produce("t", "0", on_delivery=self.hear)
        await self.producer.flush()
        self.fake.hold_produce = asyncio.Event()
        for number in range(1, 8):
            await self.producer.produce("t", str(number), on_delivery=self.hear)
            await asyncio.sleep(0.001)

    async def paced(self, count: int) -> None:
        """Do the same as `two_in_flight`, with `count` records and a leader that responds."""
        await self.producer.produce("t", "0", on_delivery=self.hear)
        await self.producer.flush()
        for number in range(1, count):
            await self.producer.produce("t", str(number), on_delivery=self.hear)
            if number == 1:
                await asyncio.sleep(0.001)
        await self.producer.flush()

    @property
    def in_flight(self) -> list[list[int]]:
        """The records in flight, by request."""
        groups = self.producer.sender.buffer.in_flight()
        return [[int(record[1] or b"") for batch in group.batches for record in batch.records] for group in groups]

    async def go_on(self) -> None:
        assert self.fake.hold_produce is not None
        self.fake.hold_produce.set()
        await self.producer.flush()


@pytest.mark.rule("CL-130")
@on_fake_cluster()
async def test_full_batches_do_not_wait_for_the_answer_before_them(fake: FakeCluster) -> None:
    story = Story(fake)
    async with story.producer:
        await story.two_in_flight()
        assert story.in_flight == [[1], [2, 3]], "the batch behind them may still grow"
        await story.go_on()
        assert story.reported == [("", str(number).encode(), number) for number in range(8)]
        assert fake.log("t").end == 8


@pytest.mark.rule("CL-130")
@pytest.mark.parametrize("settings", [{"enable.idempotence": False}, {"transactional.id": "t"}])
@on_fake_cluster()
async def test_without_numbers_and_in_transactions_one_request_is_in_flight(
    fake: FakeCluster, settings: dict[str, Any]
) -> None:
    story = Story(fake, settings)
    async with story.producer as producer:
        if "transactional.id" in settings:
            await producer.begin_transaction()
        await story.two_in_flight()
        assert story.in_flight == [[1]]
        await story.go_on()
        if "transactional.id" in settings:
            await producer.end_transaction(commit=True)
        assert [value for _, value, _ in story.reported] == [str(number).encode() for number in range(8)]


@pytest.mark.rule("CL-133")
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
        assert story.reported == [("", str(number).encode(), number) for number in range(8)]
        assert fake.log("t").end == 8


@pytest.mark.rule("CL-133")
@on_fake_cluster()
async def test_a_request_that_follows_a_refused_one_goes_again_with_it(fake: FakeCluster) -> None:
    story = Story(fake)
    async with story.producer:
        await story.two_in_flight()
        fake.errors["produce"].append(NOT_ENOUGH_REPLICAS)
        await story.go_on()
        assert story.reported == [("", str(number).encode(), number) for number in range(8)]
        assert fake.log("t").end == 8


@pytest.mark.rule("CL-133")
@on_fake_cluster()
async def test_a_request_that_follows_one_that_can_never_be_stored_is_numbered_again(fake: FakeCluster) -> None:
    story = Story(fake)
    async with story.producer:
        await story.two_in_flight()
        fake.errors["produce"].append(MESSAGE_TOO_LARGE)
        await story.go_on()
        assert story.reported[:2] == [("", b"0", 0), ("MESSAGE_TOO_LARGE", b"1", -1)]
        assert story.reported[2:] == [("", str(number).encode(), number - 1) for number in range(2, 8)]


@pytest.mark.rule("CL-133")
@on_fake_cluster()
async def test_a_producer_that_is_closed_with_two_requests_in_flight_reports_each_record_once(
    fake: FakeCluster,
) -> None:
    story = Story(fake)
    async with story.producer as producer:
        await story.two_in_flight()
        await producer.close(timeout=0.5)
        assert [value for _, value, _ in story.reported] == [str(number).encode() for number in range(8)]
        assert [error for error, _, _ in story.reported] == ["", *["NETWORK_EXCEPTION"] * 7]


@pytest.mark.rule("CL-135")
@on_fake_cluster()
async def test_a_loop_of_calls_lets_other_tasks_run(fake: FakeCluster) -> None:
    story = Story(fake, {"batch.num.records": 1000})
    turns = 0

    async def another_task() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with story.producer as producer:
        await producer.ensure_topic("t")
        task = asyncio.create_task(another_task())
        for number in range(2_560):
            await producer.produce("t", str(number))
        task.cancel()
        assert 9 <= turns <= 10, "one turn after every 256 records, of which the first one starts the task"


@pytest.mark.rule("CL-132")
@on_fake_cluster(kind=PacedCluster)
async def test_no_more_than_five_batches_lie_between_what_may_be_repeated_and_the_newest(fake: PacedCluster) -> None:
    """Of two requests, the first one's response is lost and the second one's arrives. The response to the retry, which
    includes newer batches, is lost too. The leader recognises only the last five batches: exactly these."""
    fake.pace = {2: -0.05, 4: -0.01}
    story = Story(fake)
    async with story.producer:
        await story.paced(16)
        assert [error for error, _, _ in story.reported] == [""] * 16
        assert fake.log("t").end == 16


@pytest.mark.rule("CL-133")
@on_fake_cluster(kind=PacedCluster)
async def test_what_followed_a_record_that_is_given_up_is_stored_though_its_own_answer_was_lost(
    fake: PacedCluster,
) -> None:
    fake.pace = {2: 0.002, 3: -0.005}
    story = Story(fake)
    async with story.producer as producer:
        await producer.produce("t", "0", on_delivery=story.hear)
        await producer.flush()
        fake.errors["produce"].append(MESSAGE_TOO_LARGE)
        for number in range(1, 8):
            await producer.produce("t", str(number), on_delivery=story.hear)
            if number == 1:
                await asyncio.sleep(0.0005)
        await producer.flush()
        assert [(error, value) for error, value, _ in story.reported if error] == [("MESSAGE_TOO_LARGE", b"1")]
        assert fake.log("t").end == 7


@pytest.mark.rule("CL-130")
@pytest.mark.parametrize("is_refused", [False, True])
@on_fake_cluster(partitions=2, kind=PacedCluster)
async def test_a_partition_with_few_records_does_not_wait_for_one_that_is_flooded(
    fake: PacedCluster, is_refused: bool
) -> None:
    story = Story(fake, {"delivery.timeout.ms": 5_000})
    flooding = True

    async def flood() -> None:
        while flooding:
            await story.producer.produce("t", "flood", partition=0)
            await asyncio.sleep(0.001)

    async with story.producer as producer:
        for partition in (0, 1):
            await producer.send("t", "warm", partition=partition)
        task = asyncio.create_task(flood())
        await asyncio.sleep(0.1)
        place = fake.partition("t", 1)
        if is_refused:
            fake.unloadable[place] = NOT_ENOUGH_REPLICAS
        for number in range(8 if is_refused else 1):
            await producer.produce("t", str(number), partition=1, on_delivery=story.hear)
        await asyncio.sleep(0.3)
        fake.unloadable.pop(place, None)
        await asyncio.sleep(1)
        flooding = False
        await task
        assert [error for error, _, _ in story.reported] == [""] * (8 if is_refused else 1)


@on_fake_cluster(nodes=2, partitions=3)
async def test_a_silent_leader_is_given_up_once_the_partitions_of_one_request_have_moved(fake: FakeCluster) -> None:
    transport = SilentTransport(fake.network)
    story = Story(fake, {"bootstrap.servers": "node1:9000"}, transport)
    at: dict[bytes | None, float] = {}
    for partition in (0, 2):  # both are led by node 0
        await story.producer.send("t", "warm", partition=partition)
    transport.silent.add("node0:9000")
    began = now_s()

    def hear(_: KafkaError | None, report: DeliveryReport) -> None:
        at.setdefault(report.value(), now_s())

    for partition in (0, 2):
        for _ in range(3):
            await story.producer.produce("t", str(partition), partition=partition, on_delivery=hear)
        await asyncio.sleep(0.01)
    await asyncio.sleep(4)
    fake.move_leader("t", 0, 1)
    await asyncio.sleep(10)
    assert at[b"0"] - began < 8
    fake.move_leader("t", 2, 1)
    await story.producer.close(30)
    await transport.speak("node0:9000")


@pytest.mark.rule("CL-134", "CL-148")
@pytest.mark.parametrize(("is_refused", "kind"), [(False, RuntimeError), (True, RuntimeError), (False, SystemExit)])
@on_fake_cluster(kind=PacedCluster)
async def test_an_on_delivery_that_raises_keeps_nothing_from_being_reported(
    fake: PacedCluster, is_refused: bool, kind: type[BaseException]
) -> None:
    fake.pace = {2: 0.05, 3: 0.01}  # the second response arrives first
    story = Story(fake)
    problems: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(str(context["message"])))

    def hear(error: KafkaError | None, report: DeliveryReport) -> None:
        story.hear(error, report)
        raise kind("a fault of the application")

    async with story.producer as producer:
        await producer.send("t", "0")
        fake.errors["produce"].extend([MESSAGE_TOO_LARGE] * is_refused)
        for number in range(1, 8):
            await producer.produce("t", str(number), on_delivery=hear)
            if number == 1:
                await asyncio.sleep(0.001)
        assert await producer.flush(10) == 0
        assert [value for _, value, _ in story.reported] == [str(number).encode() for number in range(1, 8)]
        assert [error for error, _, _ in story.reported] == ["MESSAGE_TOO_LARGE" if is_refused else "", *[""] * 6]
    assert problems == ["on_delivery of a record for t-0 raised an exception"] * 7


@pytest.mark.rule("CL-135")
@on_fake_cluster()
async def test_concurrent_calls_keep_their_order(fake: FakeCluster) -> None:
    async with Story(fake).producer as producer:
        reports = await asyncio.gather(*(producer.send("t", str(number)) for number in range(200)))
        assert [report.offset() for report in reports] == list(range(200))
