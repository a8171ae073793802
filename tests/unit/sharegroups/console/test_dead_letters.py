"""The pages of dead letters: counts, lists, one letter; redrive and purge after a dry run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kip932.ids import RESOURCE_TOPIC
from sharegroups.console import letters
from sharegroups.console.tasks import Task
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import copy_of, store
from tests.unit.sharegroups.cli.dlq.sent import produced

from .browser import OwnConsole, text_of
from .conftest import DLQ, T0, Open, lines_of

TOPIC = f"/dlq/topic?topic={DLQ}"
LIST = f"/dlq/letters?topic={DLQ}"


def sent(fake: FakeCluster) -> list[tuple[int, int]]:
    """The letters for which fresh records were produced."""
    found = [one for number in (0, 1) for one in produced(fake, partition=number, since=8)]
    return sorted(one.place for one in found)


@pytest.mark.rule("CT-166")
def test_groups_are_listed_with_their_topic(browser: OwnConsole) -> None:
    text = text_of(browser.get("/dlq"))
    assert f"g {DLQ} 5 letters of the group" in text, "with the records in it"
    assert f"h {DLQ} 5 letters of the group" in text
    assert f"h {DLQ}" not in text_of(browser.get("/dlq?find=g"))


@pytest.mark.rule("CT-164", "CT-166")
def test_letters_are_counted_by_cause_and_reason(browser: OwnConsole) -> None:
    page = browser.until(TOPIC, lambda page: "Counted to the end" in page)
    text = text_of(page)
    assert "4 letters, and 1 other records" in text
    assert "1 0 Offset delivery count exceeded the threshold. TimeoutError g orders" in text
    assert "1 0 Offset delivery count exceeded the threshold. TimeoutError h orders" in text
    of_group = text_of(browser.until(f"{TOPIC}&group=h", lambda page: "Counted to the end" in page))
    assert "1 letters" in of_group


@pytest.mark.rule("CT-161", "CT-166")
def test_a_reason_with_markup_stays_text(browser: OwnConsole) -> None:
    browser.until(TOPIC, lambda page: "Counted to the end" in page)
    for path in (TOPIC, LIST, f"/dlq/letter?topic={DLQ}&partition=0&offset=1"):
        page = browser.get(path)
        assert "<script>alert" not in page
        assert r"&lt;script&gt;alert(1)&lt;/script&gt; \x1b[31m \u202e" in page
        assert not any(evil in page for evil in ("\x1b", "\u202e"))


@pytest.mark.rule("CT-166")
def test_a_list_goes_on_where_a_page_ended(browser: OwnConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharegroups.console.dead_letters.LETTERS_PER_PAGE", 2)
    first = browser.get(LIST)
    assert [place in first for place in ('value="0:0"', 'value="0:1"', 'value="0:2"')] == [True, True, False]
    second = browser.get(f"{LIST}&at=0:2")
    assert 'value="0:2"' in second
    assert 'value="1:0"' in second
    assert "Next, from" not in second


@pytest.mark.rule("CT-166")
def test_a_list_reads_so_many_records_and_no_more(browser: OwnConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharegroups.console.dead_letters.SCANNED_MAX", 1)
    page = browser.get(f"{LIST}&reason=TimeoutError")
    assert "Next, from 0:" in page


@pytest.mark.rule("CT-166")
def test_a_letter_has_its_record_or_the_original(browser: OwnConsole) -> None:
    text = text_of(browser.get(f"/dlq/letter?topic={DLQ}&partition=0&offset=2"))
    assert "About orders:0:2" in text
    assert "The letter has no copy of its record" in text
    assert "job 2" in text
    assert "is not a dead letter" in text_of(browser.get(f"/dlq/letter?topic={DLQ}&partition=0&offset=3"))
    missing = text_of(browser.get(f"/dlq/letter?topic={DLQ}&partition=0&offset=9", status=404))
    assert "has no record at offset 9; it has 0 to 3" in missing


@pytest.mark.rule("CT-165", "CT-166")
def test_a_redrive_is_shown_then_done(browser: OwnConsole, fake: FakeCluster, audit: Path) -> None:
    shown = browser.task(browser.send(browser.get(f"{LIST}&group=g"), "/dlq/redrive?topic=dlq.orders&group=g"))
    assert "Would be redriven" in shown
    assert "g orders 3 0 0 0" in text_of(shown)
    assert sent(fake) == []
    assert lines_of(audit) == []
    store(fake, DLQ, copy_of(4), partition=1)  # after it was shown
    done = browser.task(browser.send(shown, "/task/confirm"))
    assert "g orders 3 0 0 0" in text_of(done)
    assert sent(fake) == [(0, 0), (0, 1), (1, 0)]
    begin, end = lines_of(audit)
    assert (begin["outcome"], end["outcome"]) == ("begins", "done; redriven 3")
    assert begin["number"] == end["number"]
    assert (begin["user"], begin["from"]) == ("User:ANONYMOUS", "testclient")
    assert begin["action"] == "Redrive letters with group 'g' of dlq.orders"


@pytest.mark.rule("CT-164", "CT-166")
def test_what_one_operator_sent_is_not_sent_again(browser: OwnConsole, fake: FakeCluster) -> None:
    shown = [browser.task(browser.send(browser.get(LIST), f"/dlq/redrive?topic={DLQ}")) for _ in range(2)]
    browser.task(browser.send(shown[0], "/task/confirm"))
    again = text_of(browser.task(browser.send(shown[1], "/task/confirm")))
    assert "g orders 0 3 0 0 h orders 0 1 0 0" in again
    assert len(sent(fake)) == 4


@pytest.mark.rule("CT-164")
def test_a_second_redrive_of_the_topic_waits_for_the_first(
    browser: OwnConsole, fake: FakeCluster, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = [browser.task(browser.send(browser.get(LIST), f"/dlq/redrive?topic={DLQ}")) for _ in range(2)]
    held, goes_on, real = threading.Event(), threading.Event(), letters.redrive

    def slow(task: Task, *rest: object) -> None:
        held.set()
        assert goes_on.wait(30)
        real(task, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("sharegroups.console.dead_letters.redrive", slow)
    response = browser.send(shown[0], "/task/confirm")
    assert held.wait(30)
    refused = browser.send(shown[1], "/task/confirm", status=409)
    assert "you are changing dlq.orders at this moment (Redrive all letters of dlq.orders)" in refused.text
    assert lines_of(audit)[-1]["outcome"].startswith("refused: ")
    goes_on.set()
    browser.task(response)
    assert len(sent(fake)) == 4


@pytest.mark.rule("CT-166")
def test_chosen_letters_alone_are_redriven(browser: OwnConsole, fake: FakeCluster) -> None:
    page = browser.get(LIST)
    shown = browser.task(browser.send(page, "/dlq/redrive/chosen", place=["0:1", "1:0"]))
    assert "Redrive 2 chosen letters of dlq.orders: dry run" in text_of(shown)
    browser.task(browser.send(shown, "/task/confirm"))
    assert sent(fake) == [(0, 1), (1, 0)]
    none = browser.send(page, "/dlq/redrive/chosen", status=400)
    assert "No letter is chosen" in none.text
    wrong = browser.send(page, "/dlq/redrive/chosen", status=400, place="x")
    assert "expected partition:offset" in wrong.text


@pytest.mark.rule("CT-166")
def test_a_purge_deletes_what_was_shown(browser: OwnConsole, fake: FakeCluster, audit: Path) -> None:
    browser.until(TOPIC, lambda page: "Counted to the end" in page)
    asked = browser.send(browser.get(TOPIC), "/dlq/purge", status=400)
    assert "Which letters?" in asked.text
    shown = browser.task(browser.send(browser.get(TOPIC), "/dlq/purge", every="yes"))
    assert "Would delete 4 dead letters and 1 other records of dlq.orders" in text_of(shown)
    store(fake, DLQ, copy_of(4), partition=1)
    done = text_of(browser.task(browser.send(shown, "/task/confirm")))
    assert "Deleted 4 dead letters" in done
    assert [fake.log(DLQ, number).first for number in (0, 1)] == [4, 1]
    assert lines_of(audit)[-1]["outcome"] == "done; letters 4, partitions 0 before 4, 1 before 1"


@pytest.mark.rule("CT-166", "CT-177")
def test_what_was_sent_back_is_said_wherever_letters_are_shown(browser: OwnConsole, fake: FakeCluster) -> None:
    counts = browser.until(TOPIC, lambda page: "Counted to the end" in page)
    assert "1 0 Offset delivery count exceeded the threshold. TimeoutError g orders" in text_of(counts)
    shown = browser.task(browser.send(browser.get(f"{LIST}&group=g"), "/dlq/redrive?topic=dlq.orders&group=g"))
    fake.log("orders", 0).now_ms = T0 + 5_000
    browser.task(browser.send(shown, "/task/confirm"))
    counts = browser.until(TOPIC, lambda page: "Counted to the end" in page)  # counted again after the change
    assert "1 1 Offset delivery count exceeded the threshold. TimeoutError g orders" in text_of(counts)
    assert "1 0 Offset delivery count exceeded the threshold. TimeoutError h orders" in text_of(counts)
    rows = browser.get(LIST).split("<tr>")
    assert ["2023-11-14T22:13:25Z" in row for row in rows if 'value="0:' in row] == [True, True, False]
    for offset, said in ((0, "Sent back 2023-11-14T22:13:25Z"), (2, "Sent back no")):
        assert said in text_of(browser.get(f"/dlq/letter?topic={DLQ}&partition=0&offset={offset}"))
    purge = text_of(browser.task(browser.send(browser.get(TOPIC), "/dlq/purge", every="yes")))
    assert "Would delete 4 dead letters and 1 other records" in purge
    assert "1 of the letters was not sent back." in purge


@pytest.mark.rule("CT-166", "CT-177")
def test_where_it_is_not_known_it_is_said_why(browser: OwnConsole, fake: FakeCluster) -> None:
    del fake.topics["orders"]
    note = "of 4 letters it is not known whether they were sent back: there is no topic orders any more."
    assert f"Note: {note}" in text_of(browser.until(TOPIC, lambda page: "Counted to the end" in page))
    assert f"Note: {note}" in text_of(browser.get(LIST))
    letter = text_of(browser.get(f"/dlq/letter?topic={DLQ}&partition=0&offset=0"))
    assert "Sent back not known: there is no topic orders any more" in letter
    assert f"O{note[1:]}" in text_of(browser.task(browser.send(browser.get(TOPIC), "/dlq/purge", every="yes")))


@pytest.mark.rule("CT-166")
def test_a_purge_by_age(browser: OwnConsole, fake: FakeCluster) -> None:
    page = browser.until(TOPIC, lambda page: "Counted to the end" in page)
    wrong = browser.send(page, "/dlq/purge", status=400, older_than="soon")
    assert "'soon' is not a duration" in text_of(wrong.text)
    none = browser.task(browser.send(page, "/dlq/purge", older_than="36500d"))
    assert "There is no such dead letter in dlq.orders." in none
    assert "Delete them" not in none
    shown = browser.task(browser.send(page, "/dlq/purge", older_than="1d"))
    assert "Would delete 4 dead letters" in text_of(shown)


@pytest.mark.rule("CT-166")
def test_nothing_is_done_to_a_topic_that_was_made_again(browser: OwnConsole, fake: FakeCluster, audit: Path) -> None:
    page = browser.get(LIST)
    redrive = browser.task(browser.send(page, f"/dlq/redrive?topic={DLQ}"))
    purge = browser.task(browser.send(page, "/dlq/purge", every="yes"))
    fake.topics[DLQ] = (b"made again xxxxx", 0)
    fake.grow_topic(DLQ, 2)
    store(fake, DLQ, copy_of(0), copy_of(1), at_ms=1)
    for shown in (redrive, purge):
        assert "was created again" in text_of(browser.task(browser.send(shown, "/task/confirm")))
    assert sent(fake) == []
    assert fake.log(DLQ, 0).first == 0
    assert [line["outcome"].startswith("failed: ") for line in lines_of(audit)] == [False, True, False, True]


@pytest.mark.rule("CT-166")
def test_what_is_missing_is_named(browser: OwnConsole, fake: FakeCluster) -> None:
    page = text_of(browser.get("/dlq/letters?topic=dlq.order", status=400))
    assert "Topic dlq.order not found. Did you mean 'dlq.orders'?" in page
    task = browser.until("/dlq/topic?topic=nope", lambda page: "Topic nope not found" in page)
    assert "Counting" not in task
    fake.configs[RESOURCE_TOPIC, DLQ] = {}
    refused = browser.task(browser.post(f"/dlq/redrive?topic={DLQ}", csrf=csrf(browser)))
    assert "is not a dead-letter queue" in refused
    assert "Redrive them" not in refused


@pytest.mark.rule("CT-164")
def test_a_task_is_stopped(browser: OwnConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def endless(task: Task, *_: object) -> None:
        task.total = 10
        while not goes_on.wait(0.001):
            task.step(0)

    monkeypatch.setattr("sharegroups.console.dead_letters.redrive", endless)
    try:
        response = browser.send(browser.get(LIST), f"/dlq/redrive?topic={DLQ}")
        ended = browser.task(browser.send(response.text, "/task/stop"))
    finally:
        goes_on.set()
    assert "It was stopped." in ended
    assert "Redrive them" not in ended


@pytest.mark.rule("CT-163")
def test_read_only_shows_and_changes_nothing(opened: Open, fake: FakeCluster) -> None:
    browser = opened(read_only=True)
    page = browser.until(TOPIC, lambda page: "Counted to the end" in page)
    assert "Redrive" not in page
    shown = browser.task(browser.post(f"/dlq/redrive?topic={DLQ}", csrf=csrf(browser)))
    assert "started with --read-only, so it cannot be done here" in shown
    for path in ("/task/confirm", "/reset/set", "/configs/change"):
        refused = browser.post(path, csrf=csrf(browser), id="x")
        assert refused.status_code == 403
        assert "--read-only" in refused.text
    assert sent(fake) == []


def csrf(browser: OwnConsole) -> str:
    """Return the secret field of the forms of the user on this machine."""
    session = browser.console._local
    assert session is not None
    return session.csrf
