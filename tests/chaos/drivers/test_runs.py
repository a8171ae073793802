"""Leftovers of a killed run are found by its number and removed; those of a living run are left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.deployment import Unsupported
from tests.chaos.drivers.children import ROOT, Child
from tests.chaos.drivers.namespaces import require_namespaces
from tests.chaos.drivers.network import Network, remove_leftovers
from tests.chaos.drivers.runs import Run, end_leftovers, is_ownerless
from tests.chaos.load import wait_for
from tests.chaos.processes import Handle

WAIT_S = 20.0

#: A run that leaves a process that only SIGKILL ends, and prints the run's number and the process's id.
LEAVES = """
import signal, subprocess, sys, time
from tests.chaos.drivers.runs import Run
from tests.chaos.drivers.network import Network
run = Run()
words = []
if "network" in sys.argv:
    network = Network(run)
    network.__enter__()
    network.add("left")
    words = network.enter("left")
left = subprocess.Popen([*words, sys.executable, "-c", "import time; time.sleep(600)"], env=dict(run.environment))
left.send_signal(signal.SIGSTOP)
print(run.number, left.pid, flush=True)
time.sleep(600)
"""


class KilledRun:
    """A run in a separate process, which is killed while it holds resources."""

    def __init__(self, *options: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", LEAVES, *options], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert process.stdout is not None
        self._process = process
        self.number, pid = map(int, process.stdout.readline().split())
        self.left = Handle(pid)

    def kill(self) -> None:
        """SIGKILL the run's process."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Leave nothing behind, whatever the test's result."""
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.left.signal(signal.SIGKILL)
        self.left.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_processes_of_a_killed_run_are_ended_and_those_of_a_living_one_are_not(stack: ExitStack) -> None:
    run = KilledRun()
    stack.callback(run.close)
    assert not is_ownerless(run.number)
    with Run() as other:
        assert other.number != run.number
        assert not run.left.wait(0.0)
    run.kill()
    with Run():
        assert run.left.wait(WAIT_S)  # it is dead by now, unless another run is about to end it


def test_a_network_of_a_killed_run_is_removed_with_what_runs_in_it(stack: ExitStack) -> None:
    try:
        require_namespaces()
    except Unsupported as reason:
        pytest.skip(str(reason))
    run = KilledRun("network")
    stack.callback(run.close)
    names = Path("/run/netns")
    theirs = [f"sgchaos{run.number}-{name}" for name in ("hub", "left")]
    with Run() as mine, Network(mine):
        assert all((names / name).exists() for name in theirs)
    run.kill()
    with Run() as mine:
        remove_leftovers(mine.number)
        there = [*(names / name for name in theirs), Path("/sys/class/net", f"sgchaos{run.number}")]
        # Immediately, unless another run that starts at the same time is removing them.
        wait_for(lambda: not any(path.exists() for path in there), f"end of {there}", WAIT_S)
        assert run.left.wait(WAIT_S)


def test_a_network_takes_away_all_it_made_when_a_process_in_it_still_runs(tmp_path: Path) -> None:
    try:
        require_namespaces()
    except Unsupported as reason:
        pytest.skip(str(reason))
    with Run() as run:
        with Network(run) as network:
            network.add("busy")
            words = [*network.enter("busy"), sys.executable, "-c", "print('on'); import time; time.sleep(600)"]
            child = Child("busy", words, tmp_path / "log", {**run.environment, "PYTHONUNBUFFERED": "1"})
            child.launch()
            child.line()
        child.kill()
        assert child.status == -signal.SIGKILL
        assert [
            path.name for path in Path("/run/netns").iterdir() if path.name.startswith(f"sgchaos{run.number}-")
        ] == []


def test_a_number_is_free_again_after_its_run() -> None:
    with Run() as run:
        number = run.number
        ports = {run.port() for _ in range(20)}
        assert not is_ownerless(number)
        assert len(ports) == 20
    assert is_ownerless(number)


def test_the_label_of_a_run_reaches_its_processes_and_settings_of_the_shell_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHAREGROUPS_LEASE_MS", "1")
    with Run() as run:
        assert not [name for name in run.environment if name.startswith("SHAREGROUPS_")]
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=dict(run.environment))
        end_leftovers(run.number)
        assert process.wait(20) == -signal.SIGKILL
