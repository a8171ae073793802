"""Nothing is lost and nothing is redelivered after its ACCEPT, whichever process is killed or paused during work."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.conftest import Begin
from tests.chaos.experiment import SETTINGS, Experiment
from tests.chaos.processes import STORE, ClusterProcesses
from tests.chaos.recovery_table import Recovery

LEADER = "partition_leader"
STATE = "share_coordinator"
GROUPS = "group_coordinator"

Report = Callable[[list[Recovery]], None]

everything_holds = pytest.mark.rule(
    "INV-1", "INV-2", "INV-4", "INV-5", "INV-6", "INV-9", "INV-11", "INV-12", "INV-17", "INV-19"
)


def finish(experiment: Experiment, report: Report) -> None:
    """Drain, judge the history, and check the logs for failures that no fault explains."""
    report(experiment.finish())
    assert experiment.noise() == []
    experiment.passed = True


@everything_holds
@pytest.mark.rule("CM-3", "CM-12", "CM-13", "CM-43", "PL-1209")
def test_sigkill_of_one_process_again_and_again(begin: Begin, report: Report) -> None:
    experiment = begin()
    for target in (LEADER, STATE, GROUPS, STORE):
        for _ in range(4):
            experiment.pass_time(0.6, 2.4)
            experiment.kill(target)
        experiment.pass_time(1.0, 2.0)
    finish(experiment, report)


@everything_holds
@pytest.mark.rule("CM-70", "CM-73")
def test_sigkill_of_everything_and_a_restart_on_the_same_data(begin: Begin, report: Report) -> None:
    experiment = begin()
    experiment.pass_time(0.5, 1.5)
    experiment.kill_everything()
    experiment.pass_time(1.0, 3.0)
    experiment.kill_everything()
    experiment.pass_time(2.0, 3.0)
    finish(experiment, report)


@everything_holds
def test_sigkill_of_several_processes_at_the_same_moment(begin: Begin, report: Report) -> None:
    experiment = begin()
    for _ in range(3):
        experiment.pass_time(0.8, 1.6)
        for target in experiment.rng.sample([LEADER, STATE, GROUPS, STORE], 2):
            experiment.kill(target)
    experiment.pass_time(1.5, 2.5)
    finish(experiment, report)


@everything_holds
@pytest.mark.rule("CM-3", "CM-12", "CM-13")
@pytest.mark.parametrize("target", [LEADER, STATE])
def test_an_owner_paused_beyond_its_lease_confirms_nothing_when_it_goes_on(
    target: str, begin: Begin, report: Report
) -> None:
    experiment = begin(second=target)
    experiment.pass_time(0.5, 1.5)
    experiment.pause(target, 4.0, 6.0)
    experiment.pass_time(1.0, 2.0)
    finish(experiment, report)


@everything_holds
@pytest.mark.rule("CM-3", "CM-13")
def test_pauses_around_a_lease_with_no_other_node_to_take_over(begin: Begin, report: Report) -> None:
    experiment = begin()
    for target in (LEADER, STATE, STORE):
        for _ in range(3):
            experiment.pass_time(0.3, 1.0)
            experiment.pause(target, 0.2, 3.8)
        experiment.pass_time(0.5, 1.0)
    finish(experiment, report)


@pytest.mark.rule("CM-70")
def test_a_sigkill_of_the_parent_alone_leaves_nothing_behind_and_a_restart_finds_the_data_free(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, SETTINGS)
    try:
        cluster.start()
        address = cluster.bootstrap
        below = cluster.kill_parent()
        assert len(below) == 5  # three roles, the store and its watcher
        left = [child.pid for child in below if not child.wait(15)]
        for child in below:
            child.signal(signal.SIGKILL)
            child.close()
        assert left == []
        cluster.start()
        assert cluster.bootstrap == address
    finally:
        cluster.stop()
