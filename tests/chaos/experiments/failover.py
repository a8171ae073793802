"""The store's master fails and a replica takes its place. Runs last, since the store takes a while to be whole
again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from tests.chaos.deployment import PARTITION_LEADER, SENTINEL, STORE, Unsupported
from tests.chaos.experiments.definition import Definition
from tests.chaos.history import Acknowledged, Event, Fault
from tests.chaos.trial import Trial
from tests.chaos.verdict import recoveries


def _need_sentinels(trial: Trial) -> None:
    if not trial.names(SENTINEL):
        raise Unsupported("this deployment has no Sentinel, and without it no replica is promoted")


def fail_over(trial: Trial) -> None:
    """Kill the store's master, and keep it down until work continues with a replica."""
    _need_sentinels(trial)
    trial.pass_time(1.0, 2.0)
    store = trial.master()
    trial.kill(store)
    trial.load.wait_working(trial.load.consumers())
    trial.start(store)
    trial.pass_time(1.0, 2.0)


def leader_killed_too(trial: Trial, settled: bool) -> None:
    """Kill a leader while the former master is down: its successor claims and loads from a promoted replica.

    `settled`: the leader is killed once every partition is served from the promoted replica, and the take-over has the
    usual bound (CM-4). Otherwise the leader may die before it has seen the promoted replica, and a claim on another
    history may wait for one more lease (CM-12). In both cases, returns only once every partition is served again.
    """
    _need_sentinels(trial)
    trial.pass_time(0.5, 1.0)
    store = trial.master()
    trial.kill(store)
    trial.until(lambda: trial.master() != store, "promotion of a replica")
    if settled:
        trial.until_served_again(STORE)
    else:
        trial.pass_time(0.0, 1.0)
    leader = trial.an_owner(PARTITION_LEADER)
    trial.kill(leader)
    trial.until_served_again(PARTITION_LEADER)
    trial.start(store, leader)
    trial.pass_time(1.0, 1.5)


def served_without_both(events: Sequence[Event]) -> Iterator[str]:
    """Check that every partition of the killed leader was served again before the former master was back."""
    faults = [event for event in events if isinstance(event, Fault)]
    killed = max((fault.at_ms for fault in faults if fault.name == "SIGKILL"), default=0)
    back = next((fault.at_ms for fault in faults if fault.name == "started"), 0)
    if not any(killed + recovered.ms < back for recovered in recoveries(events)):
        yield "not every partition was served between the kill of the leader and the return of the former master"


def went_on_without_the_store(events: Sequence[Event]) -> Iterator[str]:
    """Check that after a fail-over acknowledgements were confirmed before the old master was back."""
    faults = [event for event in events if isinstance(event, Fault)]
    killed = next((fault.at_ms for fault in faults if fault.name == "SIGKILL"), 0)
    back = next((fault.at_ms for fault in faults if fault.name == "started"), 0)
    if not any(isinstance(e, Acknowledged) and not e.error and killed <= e.sent_ms and e.at_ms < back for e in events):
        yield "no acknowledgement was confirmed between the kill of the master and its return"


EXPERIMENTS: Final = (
    Definition(
        "store-fails-over",
        "The master killed; Sentinel promotes a replica and work goes on without it",
        ("schedule: store fail-over",),
        fail_over,
        checks=(went_on_without_the_store,),
    ),
    Definition(
        "store-fails-over-leader-killed",
        "A leader killed while the former master is down; another leader takes over from the promoted replica",
        ("schedule: store fail-over", "schedule: SIGKILL of each service"),
        partial(leader_killed_too, settled=True),
        checks=(served_without_both,),
        by_default=False,
        measures_recovery=True,
    ),
    Definition(
        "store-fails-over-leader-at-once",
        "The same within a second of the promotion, before the leader has found the promoted replica, perhaps",
        ("schedule: store fail-over", "schedule: simultaneous kills"),
        partial(leader_killed_too, settled=False),
        checks=(served_without_both,),
        by_default=False,
    ),
)
