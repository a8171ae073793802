"""A DLQ topic is read page by page, up to its end when reading began; unreadable parts are reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import copy_of, store
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ
from .listing import listed, places


@pytest.mark.rule("CT-122", "CT-123")
def test_many_pages_are_listed_in_order_and_each_is_forgotten(queue: FakeCluster) -> None:
    for base in range(0, 3_000, 100):
        store(queue, DLQ, *(copy_of(base + number, value=b"v" * 1_000) for number in range(100)))
    assert [one["origin_offset"] for one in listed()] == list(range(3_000))
    assert len(places("--limit", "1234")) == 1_234


@pytest.mark.rule("CT-122")
def test_a_letter_that_comes_while_it_runs_is_left_to_the_next_time(queue: FakeCluster) -> None:
    log = queue.log(DLQ)
    store(queue, DLQ, copy_of(0))
    read = log.read

    def reading(offset: int, max_bytes: int) -> Any:
        if log.end == 1:
            store(queue, DLQ, copy_of(1))
        return read(offset, max_bytes)

    log.read = reading  # type: ignore[method-assign]
    assert places() == [(0, 0)]
    assert places() == [(0, 0), (0, 1)]


@pytest.mark.rule("CT-122")
def test_records_that_are_deleted_meanwhile_are_passed_over(queue: FakeCluster) -> None:
    for number in range(4):
        store(queue, DLQ, copy_of(number))
    log = queue.log(DLQ)
    queue.errors["fetch"].append(1)
    log.first = 2  # by retention, after the log's beginning was looked up
    starts = iter([0, 2])
    log.offset_for = lambda timestamp: next(starts) if timestamp == -2 else log.end  # type: ignore[method-assign]
    assert places() == [(0, 2), (0, 3)]


@pytest.mark.rule("CT-122")
def test_a_partition_that_cannot_be_read_leaves_the_others_alone(letters: FakeCluster) -> None:
    letters.leaders[letters.partition(DLQ, 0)] = (-1, 2)
    result = sharegroups("dlq", "list", "--topic", DLQ, "--origin", "orders:1")
    assert result.exit_code == 1
    assert f"Error: {DLQ}-0: LEADER_NOT_AVAILABLE" in result.stderr
    assert "orders:1:7" in result.stdout


@pytest.mark.rule("CT-121")
def test_a_batch_that_cannot_be_decoded_is_reported_and_ends_with_1(queue: FakeCluster) -> None:
    queue.log(DLQ).append(b"\xff", 3)
    store(queue, DLQ, copy_of(9))
    assert [one["offset"] for one in listed(status=1)] == [3]
    result = sharegroups("dlq", "list", "--topic", DLQ)
    assert f"Error: {DLQ}-0, offsets 0 to 2: the batch with offsets 0 to 2 cannot be read" in result.stderr


@pytest.mark.rule("CT-122")
def test_what_shows_nothing_before_the_end_reports_how_far_it_has_read(
    queue: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of letters shows them as it goes, and needs no such lines."""
    for number in range(3):
        store(queue, DLQ, copy_of(number, value=b"v" * 600_000))
    clock = iter(range(0, 1_000, 5))
    monkeypatch.setattr("sharegroups.cli.dlq.reading.monotonic", lambda: next(clock))
    said = [f"Reading dead letters: {DLQ}-0, offset {offset} of 3." for offset in (1, 2, 3)]
    for words in (("list", "--summary"), ("purge", "--all", "--dry-run"), ("redrive", "--all", "--dry-run")):
        result = sharegroups("dlq", *words, "--topic", DLQ)
        assert [line for line in result.stderr.splitlines() if line.startswith("Reading")] == said, words
    assert "Reading" not in sharegroups("dlq", "list", "--topic", DLQ).stderr
