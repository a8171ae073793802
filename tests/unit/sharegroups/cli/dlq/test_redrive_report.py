"""The report of `dlq redrive`, per page and at the end."""

from __future__ import annotations

import json

import pytest

from sharegroups.cli.dlq.core.dead_letters import Letter, letter_of
from sharegroups.cli.dlq.core.redrive import Fate
from sharegroups.cli.dlq.redrive_report import Report
from tests.support.letters import letter_headers


def letter(group: str = "g", topic: str = "orders") -> Letter:
    made = letter_of(letter_headers(0, topic, group=group), b"k", b"v")
    assert made is not None
    return made


@pytest.mark.rule("CT-127")
def test_a_page_is_reported_by_itself_and_only_when_something_became_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("dlq\x1b", "text", dry_run=False)
    report.end_page(0, 9, None)
    for fate in (Fate.SENT, Fate.SENT, Fate.BEFORE):
        report.count(letter(), fate)
    report.end_page(0, 99, None)
    report.count(letter(), Fate.DUPLICATE)
    report.end_page(1, 7, 5)
    assert capsys.readouterr().out.splitlines() == [
        "dlq\\x1b-0 to offset 99: redriven 2, redriven before 1.",
        "dlq\\x1b-1 to offset 7: duplicates 1; deleted before offset 5.",
    ]


@pytest.mark.rule("CT-127")
def test_a_dry_run_shows_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("dlq", "text", dry_run=True)
    report.count(letter(), Fate.SENT)
    report.end_page(0, 9, None)
    assert capsys.readouterr().out == ""


@pytest.mark.rule("CT-127")
def test_the_sums_are_by_group_and_origin_and_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("dlq", "json", dry_run=False)
    for number in range(1_005):
        report.count(letter(group=f"{number:04}"), Fate.SENT)
    report.fail("dlq-0 offset 1", letter(group="0000", topic="orders"), "why\n")
    report.end_page(0, 1, None)
    report.end(3, {})
    reported = capsys.readouterr()
    page, document = map(json.loads, reported.out.splitlines())
    assert (page["redriven"], page["failed"], page["log_start_offset"]) == (1_005, 1, None)
    assert (document["redriven"], document["failed"], document["unconfirmed"]) == (1_005, 1, 3)
    rows = {(row["group"], row["origin_topic"]): row for row in document["by_origin"]}
    assert len(rows) == 1_001
    assert (rows["(others)", "-"]["redriven"], rows["0000", "orders"]["failed"]) == (5, 1)
    assert reported.err.splitlines() == [
        "Error: dlq-0 offset 1: not redriven: why\\n",
        "3 letters are not confirmed: they may be redriven or not. The next redrive finds out.",
    ]


def test_nothing_is_said_in_the_end_when_nothing_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    Report("dlq", "text", dry_run=False).end(0, {})
    reported = capsys.readouterr()
    assert (reported.out, reported.err) == ("", "")
