"""CL-132 and CL-133 over random histories of a producer and two leaders: late, lost, overtaken or refused responses,
and leaders that move.

In every history each record is reported once; a record reported as stored is at the reported offset, once and in order;
a record reported as not sent is not stored anywhere; and no partition has more than five batches in flight.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932.errors import KafkaError
from kip932.record_batches import open_batch
from sharegroups.aio import Producer
from sharegroups.errors import NotSentError
from sharegroups.producing.core.produce_lane import BATCHES_IN_FLIGHT
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.paced import PacedCluster
from tests.support.virtual_time import run

PARTITIONS = 3
RECORDS = 80
NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE = 19, 56, 10

#: Seconds until the response; if negative, the stream breaks after that time, without a response.
_PACES = (0.0, 0.001, 0.01, 0.05, -0.001, -0.03)


class Story:
    """A busy producer, and the delivery reports that it received."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fake = PacedCluster(2)
        self.fake.add_topic("t", PARTITIONS)
        self.fake.pace = {number: self.random.choice(_PACES) for number in range(1, 10 * RECORDS)}
        self.reported: dict[bytes, list[tuple[KafkaError | None, int]]] = {}
        self.is_over = False

    def hear(self, error: KafkaError | None, report: DeliveryReport) -> None:
        self.reported.setdefault(report.value() or b"", []).append((error, report.offset()))

    async def play(self) -> None:
        common = {"bootstrap.servers": self.fake.bootstrap, "request.timeout.ms": 500, "retry.backoff.ms": 5}
        limits = {"batch.num.records": self.random.choice((1, 2, 3)), "delivery.timeout.ms": 60_000}
        producer = Producer({**common, **limits, "retry.backoff.max.ms": 40}, transport=self.fake.transport())
        buffer = producer.sender.buffer
        buffer.follow_bytes = 1
        trouble = asyncio.create_task(self.trouble())
        for number in range(RECORDS):
            partition = self.random.choice((0, 0, 1, 2))
            await producer.produce("t", f"{number}", partition=partition, on_delivery=self.hear)
            if self.random.random() < 0.3:
                await asyncio.sleep(self.random.choice((0, 0.001, 0.01)))
            in_flight = Counter[int]()
            for group in buffer.in_flight():
                in_flight[group.partition.partition] += len(group.batches)
            assert max(in_flight.values(), default=0) <= BATCHES_IN_FLIGHT
        if self.random.random() < 0.3:
            await producer.close(self.random.choice((0, 0.01, 0.1)))
        self.is_over = True
        await trouble
        await producer.flush()
        await producer.close()
        assert (buffer.used_bytes, buffer.records) == (0, 0)

    async def trouble(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self.random.choice((0.005, 0.02)))
            if self.random.random() < 0.2:
                self.fake.move_leader("t", self.random.randrange(PARTITIONS), self.random.randrange(2))
            if self.random.random() < 0.3:
                codes = (NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE)
                self.fake.errors["produce"].append(self.random.choice(codes))

    def judge(self) -> None:
        stored: dict[bytes, list[int]] = {}
        for partition in range(PARTITIONS):
            found: list[bytes] = []
            for batch in self.fake.log("t", partition).batches:
                for place, record in enumerate(open_batch(batch.batch, batch.count)[1]):
                    stored.setdefault(record.value, []).append(batch.base_offset + place)
                    found.append(record.value)
            confirmed = [int(value) for value in found if self.reported[value][0][0] is None]
            assert confirmed == sorted(confirmed)
        assert sorted(map(int, self.reported)) == list(range(RECORDS))
        for value, answers in self.reported.items():
            ((error, offset),) = answers
            if error is None:
                assert stored[value] == [offset]
            elif isinstance(error, NotSentError):
                assert value not in stored
            else:
                assert error.name in {"MESSAGE_TOO_LARGE", "NETWORK_EXCEPTION"}, error


@pytest.mark.rule("CL-132", "CL-133")
@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_each_record_is_reported_once_and_is_where_it_is_said_to_be(seed: int) -> None:
    story = Story(seed)
    run(story.play())
    story.judge()
