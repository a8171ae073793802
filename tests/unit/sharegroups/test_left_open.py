"""The log line about a producer that was never closed, and that this keeps nothing in memory."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import weakref

import pytest

from sharegroups.aio import Producer
from sharegroups.left_open import LeftRecords


class Buffer:
    def __init__(self, records: int) -> None:
        self.records = records


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "sharegroups")
    return caplog


@pytest.mark.parametrize(("records", "reported"), [(3, 1), (0, 0)])
def test_records_that_wait_are_reported_once(lines: pytest.LogCaptureFixture, records: int, reported: int) -> None:
    left = LeftRecords(Buffer(records))
    left.warn()
    left.warn()
    del left
    gc.collect()
    assert [line.startswith("3 records of a producer") for line in lines.messages] == [True] * reported


def test_of_a_closed_producer_and_of_the_parents_nothing_is_reported(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, forked = LeftRecords(Buffer(3)), LeftRecords(Buffer(3))
    closed.done()
    forks = os.getpid() + 1
    monkeypatch.setattr("os.getpid", lambda: forks)
    del closed, forked
    gc.collect()
    assert not lines.messages


def test_a_producer_that_is_not_closed_is_collected_with_its_records_and_they_are_reported(
    lines: pytest.LogCaptureFixture,
) -> None:
    reported: list[object] = []

    async def main() -> weakref.ref[Producer]:
        producer = Producer(bootstrap_servers="127.0.0.1:1")
        record = producer.record(b"x", None, None, None)
        producer.sender.buffer.append(("t", 0), record, 1, 0, lambda *_: reported.append(producer))
        return weakref.ref(producer)

    gone = asyncio.run(main())
    gc.collect()
    assert gone() is None
    assert [line.startswith("1 records of a producer") for line in lines.messages] == [True]
