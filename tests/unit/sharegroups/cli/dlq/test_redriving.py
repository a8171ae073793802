"""The loop of `dlq redrive`: what it produces and deletes, and how it handles failures."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kip932.ids import topic_id_text
from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.dlq.choosing import choice_of
from sharegroups.cli.dlq.reading import Reading, queue_of
from sharegroups.cli.dlq.redrive_report import Report
from sharegroups.cli.dlq.redriven_before import first_origins, targets_of
from sharegroups.cli.dlq.redriving import RedriveTask, Redriving
from sharegroups.producer import Producer
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import bare, copy_of, letter_headers, store
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ, T0
from .sent import Produced, produced

KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE = 56, 10


def redrive(*words: str, status: int = 0) -> Any:
    result = sharegroups("dlq", "redrive", "--topic", DLQ, *words)
    assert result.exit_code == status, result.output
    return result


def values(fake: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [one.value for one in produced(fake, partition=partition)]


@pytest.mark.rule("CT-125")
def test_a_fresh_record_is_the_record_that_failed_and_says_where_it_comes_from(queue: FakeCluster) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b""), ("__dlq.redrive.count", b"3"), ("__dlq.redrive.offset", b"8")]
    store(queue, DLQ, copy_of(0))
    store(queue, DLQ, copy_of(7, b"\xff", None, headers, at_ms=1_234, partition=1), partition=1)
    redrive("--all")
    (fresh,) = produced(queue, partition=1)
    assert fresh == Produced(
        b"\xff",
        None,
        [
            ("a", b"1"),
            ("b", None),
            ("a", b""),
            ("__dlq.redrive.topic", DLQ.encode()),
            ("__dlq.redrive.topic.id", topic_id_text(queue.topics[DLQ][0]).encode()),
            ("__dlq.redrive.partition", b"1"),
            ("__dlq.redrive.offset", b"0"),
            ("__dlq.redrive.group", b"g"),
            ("__dlq.redrive.origin.offset", b"7"),
            ("__dlq.redrive.count", b"4"),
        ],
        1_234,
    )
    assert values(queue) == [b"v"]


@pytest.mark.rule("CT-125")
def test_a_letter_without_a_copy_is_redriven_from_its_origin(queue: FakeCluster) -> None:
    old = [("x", b"y"), ("__dlq.redrive.count", b"1"), *letter_headers(4)]
    store(queue, "orders", *((None, b"job %d" % number, old if number == 3 else (), 77) for number in range(5)))
    store(queue, "orders", (None, b"newer", (), 77), partition=1, at_ms=T0 + 60_000)
    store(queue, DLQ, bare(3), bare(9), bare(0, topic="gone"), bare(0, partition=1), bare(0, partition=7), at_ms=T0)
    said = redrive("--all", status=1).stderr
    (fresh,) = produced(queue, since=5)
    assert (fresh.value, fresh.timestamp_ms) == (b"job 3", 77)
    assert [name for name, _ in fresh.headers][:2] == ["x", "__dlq.redrive.topic"], "no header of another dead letter"
    assert fresh.headers[-1] == ("__dlq.redrive.count", b"2")
    for offset, why in (
        (1, "orders-0 does not have offset 9 any more"),
        (2, "there is no topic gone any more"),
        (3, "orders-1 has another record at offset 0, newer than the letter: the topic was created again"),
        (4, "orders has 2 partitions, and no partition 7"),
    ):
        assert f"Error: {DLQ}-0 offset {offset}: not redriven: {why}\n" in said


@pytest.mark.rule("CT-126")
def test_a_repeated_run_goes_on_where_the_first_one_ended(queue: FakeCluster) -> None:
    for base in range(0, 30, 10):
        store(queue, DLQ, *(copy_of(base + number, value=b"%d" % (base + number)) for number in range(10)))
    redrive("--all", "--limit", "17")
    assert values(queue) == [b"%d" % number for number in range(17)]
    store(queue, DLQ, copy_of(3, value=b"3"), copy_of(29, value=b"29"), copy_of(3, value=b"other", group="h"))
    said = redrive("--all")
    assert values(queue) == [b"%d" % number for number in range(30)] + [b"other"]
    assert f"{DLQ}-0 to offset 32: redriven 14, redriven before 18, duplicates 1.\n" in said.stdout
    redrive("--all")
    assert len(values(queue)) == 31, "nothing is left to do"
    redrive("--origin", "orders", "--again")
    assert len(values(queue)) == 62


@pytest.mark.rule("CT-126")
def test_another_queue_of_the_same_name_is_another_queue(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    redrive("--all")
    queue.topics[DLQ] = (b"made again xxxxx", 0)
    queue.grow_topic(DLQ, 2)
    store(queue, DLQ, copy_of(0))
    assert "redriven 1." in redrive("--all").stdout
    assert len(values(queue)) == 2


@pytest.mark.rule("CT-127")
def test_a_letter_that_is_refused_stays_with_all_behind_it(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0), copy_of(0, partition=1))
    store(queue, DLQ, copy_of(1), copy_of(0), copy_of(1, partition=1))
    store(queue, DLQ, copy_of(2))
    queue.log("orders", 1).produce = lambda batch: (MESSAGE_TOO_LARGE, -1)  # type: ignore[method-assign]
    said = redrive("--all", "--purge", status=1)
    assert len(values(queue)) == 3
    assert queue.log(DLQ).first == 1
    assert f"Error: {DLQ}-0 offset 1: not redriven: MESSAGE_TOO_LARGE: " in said.stderr
    assert said.stdout.splitlines()[-1].split() == ["g", "orders", "3", "0", "1", "2"]
    del queue.log("orders", 1).produce
    redrive("--all", "--purge")
    assert (len(values(queue)), len(values(queue, 1)), queue.log(DLQ).first) == (3, 2, 6)


@pytest.mark.rule("CT-127")
def test_what_was_not_chosen_and_what_is_no_letter_is_not_deleted(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0), copy_of(1), copy_of(2, group="h"), copy_of(3))
    store(queue, DLQ, copy_of(0, partition=1), (b"k", b"v", (), 5), copy_of(1, partition=1), partition=1)
    redrive("--all", "--group", "g", "--purge")
    assert (queue.log(DLQ, 0).first, queue.log(DLQ, 1).first) == (2, 1)
    redrive("--all", "--purge")
    assert (queue.log(DLQ, 0).first, queue.log(DLQ, 1).first) == (4, 1)


@pytest.mark.rule("CT-127")
@pytest.mark.parametrize("last", [True, False])
def test_what_cannot_be_decoded_is_not_deleted(queue: FakeCluster, last: bool) -> None:
    store(queue, DLQ, copy_of(0))
    queue.log(DLQ).append(b"\xff", 3)
    if not last:
        store(queue, DLQ, copy_of(1))
    said = redrive("--all", "--purge", status=1)
    assert (queue.log(DLQ).first, len(values(queue))) == (1, 1 if last else 2)
    assert said.stderr.count("cannot be read") == 1


@pytest.mark.rule("CT-127")
def test_what_cannot_be_decoded_stays_though_a_letter_behind_it_fails_too(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    queue.log(DLQ).append(b"\xff", 3)
    store(queue, DLQ, copy_of(1), bare(9))
    redrive("--all", "--purge", status=1)
    assert (queue.log(DLQ).first, len(values(queue))) == (1, 2)


@pytest.mark.rule("CT-126", "CT-127")
def test_a_letter_with_a_copy_goes_though_an_earlier_one_of_its_origin_could_not(queue: FakeCluster) -> None:
    store(queue, DLQ, bare(0), copy_of(0))
    redrive("--all", "--purge", status=1)
    assert (values(queue), queue.log(DLQ).first) == ([b"v"], 0)
    redrive("--all", "--purge")
    assert (values(queue), queue.log(DLQ).first) == ([b"v"], 2), "its fresh record stands for both"


@pytest.mark.rule("CT-127")
def test_the_limit_ends_the_run_and_the_deletion(queue: FakeCluster) -> None:
    store(queue, DLQ, *(copy_of(number) for number in range(5)))
    assert "WOULD-REDRIVE" in redrive("--all", "--limit", "2", "--purge", "--dry-run").stdout
    redrive("--all", "--limit", "2", "--purge")
    assert (len(values(queue)), queue.log(DLQ).first) == (2, 2)


@pytest.mark.rule("CT-127")
def test_a_deletion_that_fails_is_reported_and_the_letters_are_redriven(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    queue.log(DLQ).delete_before = lambda offset: (KAFKA_STORAGE_ERROR, -1)  # type: ignore[method-assign]
    said = redrive("--all", "--purge", status=1)
    assert f"Error: {DLQ}-0 was not deleted before offset 1: " in said.stderr
    assert len(values(queue)) == 1
    assert "deleted before" not in said.stdout


@pytest.mark.rule("CT-127")
def test_only_the_first_hundred_failures_are_reported_each(queue: FakeCluster) -> None:
    store(queue, DLQ, *(bare(number) for number in range(130)))
    said = redrive("--all", status=1).stderr.splitlines()
    assert len([line for line in said if "not redriven: " in line]) == 100
    assert said[-1] == "Error: 30 more letters were not redriven; list them with: sharegroups dlq list"


@pytest.mark.rule("CT-125", "CT-143", "PL-943")
def test_a_reason_stays_with_the_letter(queue: FakeCluster) -> None:
    """The fresh record has not failed. A letter without a copy has its origin's value, whatever its reason."""
    store(queue, "orders", (b"k0", b"lost job", [("a", b"1")], 5))
    store(queue, DLQ, copy_of(1, headers=[("a", b"1")], reason=b"ValueError: no"), bare(0, reason=b"db down"))
    redrive("--reason", "valueerror")
    assert [one.value for one in produced(queue, since=1)] == [b"v"]
    redrive("--all")
    assert [one.value for one in produced(queue, since=1)] == [b"v", b"lost job"]
    redrive("--reason", "db down", "--again")
    fresh = produced(queue, since=1)
    assert [one.value for one in fresh] == [b"v", b"lost job", b"lost job"]
    assert not any("errors" in name for one in fresh for name, _ in one.headers)


@pytest.mark.rule("CT-127")
def test_garbled_letters_and_hostile_ones_are_not_redriven(queue: FakeCluster) -> None:
    own = [(name, b"\xff" if name.endswith("group") else value) for name, value in letter_headers(0)]
    store(queue, DLQ, (b"k", b"v", own, 5))
    store(queue, DLQ, copy_of(1, at_ms=2**62))
    store(queue, DLQ, copy_of(2, at_ms=-5), copy_of(3, at_ms=2**62 - 1))
    store(queue, DLQ, copy_of(4, topic="\x1b[2J"), copy_of(5, topic=DLQ))
    said = redrive("--all", status=1)
    assert "offset 0: not redriven: its headers are garbled" in said.stderr
    assert f"offset 1: not redriven: its timestamp {2**62} is not a time" in said.stderr
    assert "offset 4: not redriven: there is no topic \\x1b[2J any more" in said.stderr
    assert [one.timestamp_ms for one in produced(queue)] == [-5, 2**62 - 1]
    assert len(produced(queue, DLQ)) == 7, (
        "a letter may have come from its own queue; the run ends before the fresh one"
    )


@pytest.mark.rule("CT-127")
def test_a_partition_that_took_nothing_is_not_tried_for_every_letter(queue: FakeCluster, tmp_path: Path) -> None:
    for number in range(3):
        store(queue, DLQ, copy_of(number), copy_of(number, partition=1, value=b"v" * 600_000))  # one page for each
    queue.log("orders", 1).produce = lambda batch: (KAFKA_STORAGE_ERROR, -1)  # type: ignore[method-assign]
    file = tmp_path / "client.properties"
    file.write_text("delivery.timeout.ms=100", encoding="utf-8")
    said = redrive("--all", "--command-config", str(file), status=1).stderr
    assert len(values(queue)) == 3
    assert "offset 1: not redriven: REQUEST_TIMED_OUT: " in said
    assert said.count("not redriven: orders-1 took nothing before, so this was not tried\n") == 2


@pytest.mark.rule("CT-126")
def test_what_cannot_be_searched_is_not_redriven_blindly(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0), copy_of(0, partition=1))
    queue.leaders[queue.partition("orders", 1)] = (-1, 2)
    said = redrive("--all", status=1)
    assert "orders-1 cannot be searched for what was redriven before: " in said.stderr
    assert (len(values(queue)), len(values(queue, 1))) == (1, 0)


@pytest.mark.rule("CT-127")
def test_after_a_signal_nothing_more_is_sent_and_what_is_not_known_is_said(
    queue: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sharegroups.cli.dlq.redriving.LEAVE_S", 0.05)
    for number in range(3):
        store(queue, DLQ, copy_of(number, value=b"v" * 600_000))
    where = {"bootstrap.servers": queue.bootstrap}
    with clients.open_client(Admin, where) as admin:
        found = queue_of(admin, choice_of(DLQ, None), changes=True)
        firsts = first_origins(Reading(admin, found), lambda number, one: True)
        targets = targets_of(admin, found.topic_id, firsts, search=True)
        producer = clients.open_client(Producer, where)
        queue.hold_produce = asyncio.Event()
        wish = RedriveTask(lambda number, one: True, None, purge=True, producer=producer)
        run = Redriving(admin, Reading(admin, found), targets, wish, Report(DLQ, "text", dry_run=False))
        work = threading.Thread(target=run.run)
        work.start()
        while not run.open:
            work.join(0.01)
        run.leave(lambda seconds: _ended(work, seconds))
        assert not work.is_alive()
        run.print_totals()
        run.print_totals()
    reported = capsys.readouterr()
    assert reported.err == "1 letters are not confirmed: they may be redriven or not. The next redrive finds out.\n"
    assert (reported.out, run.open, len(produced(queue)), queue.log(DLQ).first) == ("", 1, 0, 0)


def _ended(work: threading.Thread, seconds: float) -> bool:
    work.join(seconds)
    return not work.is_alive()
