"""A producer without callbacks while the cluster is down: lost records are logged, and nothing else changes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kip932.errors import KafkaError, NetworkError
from sharegroups.aio import Producer
from sharegroups.errors import NotSentError
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import play
from tests.support.virtual_time import now_s


def _producer(fake: FakeCluster) -> Producer:
    settings = {"bootstrap.servers": fake.bootstrap, "delivery.timeout.ms": 5_000, "request.timeout.ms": 1_000}
    return Producer(settings, transport=fake.transport())


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_records_that_expire_without_a_callback_are_logged_once_per_partition(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        fake.hold_produce = asyncio.Event()
        async with _producer(fake) as p:
            for number in range(10):
                await p.produce("t", str(number), partition=number % 2)
            assert await p.flush() == 0
        assert now_s() < 10

    play(story, partitions=2)
    reported = _errors(caplog)
    assert sorted(line.split(":")[0] for line in reported) == [
        "5 records were not delivered to t-0",
        "5 records were not delivered to t-1",
    ]
    assert all("REQUEST_TIMED_OUT" in line for line in reported)
    assert {record.name for record in caplog.records if record.levelno >= logging.ERROR} == {
        "sharegroups.producing.sender"
    }


def test_what_still_waits_at_the_end_of_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        fake.hold_produce = asyncio.Event()
        p = _producer(fake)
        await p.produce("t", b"in flight")
        await asyncio.sleep(0.1)
        await p.produce("t", b"waiting")
        await p.close(0.1)

    play(story)
    reported = _errors(caplog)
    assert len(reported) == 2
    assert all("1 record was not delivered to t-0" in line and "was closed before" in line for line in reported)


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_close_gives_up_is_distinguished_by_whether_it_was_sent(is_asked: bool) -> None:
    failures: dict[bytes, type[KafkaError]] = {}

    def done(error: KafkaError | None, report: DeliveryReport) -> None:
        assert error is not None
        failures[report.value() or b""] = type(error)

    async def story(fake: FakeCluster) -> None:
        fake.hold_produce = asyncio.Event()
        p = _producer(fake)
        await p.produce("t", b"held", on_delivery=done)
        if is_asked:
            await asyncio.sleep(0.1)
        await p.produce("t", b"waiting", on_delivery=done)
        await p.close(0.1 if is_asked else 0)

    play(story)
    assert failures == {b"held": NetworkError if is_asked else NotSentError, b"waiting": NotSentError}


def test_records_with_a_callback_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[KafkaError | None] = []

    def done(error: KafkaError | None, report: DeliveryReport) -> None:
        failures.append(error)

    async def story(fake: FakeCluster) -> None:
        fake.hold_produce = asyncio.Event()
        async with _producer(fake) as p:
            await p.produce("t", b"a", on_delivery=done)
            with pytest.raises(KafkaError):
                await p.send("t", b"b")

    play(story)
    assert len(failures) == 1
    assert failures[0] is not None
    assert _errors(caplog) == []
