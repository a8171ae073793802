"""Which dead letters were sent back, for the commands that show letters or delete them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import pytest

from kip932.ids import topic_id_text
from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.dlq import redriven_before, sent_back
from sharegroups.cli.dlq.choosing import choice_of
from sharegroups.cli.dlq.core.dead_letters import Place, fresh_headers, letter_of
from sharegroups.cli.dlq.reading import Found, Reading, queue_of
from sharegroups.cli.dlq.sent_back import Sent, SentBack
from sharegroups.producing.produced import ProducedRecord
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import bare, copy_of, letter_headers, store
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import DLQ, T0
from .listing import listed


@contextmanager
def looking(fake: FakeCluster, within_s: float = inf, *, timed: bool = False) -> Iterator[tuple[SentBack, list[Found]]]:
    """A search, and the records of the queue."""
    with clients.open_client(Admin, {"bootstrap.servers": fake.bootstrap}) as admin:
        queue = queue_of(admin, choice_of(DLQ, None), changes=True)
        yield (
            SentBack(admin, queue, within_s, timed=timed),
            [found for page in Reading(admin, queue).pages() for found in page.found],
        )


def sent(fake: FakeCluster, within_s: float = inf, *, timed: bool = False) -> list[Sent]:
    with looking(fake, within_s, timed=timed) as (search, letters):
        return search.of(letters)


def run(*words: str, status: int = 0, stdin: str | None = None) -> Any:
    result = sharegroups("dlq", *words, stdin=stdin)
    assert result.exit_code == status, result.output
    return result


def fresh(fake: FakeCluster, origin: int, value: bytes = b"v") -> ProducedRecord:
    """The record that the letter `copy_of(origin)` is redriven as."""
    letter = letter_of(letter_headers(origin), b"k", b"v")
    assert letter is not None
    return b"k", value, fresh_headers([], letter, Place(DLQ, topic_id_text(fake.topics[DLQ][0]), 0, 0)), 5_000


@pytest.fixture
def some_sent(queue: FakeCluster) -> FakeCluster:
    """Four letters, of which the first, a copy, and the third, without one, were sent back; and one that is garbled."""
    store(queue, "orders", *((b"k", b"v", (), 5_000) for _ in range(4)), at_ms=T0 - 1_000)
    garbled = [(name, b"x") for name, _ in letter_headers(0)]
    letters: Sequence[ProducedRecord] = (copy_of(0), copy_of(1), bare(2), bare(3), (b"k", b"v", garbled, 5))
    store(queue, DLQ, *letters, at_ms=T0)
    queue.log("orders").now_ms = T0 + 5_000
    for offset in ("0", "2"):
        run("redrive", "--topic", f"{DLQ}:0", "--offset", offset)
    return queue


@pytest.mark.rule("CT-177")
def test_letters_that_were_sent_back_are_known_with_their_time(some_sent: FakeCluster) -> None:
    back, not_back = Sent(True, T0 + 5_000), Sent(False)
    assert sent(some_sent, timed=True) == [back, not_back, back, not_back, not_back]
    assert [one.at_ms for one in sent(some_sent)] == [None] * 5


@pytest.mark.rule("CT-123", "CT-177")
def test_list_and_summary_say_which_were_sent_back(some_sent: FakeCluster) -> None:
    lines = run("list", "--topic", DLQ).stdout.splitlines()[2:]
    assert [line.split()[7] for line in lines] == [
        "sent-back",
        "-",
        "sent-back,headers-only",
        "headers-only",
        "garbled",
    ]
    assert [one["sent_back"] for one in listed()] == [True, False, True, False, False]
    header, row, *_ = run("list", "--group", "g", "--summary").stdout.splitlines()[1:]
    assert header.split()[2:4] == ["LETTERS", "SENT-BACK"]
    assert row.split()[2:4] == ["4", "2"]
    first = json.loads(run("list", "--group", "g", "--summary", "--output", "json").stdout)[0]
    assert (first["sent_back"], first["not_known_whether_sent_back"]) == (2, 0)


@pytest.mark.rule("CT-124", "CT-177")
@pytest.mark.parametrize(
    ("offset", "said"), [(0, "2023-11-14T22:13:25Z"), (1, "no"), (2, "2023-11-14T22:13:25Z"), (4, "no")]
)
def test_show_says_when_it_was_sent_back(some_sent: FakeCluster, offset: int, said: str) -> None:
    words = ("show", "--topic", f"{DLQ}:0", "--offset", str(offset))
    assert f"  Sent back    {said}\n" in run(*words).stdout
    document = json.loads(run(*words, "--output", "json").stdout)
    assert (document["sent_back"], document["sent_back_ms"]) == ((False, None) if said == "no" else (True, T0 + 5_000))


@pytest.mark.rule("CT-128", "CT-177")
def test_a_purge_says_how_many_were_not_sent_back(some_sent: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of CT-128 this shows how many were not sent back (a), and that neither a dry run nor the answer no deletes
    anything. The other counts and the offsets of (a), which letters are deleted, and (b) to (e) are in
    test_purge.py."""
    said = "To be deleted: 5 dead letters and 0 other records.\n3 of the letters were not sent back.\n"
    assert said in run("purge", "--topic", DLQ, "--all", "--dry-run").stdout
    document = json.loads(run("purge", "--topic", DLQ, "--all", "--dry-run", "--output", "json").stdout)
    assert (document["not_sent_back"], document["not_known_whether_sent_back"]) == (3, 0)
    sent_only = run("purge", "--topic", f"{DLQ}:0", "--before-offset", "1", "--dry-run").stdout
    assert "1 dead letters and 0 other records.\nAll of the letters were sent back.\n" in sent_only
    monkeypatch.setattr("sharegroups.cli.dlq.purge.can_ask", lambda: True)
    asked = run("purge", "--topic", DLQ, "--all", status=1, stdin="n\n")
    assert "3 of the letters were not sent back. Delete them?" in asked.stderr
    assert some_sent.log(DLQ).first == 0


@pytest.mark.rule("CT-128", "CT-177")
def test_a_purge_without_a_question_does_not_search(some_sent: FakeCluster) -> None:
    """Of CT-128 this shows that `--all` with `--yes` deletes all; the rest is in test_purge.py."""
    reads, log = list[int](), some_sent.log("orders")
    read = log.read
    log.read = lambda offset, max_bytes: reads.append(offset) or read(offset, max_bytes)  # type: ignore[func-returns-value, method-assign]
    document = json.loads(run("purge", "--topic", DLQ, "--all", "--yes", "--output", "json").stdout)
    assert (document["not_sent_back"], document["not_known_whether_sent_back"]) == (None, None)
    assert reads == []
    assert some_sent.log(DLQ).first == 5


@pytest.mark.rule("CT-177")
def test_a_letter_whose_topic_is_gone_is_not_called_unsent(queue: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    store(queue, DLQ, copy_of(0, topic="gone"), copy_of(1, topic="gone"), copy_of(2))
    note = "of 2 letters it is not known whether they were sent back: there is no topic gone any more"
    result = run("list", "--topic", DLQ)
    assert f"Note: {note}." in result.stderr.splitlines()
    assert [one["sent_back"] for one in listed()] == [None, None, False]
    row = run("list", "--topic", DLQ, "--origin", "gone", "--summary").stdout.splitlines()[2]
    assert row.split()[2:4] == ["2", "-"]
    shown = run("show", "--topic", f"{DLQ}:0", "--offset", "0")
    assert "  Sent back    not known: there is no topic gone any more\n" in shown.stdout
    plan = run("purge", "--topic", DLQ, "--all", "--dry-run").stdout
    assert f"1 of the letters was not sent back.\nO{note[1:]}.\n" in plan
    monkeypatch.setattr("sharegroups.cli.dlq.purge.can_ask", lambda: True)
    asked = run("purge", "--topic", DLQ, "--all", status=1, stdin="n\n")
    assert f"1 of the letters was not sent back. O{note[1:]}. Delete them?" in asked.stderr


@pytest.mark.rule("CT-177")
def test_a_partition_that_cannot_be_read_makes_it_unknown(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0), copy_of(0, partition=1))
    queue.leaders[queue.partition("orders", 1)] = (-1, 2)
    first, second = sent(queue)
    assert first == Sent(False)
    assert second.back is None
    assert second.why.startswith("orders-1 cannot be searched for what was redriven before: ")


@pytest.mark.rule("CT-177")
def test_a_topic_that_the_user_may_not_see_is_not_called_gone(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    with looking(queue) as (search, letters):
        queue.denied.add("DESCRIBE on topic 'orders'")
        (found,) = search.of(letters)
    assert found.back is None
    assert found.why.startswith("orders cannot be described: User:alice has no right"), found.why


@pytest.mark.rule("CT-177")
def test_the_search_goes_back_for_an_earlier_origin(queue: FakeCluster) -> None:
    store(queue, "orders", (b"k", b"v", (), 5_000), (b"k", b"v", (), 5_000), at_ms=T0 - 90_000)
    store(queue, "orders", fresh(queue, 1), at_ms=T0 + 1)
    store(queue, "orders", *((b"k", b"v", (), 5_000) for _ in range(3)), at_ms=T0 + 1)
    store(queue, "orders", fresh(queue, 5), at_ms=T0 + 2)
    store(queue, DLQ, copy_of(5), copy_of(1), copy_of(4), at_ms=T0)
    with looking(queue, timed=True) as (search, letters):
        assert [search.of([one])[0] for one in letters] == [Sent(True, T0 + 2), Sent(True, T0 + 1), Sent(False)]
        assert search.note() == ""


@pytest.mark.rule("CT-177")
def test_a_record_with_other_content_does_not_count(queue: FakeCluster) -> None:
    store(queue, "orders", (b"k", b"v", (), 5_000), fresh(queue, 0, value=b"forged"))
    store(queue, DLQ, copy_of(0))
    assert sent(queue) == [Sent(False)]


@pytest.mark.rule("CT-177")
def test_what_was_not_searched_in_time_is_not_known(queue: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    store(queue, "orders", fresh(queue, 0), at_ms=T0)
    for _ in range(3):
        store(queue, "orders", (None, b"v" * 600_000, (), 5), at_ms=T0)
    store(queue, "orders", (None, b"v", (), 5), partition=1, at_ms=T0)
    store(queue, DLQ, copy_of(0), copy_of(1), copy_of(0, partition=1), at_ms=T0)
    clock_s = 0.0

    def later() -> float:
        nonlocal clock_s
        clock_s += 1
        return clock_s

    for module in (sent_back, redriven_before):
        monkeypatch.setattr(module, "monotonic", later)
    with looking(queue, 4.0) as (search, letters):
        clock_s = 0.0
        first, second, third = search.of(letters)
        assert first == Sent(True), "what was found in time is known"
        place = "was not searched to its end within 4 s, as dlq redrive --dry-run does"
        assert (second, third) == (Sent(None, None, f"orders-0 {place}"), Sent(None, None, f"orders-1 {place}"))
        assert search.note().startswith("of 2 letters it is not known whether they were sent back: orders-0 was not")


def test_only_so_many_partitions_are_searched(queue: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_back, "TARGETS_MAX", 1)
    store(queue, DLQ, copy_of(0), copy_of(0, partition=1))
    assert sent(queue) == [Sent(False), Sent(None, None, "letters are about more than 1 partitions")]
