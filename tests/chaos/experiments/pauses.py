"""SIGSTOP of each service in turn, for longer than a lease, and of the store."""

from __future__ import annotations

from typing import Final

from tests.chaos.deployment import REPLICA, SERVICES, STORE
from tests.chaos.experiments.definition import Definition
from tests.chaos.trial import Trial

#: Longer than a lease (CM-3): a successor takes over, and once the pause ends two nodes consider themselves owners.
BEYOND_LEASE_S: Final = (3.8, 4.6)


def pause_each(trial: Trial) -> None:
    """Pause a leader, the share coordinator of some state, and the group's coordinator, one after another."""
    for role in SERVICES:
        name = trial.an_owner(role)
        trial.pause(name)
        trial.pass_time(*BEYOND_LEASE_S)
        trial.resume(name)
        trial.pass_time(0.3, 0.8)
    trial.pass_time(0.5, 1.0)


def pause_store(trial: Trial) -> None:
    """Pause the store and its replicas for a while, but for less time than Sentinel waits."""
    for name in (*trial.names(STORE), *trial.names(REPLICA)):
        trial.pause(name)
        trial.pass_time(1.0, 2.0)
        trial.resume(name)
        trial.pass_time(0.5, 1.0)


EXPERIMENTS: Final = (
    Definition(
        "services-paused",
        "SIGSTOP of the owner in each service in turn, beyond its lease",
        ("S-111", "schedule: SIGSTOP of each service", "schedule: two owners alive at once"),
        pause_each,
    ),
    Definition(
        "store-paused", "SIGSTOP of the store and of each replica", ("schedule: SIGSTOP of each service",), pause_store
    ),
)
