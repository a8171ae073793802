"""How long it takes until a service is served again after a SIGKILL of its owner, twenty times and more."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.chaos.deployment import GROUP_COORDINATOR, PARTITION_LEADER, SHARE_COORDINATOR
from tests.chaos.experiments.definition import Definition
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial

KILLS: Final = 21
#: Looked at ten times a second: that is how exactly a group coordinator's time is known.
WATCHED: Final = LoadOptions(observe_s=0.1)


def kill_again_and_again(trial: Trial, role: str) -> None:
    """The killed node stays down until its successor serves, so that it is the take-over which is measured."""
    for _ in range(KILLS):
        name = trial.an_owner(role)
        trial.kill(name)
        trial.until_served_again(role)
        trial.start(name)
        trial.pass_time(1.5, 2.5)  # a returned node takes its share back, and leases begin anywhere in their second


EXPERIMENTS: Final = tuple(
    Definition(
        f"recovery-{role.replace('_', '-')}",
        f"{KILLS} kills of a {role.replace('_', ' ')}: time until it is served again",
        ("recovery times",),
        partial(kill_again_and_again, role=role),
        WATCHED,
        by_default=False,
        measures_recovery=True,
    )
    for role in (PARTITION_LEADER, SHARE_COORDINATOR, GROUP_COORDINATOR)
)
