"""Rolling restarts of all server nodes, by SIGTERM and by SIGKILL."""

from __future__ import annotations

from typing import Final

from tests.chaos.experiments.definition import Definition, no_failed_calls
from tests.chaos.trial import Trial


def rolling_restart(trial: Trial) -> None:
    """SIGTERM each node and start it again, one after another."""
    for name in trial.everybody():
        trial.stop(name)
        trial.start(name)
    trial.pass_time(1.5, 2.0)


def rolling_kill(trial: Trial) -> None:
    """SIGKILL each node and start it again, one after another."""
    for name in trial.everybody():
        trial.kill(name)
        trial.start(name)
        trial.pass_time(0.3, 0.6)
    trial.pass_time(1.5, 2.0)


EXPERIMENTS: Final = (
    Definition(
        "rolling-restart",
        "Every service node restarted in good order, one after the other",
        ("S-106",),
        rolling_restart,
        checks=(no_failed_calls,),
    ),
    Definition(
        "rolling-kill",
        "Every service node killed and started, one after the other",
        ("S-106",),
        rolling_kill,
        measures_recovery=True,
    ),
)
