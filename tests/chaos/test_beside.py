"""The stores' experiments as part of `python -m tests.chaos`: selected, run in parallel, reported and judged again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import main
from tests.chaos.beside import Beside
from tests.chaos.history import Acknowledged, Configured, Delivered, Ended, Event, HistoryWriter, Observed, Produced
from tests.chaos.outcome import BAD, GOOD, SKIPPED, Outcome, write_outcome
from tests.chaos.report import closing_line, exit_status, report
from tests.chaos.runner import judge_again
from tests.chaos.stores.catalogue import StoreExperiment, catalogue, default, select
from tests.chaos.stores.runner import STORES, judged
from tests.chaos.stores.trial import WINDOWS_FILE

CLEAN: list[Event] = [
    Configured("g", 2_000, 5, 1),
    Produced("t", 0, 0, "v0", 10),
    Delivered("c", "t", 0, 0, "v0", 1, 19, 20),
    Acknowledged("c", "t", 0, 0, "ACCEPT", 1, "", 29, 30),
    Observed("t", 0, 2, 0, 9_000),
    Ended("c", 0, 9_100),
]
#: A history with a record confirmed at 1,500 that is never delivered.
LOST: list[Event] = [*CLEAN, Produced("t", 0, 1, "v1", 1_500)]


def experiment(name: str = "sentinel-1/lagging_replicas") -> StoreExperiment:
    (found,) = select([name])
    return found


def keep(out: Path, events: list[Event], windows: str = "") -> Outcome:
    """Write the files that an experiment leaves: history, windows and outcome."""
    one = experiment()
    folder = out / one.name
    folder.mkdir(parents=True)
    history = HistoryWriter(folder / "all.jsonl")
    history.write(events)
    history.close()
    if windows:
        (folder / WINDOWS_FILE).write_text(windows)
    outcome = judged(Outcome(one.name, STORES, one.sentence, one.shows, 7, GOOD, seconds=12.0), folder)
    write_outcome(out, outcome)
    return outcome


def test_what_is_lost_in_a_window_is_reported_and_not_counted(tmp_path: Path) -> None:
    outcome = keep(tmp_path, LOST, "[[1000, 2000]]")
    assert (outcome.result, outcome.allowed_lost, outcome.verdict and outcome.verdict.lost) == (GOOD, 1, 0)
    text = report([outcome], tmp_path)
    assert "sentinel-1/lagging_replicas (in cells 'can be lost': lost=1 accepted_twice=0)" in text
    assert text.splitlines()[-1] == "experiments=1 records=2 lost=0 accepted_twice=0 verdict=good"
    assert exit_status([outcome]) == 0


@pytest.mark.parametrize("windows", ["", "[[100, 1400]]"])
def test_what_is_lost_outside_is_counted_and_ends_with_status_1(tmp_path: Path, windows: str) -> None:
    outcome = keep(tmp_path, LOST, windows)
    assert outcome.result == BAD
    assert closing_line([outcome]) == "experiments=1 records=2 lost=1 accepted_twice=0 verdict=BAD"
    assert exit_status([outcome]) == 1


def test_kept_histories_of_stores_are_judged_again_with_their_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = keep(tmp_path, LOST, "[[1000, 2000]]")
    assert judge_again(tmp_path, ()) == [outcome]
    assert main(["--judge", str(tmp_path)]) == 0
    (tmp_path / outcome.name / WINDOWS_FILE).unlink()
    assert main(["--judge", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "experiments=1 records=2 lost=1 accepted_twice=0 verdict=BAD"


def test_stores_that_are_well_do_not_hide_a_driver_that_cannot_run(tmp_path: Path) -> None:
    well = keep(tmp_path, CLEAN)
    skipped = Outcome("services-killed", "containers", "", (), 7, SKIPPED, "needs Docker: there is no daemon")
    assert exit_status([well]) == 0
    assert exit_status([skipped, well]) == 1


def test_lines_are_relayed_and_outcomes_are_read_when_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    expected = keep(tmp_path, CLEAN)
    script = tmp_path / "process"
    script.write_text("#!/bin/sh\necho a line\nexit 3\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    lost = experiment("sentinel-3/master_killed")
    with Beside(tmp_path, 7, [experiment(), lost], said.append) as run:
        found, missing = run.outcomes()
    assert found == expected
    assert said == ["a line"]
    assert (missing.name, missing.result) == (lost.name, BAD)
    assert "left nothing about this one" in missing.reason
    assert exit_status([found, missing]) == 1


def test_a_run_that_is_left_early_ends_what_runs_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "process"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    run = Beside(tmp_path, 7, [experiment()], lambda line: None)
    with pytest.raises(KeyboardInterrupt), run:
        raise KeyboardInterrupt
    assert [outcome.reason for outcome in run.outcomes()] == [
        "the process of these experiments ended with status -15, and left nothing about this one"
    ]


def test_without_experiments_of_stores_nothing_is_started(tmp_path: Path) -> None:
    with Beside(tmp_path, 7, [], lambda line: None) as run:
        assert run.outcomes() == []


def test_names_mean_experiments_of_clusters_and_of_stores(capsys: pytest.CaptureFixture[str]) -> None:
    every = {each.name for each in catalogue()}
    assert {each.name for each in default()} < every
    assert {each.name for each in select(["stores"])} == every
    assert [each.shape.name for each in select(["sentinel-1", "cluster-2/slot_moved"])][-1] == "cluster-2"
    assert all(each.sentence and each.shows for each in catalogue())
    assert main(["--only", "services-killed", "--only", "nonsense"]) == 2
    assert "there is no experiment nonsense" in capsys.readouterr().err
    assert main(["--list"]) == 0
    output = capsys.readouterr().out
    assert all(any(line.startswith(f"{name} ") for line in output.splitlines()) for name in every)
