"""The runner's own parts, without a cluster: verdicts from histories, report, closing line, exit status, skips."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.chaos import runner
from tests.chaos.__main__ import main
from tests.chaos.deployment import Deployment, Unsupported, open_deployment
from tests.chaos.experiments import catalogue, select
from tests.chaos.experiments.definition import Definition
from tests.chaos.history import (
    Acknowledged,
    Configured,
    Delivered,
    Ended,
    Event,
    Fault,
    HistoryWriter,
    Observed,
    Produced,
)
from tests.chaos.load import LoadOptions, Tail
from tests.chaos.outcome import BAD, GOOD, SKIPPED, Outcome, write_outcome
from tests.chaos.report import BOUND_MS, closing_line, exit_status, report
from tests.chaos.runner import RUN_SETTINGS, TOPOLOGIES, Runner, judge_again, open_richest
from tests.chaos.verdict import Recovered, judge_history, longest_stall, recoveries

CLEAN: list[Event] = [
    Configured("g", 2_000, 5, 0),
    Produced("t", 0, 0, "v0", 1),
    Delivered("w1", "t", 0, 0, "v0", 1, 9, 10),
    Acknowledged("w1", "t", 0, 0, "ACCEPT", 1, "", 19, 20),
    Observed("t", 0, 1, 0, 100),
    Ended("w1", 0, 110),
]
LOST: list[Event] = [*CLEAN, Produced("t", 0, 1, "v1", 2)]
ACCEPTED_TWICE: list[Event] = [*CLEAN, Delivered("w2", "t", 0, 0, "v0", 2, 29, 30)]


class FakeTrial:
    """Writes a history instead of running anything."""

    def __init__(self, deployment: Deployment, folder: Path, seed: int, topic: str, options: LoadOptions) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def finish(self) -> None: ...


class FakeDeployment:
    """Can be entered and left; returns its nodes' logs."""

    def __init__(self, said: str = "") -> None:
        self.said = said
        self.ends = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ends += 1

    def logs(self) -> dict[str, str]:
        return {"partition_leader-0": self.said}


def quiet(line: str) -> None: ...


def leaving(events: list[Event]) -> Callable[[Any], None]:
    def run(trial: Any) -> None:
        write(trial.folder, events)

    return run


def write(folder: Path, events: list[Event]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    history = HistoryWriter(folder / "all.jsonl")
    history.write(events)
    history.close()


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Outcome]]:
    monkeypatch.setattr(runner, "Trial", FakeTrial)

    def run(*definitions: Definition, deployment: Any = None, say: Callable[[str], None] = quiet) -> list[Outcome]:
        found: Any = deployment or FakeDeployment()
        return Runner("processes", 7, tmp_path, say, lambda driver, folder: found).run(definitions)

    return run


def experiment(run: Callable[[Any], None], **more: Any) -> Definition:
    return Definition(more.pop("name", "made-up"), "A made up one", ("S-999",), run, **more)


@pytest.mark.parametrize(
    ("events", "line", "status"),
    [
        pytest.param(CLEAN, "experiments=1 records=1 lost=0 accepted_twice=0 verdict=good", 0, id="clean"),
        pytest.param(LOST, "experiments=1 records=2 lost=1 accepted_twice=0 verdict=BAD", 1, id="lost"),
        pytest.param(
            ACCEPTED_TWICE, "experiments=1 records=1 lost=0 accepted_twice=1 verdict=BAD", 1, id="accepted twice"
        ),
    ],
)
def test_closing_line_and_status_are_counted_in_the_histories(
    events: list[Event], line: str, status: int, play: Callable[..., list[Outcome]], tmp_path: Path
) -> None:
    outcomes = play(experiment(leaving(events)))
    assert closing_line(outcomes) == line
    assert exit_status(outcomes) == status
    assert report(outcomes, tmp_path).splitlines()[-1] == line


def test_a_kept_history_that_is_made_bad_is_judged_bad_with_status_1(
    play: Callable[..., list[Outcome]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kept,) = play(experiment(leaving(CLEAN), name="services-killed"))
    assert kept.result == GOOD
    assert main(["--judge", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "experiments=1 records=1 lost=0 accepted_twice=0 verdict=good"
    write(tmp_path / "services-killed", LOST[-1:])
    assert main(["--judge", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "experiments=1 records=2 lost=1 accepted_twice=0 verdict=BAD"
    assert "INV-1" in said
    assert (tmp_path / "report.txt").read_text() in said.lstrip("\n") + "\n"


def test_a_check_of_the_experiment_itself_decides_too(play: Callable[..., list[Outcome]]) -> None:
    (outcome,) = play(experiment(leaving(CLEAN), checks=(lambda events: ["the story went another way"],)))
    assert outcome.result == BAD
    assert exit_status([outcome]) == 1
    assert "the story went another way" in outcome.line()
    assert closing_line([outcome]) == "experiments=1 records=1 lost=0 accepted_twice=0 verdict=BAD"


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        pytest.param([*CLEAN[:-1], Ended("w1", 1, 110)], "worker w1 ended with 1", id="worker failed"),
        pytest.param([], "no record was confirmed", id="nothing happened"),
    ],
)
def test_a_history_that_shows_nothing_or_a_failed_worker_is_bad(events: list[Event], problem: str) -> None:
    assert problem in judge_history(events).violations


def test_a_worker_that_was_killed_on_purpose_need_not_end_in_good_order() -> None:
    killed = [*CLEAN[:-1], Ended("w1", -1, 110, killed=True)]
    assert not any("ended with" in problem for problem in judge_history(killed).violations)


def test_an_error_while_it_runs_is_bad_and_the_next_one_gets_a_new_cluster(play: Callable[..., list[Outcome]]) -> None:
    def breaks(trial: Any) -> None:
        write(trial.folder, CLEAN)
        raise AssertionError("no leader of t-0 within 20 s")

    cluster = FakeDeployment()
    outcomes = play(experiment(breaks), experiment(leaving(CLEAN), name="next"), deployment=cluster)
    assert [outcome.result for outcome in outcomes] == [BAD, GOOD]
    assert "no leader of t-0" in outcomes[0].reason
    assert cluster.ends == 2
    assert exit_status(outcomes) == 1


#: One more record whose end is unknown: the last observation was before it, or shows a lag, or does not exist.
PRODUCED_LATER: list[Event] = [*CLEAN, Produced("t", 0, 1, "v1", 101)]
STILL_LAGS: list[Event] = [*CLEAN, Produced("t", 0, 1, "v1", 2), Observed("t", 0, 1, 1, 101)]
NEVER_OBSERVED: list[Event] = [*CLEAN, Produced("t", 1, 0, "v1", 2)]
NOT_FINISHED: list[Event] = [*STILL_LAGS, Delivered("w1", "t", 0, 1, "v1", 1, 9, 10)]


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        pytest.param(PRODUCED_LATER, (2, 0, 1), id="no observation since"),
        pytest.param(STILL_LAGS, (2, 0, 1), id="lag"),
        pytest.param(NEVER_OBSERVED, (2, 0, 1), id="never observed"),
        pytest.param(NOT_FINISHED, (2, 0, 1), id="not finished"),
        pytest.param(LOST, (2, 1, 0), id="lost all the same"),
        pytest.param(
            [*LOST, Produced("t", 1, 0, "v2", 2)],
            (3, 1, 1),
            id="one partition drained, the other not",
        ),
    ],
)
@pytest.mark.parametrize("aborted", [True, False])
def test_what_was_not_drained_is_undecided_not_lost_and_bad_all_the_same(
    events: list[Event],
    counts: tuple[int, int, int],
    aborted: bool,
    play: Callable[..., list[Outcome]],
    tmp_path: Path,
) -> None:
    def run(trial: Any) -> None:
        write(trial.folder, events)
        if aborted:
            raise AssertionError("partition_leader-0 is not ready after 60 s")

    outcomes = play(experiment(run))
    assert [outcome.result for outcome in outcomes] == [BAD]
    text = report(outcomes, tmp_path)
    records, lost, undecided = counts
    assert ("not ready after 60 s" in text) == aborted
    assert (f"not drained: {undecided} records undecided" in text) == bool(undecided)
    assert text.splitlines()[-1] == f"experiments=1 records={records} lost={lost} accepted_twice=0 verdict=BAD"
    assert exit_status(outcomes) == 1


def test_a_traceback_in_a_log_is_bad_once(play: Callable[..., list[Outcome]]) -> None:
    said = FakeDeployment("starting\nTraceback (most recent call last):\n")
    (outcome,) = play(experiment(leaving(CLEAN)), deployment=said)
    assert outcome.result == BAD
    assert outcome.problems() == ["log of partition_leader-0: Traceback (most recent call last):"]


def test_what_a_driver_cannot_do_is_skipped_with_its_reason(play: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    def cannot(trial: Any) -> None:
        raise Unsupported("latency needs a proxy")

    said: list[str] = []
    outcomes = play(experiment(cannot, name="delays"), experiment(leaving(CLEAN)), say=said.append)
    assert [outcome.result for outcome in outcomes] == [SKIPPED, GOOD]
    assert "latency needs a proxy" in said[0]
    assert "latency needs a proxy" in report(outcomes, tmp_path)
    assert closing_line(outcomes).startswith("experiments=1 ")
    assert exit_status(outcomes) == 0
    assert closing_line(outcomes[:1]).endswith(" verdict=BAD")
    assert exit_status(outcomes[:1]) == 1, "a run in which everything was skipped shows nothing"


def test_a_driver_that_cannot_run_here_skips_every_experiment(tmp_path: Path) -> None:
    def cannot(driver: str, folder: Path) -> Deployment:
        raise Unsupported("needs Docker: there is no daemon")

    outcomes = Runner("containers", 7, tmp_path, quiet, cannot).run(catalogue())
    assert {outcome.result for outcome in outcomes} == {SKIPPED}
    assert {outcome.reason for outcome in outcomes} == {"needs Docker: there is no daemon"}
    assert exit_status(outcomes) == 1


def test_an_unknown_driver_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="there is no driver steam"):
        open_deployment("steam", tmp_path, TOPOLOGIES[0], RUN_SETTINGS)


def test_a_poorer_cluster_is_taken_where_a_driver_has_no_sentinel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def opened(driver: str, folder: Path, topology: Any, settings: Any) -> Any:
        asked.append(topology)
        if topology.sentinels:
            raise Unsupported("no Sentinel")
        return FakeDeployment()

    monkeypatch.setattr(runner, "open_deployment", opened)
    assert isinstance(open_richest("processes", tmp_path), FakeDeployment)
    assert asked == list(TOPOLOGIES[:2])


def test_outcomes_survive_their_files(play: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    events = [*CLEAN, Fault("SIGKILL", "partition_leader-0", 5)]
    (outcome,) = play(experiment(leaving(events)))
    write_outcome(tmp_path, outcome)
    read = Outcome.of(json.loads((tmp_path / "made-up" / "outcome.json").read_text()))
    assert read == outcome
    assert dataclasses.asdict(read) == dataclasses.asdict(outcome)


def test_a_folder_without_outcomes_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="holds no outcome"):
        judge_again(tmp_path, catalogue())
    assert main(["--judge", str(tmp_path)]) == 2
    assert "holds no outcome" in capsys.readouterr().err


def acked(partition: int, sent_ms: int, error: str = "") -> Acknowledged:
    return Acknowledged("w1", "t", partition, 0, "ACCEPT", 1, error, sent_ms, sent_ms + 5)


def test_recovery_of_a_leader_is_that_of_the_partition_that_waited_longest() -> None:
    events: list[Event] = [
        acked(0, 50),
        acked(1, 60),
        Fault("SIGKILL", "partition_leader-1", 100),
        acked(0, 110),
        acked(1, 120, "NOT_LEADER_OR_FOLLOWER"),
        acked(1, 3_000),
        Produced("t", 0, 9, "v9", 4_000),
    ]
    assert list(recoveries(events)) == [Recovered("partition_leader", 2_905)]


def test_recovery_of_a_killed_consumer_is_that_of_the_partition_that_waited_longest() -> None:
    events: list[Event] = [
        acked(0, 50),
        acked(1, 60),
        Fault("SIGKILL of a consumer", "consumer1", 100),
        acked(0, 110),
        acked(1, 2_300),
        Produced("t", 0, 9, "v9", 4_000),
    ]
    assert list(recoveries(events)) == [Recovered("consumer", 2_205)]


def test_recovery_of_a_group_coordinator_counts_observations_that_were_asked_for_after_the_kill() -> None:
    events: list[Event] = [
        Fault("SIGKILL", "group_coordinator-0", 100),
        Observed("t", 0, 1, 0, 130, asked_ms=90),
        Observed("t", 0, 1, 0, 2_100, asked_ms=140),
        Produced("t", 0, 9, "v9", 4_000),
    ]
    assert list(recoveries(events)) == [Recovered("group_coordinator", 2_000)]


def test_a_kill_that_another_fault_interrupts_is_not_measured() -> None:
    events: list[Event] = [
        acked(0, 50),
        Fault("SIGKILL", "share_coordinator-0", 100),
        Fault("SIGKILL", "store-0", 200),
        acked(0, 5_000),
        Produced("t", 0, 9, "v9", 6_000),
    ]
    assert list(recoveries(events)) == []


def test_stalls_are_gaps_between_confirmed_acknowledgements_while_records_come() -> None:
    events: list[Event] = [acked(0, 0), acked(1, 100), acked(0, 900), Produced("t", 0, 9, "v9", 1_000), acked(1, 9_000)]
    stall = longest_stall(events)
    assert (stall.any_ms, stall.partition_ms) == (800, 900)


def test_the_report_compares_recoveries_with_the_bound(play: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    slow: list[Event] = [
        *CLEAN,
        Fault("SIGKILL", "partition_leader-0", 200),
        Acknowledged("w1", "t", 0, 0, "ACCEPT", 1, "", 6_000, 6_200),
        Produced("t", 0, 1, "v1", 300),
        Delivered("w1", "t", 0, 1, "v1", 1, 5_000, 5_001),
        Acknowledged("w1", "t", 0, 1, "ACCEPT", 1, "", 6_000, 6_200),
        Observed("t", 0, 2, 0, 7_000),
    ]
    text = report(play(experiment(leaving(slow), measures_recovery=True)), tmp_path)
    assert f"lease + 2 s is {BOUND_MS}" in text
    assert any(line.split()[1:] == ["partition_leader", "1", "6000", "6000", "0/1"] for line in text.splitlines())


def test_experiments_are_selected_by_name_or_by_what_it_begins_with() -> None:
    by_default = {definition.name for definition in select([])}
    assert "services-killed" in by_default
    assert not any(name.startswith("recovery") for name in by_default)
    assert [definition.name for definition in select(["recovery"])] == [
        "recovery-partition-leader",
        "recovery-share-coordinator",
        "recovery-group-coordinator",
        "recovery-consumer",
        "recovery-rolling-restart",
    ]
    with pytest.raises(ValueError, match="there is no experiment nonsense"):
        select(["nonsense"])


def test_names_are_unique_and_every_scenario_of_fail_over_and_chaos_has_an_experiment() -> None:
    names = [definition.name for definition in catalogue()]
    assert len(names) == len(set(names))
    shown = {what for definition in select([]) for what in definition.shows}
    assert {f"S-{number}" for number in range(106, 115)} <= shown


def test_a_tail_hands_out_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    tail = Tail(tmp_path)
    write(tmp_path, CLEAN[:1])
    assert list(tail.new()) == CLEAN[:1]
    whole = (tmp_path / "all.jsonl").read_bytes()
    path.write_bytes(whole[:-9])
    assert list(tail.new()) == []
    path.write_bytes(whole)
    assert list(tail.new()) == CLEAN[:1]
    assert list(tail.new()) == []
