"""Dead letters that were redriven earlier are found in the partitions that they went to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kip932.ids import TopicPartition, topic_id_text
from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.dlq.choosing import choice_of
from sharegroups.cli.dlq.core.dead_letters import Place, fresh_headers, letter_of
from sharegroups.cli.dlq.core.seen_origins import Scope
from sharegroups.cli.dlq.reading import Reading, queue_of
from sharegroups.cli.dlq.redriven_before import First, Targets, first_origins, targets_of
from sharegroups.producing.produced import ProducedRecord
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import copy_of, letter_headers, store

from .conftest import DLQ, T0

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def firsts_of(fake: FakeCluster) -> dict[TopicPartition, First]:
    with clients.open_client(Admin, {"bootstrap.servers": fake.bootstrap}) as admin:
        reading = Reading(admin, queue_of(admin, choice_of(DLQ, None), changes=True))
        return first_origins(reading, lambda number, found: found.record.offset != 0)


def checked(fake: FakeCluster, firsts: dict[TopicPartition, First], *, search: bool = True) -> Targets:
    with clients.open_client(Admin, {"bootstrap.servers": fake.bootstrap}) as admin:
        return targets_of(admin, topic_id_text(fake.topics[DLQ][0]), firsts, search=search)


def fresh(fake: FakeCluster, origin: int, group: str = "g", topic_id: str | None = None) -> ProducedRecord:
    """A redriven record."""
    letter = letter_of(letter_headers(origin, group=group), b"k", b"v")
    assert letter is not None
    place = Place(DLQ, topic_id or topic_id_text(fake.topics[DLQ][0]), 0, 0)
    return b"k", b"v", fresh_headers([], letter, place), 5


def found(targets: Targets, offsets: Sequence[int], group: str = "g", partition: int = 0) -> list[int]:
    return [offset for offset in offsets if targets.before.has_any(Scope(group, "orders", partition), offset)]


@pytest.mark.rule("CT-126")
def test_each_partition_is_read_from_behind_its_first_origin(queue: FakeCluster) -> None:
    own = [(name, b"x") for name, _ in letter_headers(0)]
    store(queue, DLQ, copy_of(1), copy_of(9), (b"k", b"v", own, 5), (None, b"v", (), 5), at_ms=T0 + 7)
    store(queue, DLQ, copy_of(4), at_ms=T0 + 9)
    store(queue, DLQ, copy_of(0, partition=1), copy_of(8, partition=1), partition=1, at_ms=T0)
    assert firsts_of(queue) == {P0: First(4, T0 + 7), P1: First(8, T0)}


@pytest.mark.rule("CT-126")
def test_only_fresh_records_of_this_queue_count_and_only_behind_the_first_origin(queue: FakeCluster) -> None:
    store(queue, "orders", fresh(queue, 1), fresh(queue, 2), (b"k", b"v", (), 5))
    store(queue, "orders", fresh(queue, 3), fresh(queue, 4, topic_id="another"), fresh(queue, 5, group="h"))
    store(queue, "orders", fresh(queue, 6), partition=1)
    targets = checked(queue, {P0: First(0, T0), P1: First(0, T0)})
    assert found(targets, range(9)) == [2, 3]
    assert found(targets, range(9), group="h") == [5]
    assert found(targets, range(9), partition=1) == []
    assert targets.faults == {}
    assert found(checked(queue, {P0: First(3, T0)}), range(9)) == []
    assert found(checked(queue, {P0: First(0, T0)}, search=False), range(9)) == []
    queue.log("orders").delete_before(2)
    assert found(checked(queue, {P0: First(0, T0)}), range(9)) == [3], "deleted records must not prevent the search"


@pytest.mark.rule("CT-126")
@pytest.mark.parametrize(("begins_ms", "is_found"), [(T0 - 60_001, False), (T0 - 60_000, True), (T0 + 5, True)])
def test_a_topic_that_may_have_been_made_again_is_read_from_its_start(
    queue: FakeCluster, begins_ms: int, is_found: bool
) -> None:
    store(queue, "orders", (None, b"v", (), 5), at_ms=begins_ms)
    store(queue, "orders", fresh(queue, 50), at_ms=T0 + 5)
    assert found(checked(queue, {P0: First(50, T0)}), [50]) == [50] * is_found


@pytest.mark.rule("CT-127")
def test_partitions_that_are_not_there_are_named(queue: FakeCluster) -> None:
    gone, seventh = TopicPartition("gone", 0), TopicPartition("orders", 7)
    targets = checked(queue, dict.fromkeys([gone, seventh, P0], First(0, T0)))
    assert targets.faults == {
        gone: "there is no topic gone any more",
        seventh: "orders has 2 partitions, and no partition 7",
    }


def test_letters_about_too_many_partitions_are_refused(queue: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    for base in range(0, 10_100, 1_000):
        store(queue, DLQ, *(copy_of(0, partition=base + number) for number in range(1_000)))
    with pytest.raises(SystemExit):
        firsts_of(queue)
    assert "about more than 10000 partitions. Choose fewer of them, with --origin" in capsys.readouterr().err


def test_a_long_search_is_reported(
    queue: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        store(queue, "orders", (None, b"v" * 600_000, (), 5))
    clock = iter(range(0, 100, 5))
    monkeypatch.setattr("sharegroups.cli.dlq.redriven_before.monotonic", lambda: next(clock))
    checked(queue, {P0: First(-1, T0)})
    assert capsys.readouterr().err.splitlines() == [
        f"Looking for what was redriven before: orders-0, offset {offset} of 3." for offset in (1, 2, 3)
    ]
