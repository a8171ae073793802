"""Runs the experiments on stores in a separate process while this one runs those on clusters: both mostly wait."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.chaos.outcome import BAD, OUTCOME_FILE, Outcome, read_outcome
from tests.chaos.stores.catalogue import StoreExperiment
from tests.chaos.stores.runner import STORES

#: Far longer than one experiment takes; its own waits are bounded too.
EXPERIMENT_WAIT_S: Final = 240.0
END_WAIT_S: Final = 30.0


class Beside:
    """A context manager: entering starts the experiments, leaving ends those that still run. `say` is called with their
    lines."""

    def __init__(
        self, out: Path, seed: int, experiments: Sequence[StoreExperiment], say: Callable[[str], None]
    ) -> None:
        self._out = out
        self._seed = seed
        self._experiments = experiments
        self._say = say
        self._process: subprocess.Popen[str] | None = None
        self._relay: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._experiments:
            names = [experiment.name for experiment in self._experiments]
            words = [sys.executable, "-m", "tests.chaos.stores.runner", str(self._out), str(self._seed), *names]
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            self._relay = threading.Thread(target=self._relay_output, args=(self._process,), daemon=True)
            self._relay.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None or self._relay is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_WAIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._relay.join(END_WAIT_S)

    def outcomes(self) -> list[Outcome]:
        """Wait for all experiments and return their outcomes; an experiment that left no outcome is BAD."""
        if self._process is None or self._relay is None:
            return []
        self._relay.join(EXPERIMENT_WAIT_S * len(self._experiments))
        return [self._outcome(experiment) for experiment in self._experiments]

    def _outcome(self, experiment: StoreExperiment) -> Outcome:
        kept = self._out / experiment.name / OUTCOME_FILE
        if kept.exists():
            return read_outcome(kept)
        status = self._process.poll() if self._process is not None else None
        ended = "has not ended" if status is None else f"ended with status {status}"
        reason = f"the process of these experiments {ended}, and left nothing about this one"
        return Outcome(experiment.name, STORES, experiment.sentence, experiment.shows, self._seed, BAD, reason)

    def _relay_output(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._say(line.rstrip("\n"))
