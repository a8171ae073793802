"""The demo's final report, for people and for programs."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from share_node.demo.command import ProgressBar, outcome_as_json, print_outcome
from share_node.demo.ledger import Ledger, Place, Report
from share_node.demo.run import Outcome, Progress

LOGGED = "WARNING t-0@0: count, delivery 1 of 5, failed: OSError: [x]; it is redelivered in 0.2 s"


def outcome(accepted_directly: int = 1) -> Outcome:
    """An outcome with two records, one delivered twice and one broken; worker 2 was killed."""
    ledger = Ledger(produced={Place("t", 0, 0), Place("t", 0, 1)})
    ledger.add(Report(Place("t", 0, 0), 2, 1, "released", Counter()))
    ledger.add(Report(Place("t", 0, 0), 1, 2, "accepted", Counter(lines=3)))
    ledger.add(Report(Place("t", 0, 1), 1, 1, "rejected", Counter()))
    ledger.letters = 1
    direct = Counter(lines=3)
    found = ledger.discrepancies(direct, accepted_directly, 1)
    return Outcome(ledger, direct, accepted_directly, 1, 0.5, 2, found, [LOGGED])


def printed(reported: Outcome) -> str:
    out = io.StringIO()
    print_outcome(Console(file=out, width=100), "lines of a file", reported)
    return out.getvalue()


def test_programs_get_every_figure() -> None:
    assert outcome_as_json(outcome()) == {
        "produced": 2,
        "accepted": 1,
        "rejected": 1,
        "letters": 1,
        "failed": 1,
        "redelivered": 1,
        "delivery_counts": {1: 1, 2: 1},
        "by_worker": {1: 2, 2: 1},
        "killed_worker": 2,
        "seconds": 0.5,
        "totals": {"lines": 3},
        "direct": {"accepted": 1, "rejected": 1, "lines": 3},
        "discrepancies": [],
    }


@pytest.mark.rule("CM-71")
def test_people_see_both_counts_side_by_side() -> None:
    text = printed(outcome())
    assert "Every record is accounted for; the totals are equal." in text
    assert "1×: 1, 2×: 1" in text
    assert "worker 2" in text
    assert "dead letters about them" in text
    assert LOGGED in text
    assert "DIFFERENT" not in text


def test_people_learn_why_there_are_no_dead_letters() -> None:
    without = outcome()
    without.ledger.letters = None
    text = printed(replace(without, no_letters="its name must begin with dead."))
    assert "none: its name must begin with dead." in text


@pytest.mark.rule("CM-71")
def test_a_discrepancy_is_reported_and_nothing_is_called_equal_in_the_end() -> None:
    text = printed(outcome(accepted_directly=2))
    assert "DIFFERENT" in text
    assert "Error: accepted: 1 through the queue, 2 directly" in text
    assert "Every record is accounted for" not in text


@pytest.mark.rule("CM-71")
def test_progress_is_shown_of_what_was_produced_and_what_is_finished() -> None:
    out = io.StringIO()
    with ProgressBar(Console(file=out, width=100, force_terminal=True)) as bar:
        bar.show(Progress(produced=24, finished=7, sent_all=True))
    text = out.getvalue()
    assert "produced" in text
    assert "24/24" in text
    assert "7/24" in text
