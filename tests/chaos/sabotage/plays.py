"""The plays: faults in the cluster while a sabotaged node works in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.chaos.checker import Checker
from tests.chaos.drivers.processes import ProcessesDeployment
from tests.chaos.experiments.members import each_ends_once, held_records_come_back, pause_consumer
from tests.chaos.sabotage import sabotages
from tests.chaos.trial import Trial

LEADER_0: Final = f"{sabotages.LEADER}-0"
STATE_0: Final = f"{sabotages.STATE}-0"
STORE_0: Final = "store-0"
#: More than one flush, and less than everything written since the start.
_LOST_BYTES: Final = 30_000


def _quiet(trial: Trial) -> None:
    trial.pass_time(7, 8)


def _leader_dies(trial: Trial) -> None:
    for _ in range(3):
        trial.pass_time(1.5, 2)
        trial.kill(LEADER_0)
        trial.start(LEADER_0)


def _keepers_die(trial: Trial) -> None:
    for _ in range(2):
        trial.pass_time(2, 2.5)
        trial.kill(LEADER_0, STATE_0)
        trial.start(LEADER_0, STATE_0)


def _members_come(trial: Trial) -> None:
    for number in range(3):
        trial.pass_time(1.5, 2)
        trial.load.start_worker(f"newcomer{number}", "consumer")
    trial.pass_time(2, 3)


def _store_cut_short(trial: Trial) -> None:
    trial.pass_time(3, 4)
    trial.kill(STORE_0)
    deployment = trial.deployment
    assert isinstance(deployment, ProcessesDeployment)
    shorten(deployment.home / STORE_0)
    trial.start(STORE_0)
    trial.pass_time(3, 4)


def shorten(data: Path) -> None:
    """Truncate the append-only file in this folder."""
    (file,) = data.rglob("*.incr.aof")
    size = file.stat().st_size
    assert size > _LOST_BYTES, f"{file} has {size} bytes, too few to lose {_LOST_BYTES} of them"
    with file.open("r+b") as written:
        written.truncate(size - _LOST_BYTES)


PLAYS: Final[Mapping[str, Callable[[Trial], None]]] = MappingProxyType(
    {
        sabotages.QUIET: _quiet,
        sabotages.LEADER_DIES: _leader_dies,
        sabotages.KEEPERS_DIE: _keepers_die,
        sabotages.MEMBERS_COME: _members_come,
        sabotages.STORE_CUT_SHORT: _store_cut_short,
        sabotages.NOTHING_FAILS: _quiet,
        sabotages.CONSUMER_PAUSED: pause_consumer,
    }
)
#: The checks beyond the invariants: those of the experiments that do the same.
CHECKS: Final[Mapping[str, tuple[Checker, ...]]] = MappingProxyType(
    {sabotages.NOTHING_FAILS: (each_ends_once,), sabotages.CONSUMER_PAUSED: (held_records_come_back,)}
)
