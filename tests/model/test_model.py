"""Runs some thousand steps of the comparison in every run of the suite; `make model` runs a million."""

from __future__ import annotations

from collections import Counter
from random import SystemRandom

import pytest

from tests.model.__main__ import HISTORY_STEPS, main, play, reported
from tests.model.pair import DifferenceError, Pair
from tests.model.records import ACQUIRED, Record
from tests.model.store import RULES

FIXED = range(1, 21)
#: What these histories must include; otherwise they would prove less than they claim.
MET = (
    "deliveries taken back", "taken back as often as may be", "delays loaded", "delays ended", "acquired", "hidden",
    "gaps", "holes", "letters", "letters resumed", "log starts", "fail-overs", "read-back",
    "read-back failed", "late write stored", "late write fenced", "repeated", "retiring", "write unanswered, landed",
    "letters over, queue up", "letters over, queue off", "fetches parked", "answered INVALID_RECORD_STATE",
    "settled pieces joined", "reasons loaded", "reasons read back", "letters with a reason",
)  # fmt: skip


@pytest.mark.rule("PL-102", "PL-103", "PL-120", "PL-124", "PL-202", "PL-305", "PL-307", "PL-414", "PL-606", "PL-607")
@pytest.mark.rule("PL-932", "PL-933", "PL-942")
@pytest.mark.rule("PL-608", "PL-621", "PL-703", "PL-704", "PL-705", "PL-707", "PL-803", "PL-915", "PL-1208", "PL-1209")
def test_the_core_and_the_naive_model_agree_after_every_step_of_fixed_histories() -> None:
    seen = Counter[str]()
    for seed in FIXED:
        outcome = play(seed)
        assert not outcome.difference, reported(outcome)
        assert outcome.steps >= HISTORY_STEPS
        seen += outcome.seen
    assert [what for what in MET if not seen[what]] == []


def test_and_of_fresh_ones() -> None:
    first = SystemRandom().randrange(1_000_000, 1_000_000_000)
    for seed in range(first, first + 6):
        outcome = play(seed)
        assert not outcome.difference, reported(outcome)


def test_a_history_is_the_same_each_time() -> None:
    once, again = play(3), play(3)
    assert (once.steps, once.trace, once.seen) == (again.steps, again.trace, again.seen)


def test_a_difference_is_printed_with_its_records_and_the_program_says_the_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(1, RULES)
    pair.load(0, (), {}, False)
    pair.model.records.all[7] = Record(ACQUIRED, 1, (7, 7), "M", 9_000)
    pair.model.records.end = 7
    with pytest.raises(DifferenceError, match="end offset: product 0, model 7"):
        pair.tick()
    monkeypatch.setattr("tests.model.schedule.Schedule.produce", lambda _: 1 / 0)
    outcome = play(11)
    assert "ZeroDivisionError" in outcome.difference
    assert reported(outcome).splitlines()[-1] == f"again: python -m tests.model --seed 11 --steps {HISTORY_STEPS}"
    monkeypatch.undo()
    assert main(["--steps", "1", "--seed", "11", "--processes", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "histories 11 to 11"
    assert lines[-1].startswith("histories=1 steps=4")


def test_what_never_gets_finished_is_a_failure_though_both_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.model.schedule.Schedule.fetch", lambda _: None)
    assert "it stalls at" in play(1).difference
