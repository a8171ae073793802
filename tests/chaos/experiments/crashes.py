"""SIGKILL of services and of the store, alone and together."""

from __future__ import annotations

from typing import Final

from tests.chaos.deployment import REPLICA, SERVICES, STORE, Unsupported
from tests.chaos.experiments.definition import Definition
from tests.chaos.trial import Trial


def kill_each(trial: Trial) -> None:
    """Kill each service in turn, at random moments; a successor takes over before the killed one is back."""
    for role in SERVICES:
        trial.pass_time(0.2, 1.0)
        name = trial.an_owner(role)
        trial.kill(name)
        trial.until_served_again(role)
        trial.start(name)


def kill_store(trial: Trial) -> None:
    """Kill the store while acknowledgements are in flight, and start it on its data; then kill a coordinator."""
    for _ in range(2):
        trial.pass_time(0.5, 1.5)
        store = trial.master()
        trial.kill(store)
        trial.start(store)
        keeper = trial.state_keeper(trial.a_partition())
        trial.kill(keeper)
        trial.start(keeper)
        trial.pass_time(1.0, 2.0)


def kill_replicas(trial: Trial) -> None:
    """Kill one replica and start it again; then kill both, during which nothing can be confirmed."""
    if len(trial.names(REPLICA)) < 2:
        raise Unsupported("this deployment has no two replicas of the store")
    master = trial.master()
    first, *others = (name for name in trial.everybody((STORE, REPLICA)) if name != master)
    trial.pass_time(0.3, 0.8)
    trial.kill(first)
    trial.pass_time(1.0, 2.0)
    trial.start(first)
    trial.kill(first, *others)
    trial.pass_time(1.0, 2.0)
    trial.start(first, *others)
    trial.pass_time(1.0, 2.0)


def kill_together(trial: Trial) -> None:
    """Kill several nodes at the same moment, then all services, then everything with the store."""
    trial.pass_time(0.5, 1.0)
    pair = trial.rng.sample([*trial.everybody(), trial.master()], 3)
    trial.kill(*pair)
    trial.start(*pair)
    trial.pass_time(1.0, 2.0)
    store = trial.master()
    trial.kill(store, *trial.everybody())
    trial.start(store, *trial.everybody())
    trial.pass_time(1.0, 2.0)


EXPERIMENTS: Final = (
    Definition(
        "services-killed",
        "SIGKILL of the owner in each service in turn; a successor takes over",
        ("schedule: SIGKILL of each service",),
        kill_each,
        measures_recovery=True,
    ),
    Definition(
        "store-killed",
        "The store killed in the middle of acknowledgements, then a share coordinator",
        ("S-114", "schedule: store restart"),
        kill_store,
    ),
    Definition(
        "replicas-killed", "Replicas killed, one and both", ("schedule: SIGKILL of each service",), kill_replicas
    ),
    Definition(
        "killed-together",
        "Three nodes, then all services and the store killed at the same moment",
        ("schedule: simultaneous kills",),
        kill_together,
    ),
)
