"""The store's master goes away and a replica takes its place. Last of all: it takes a while to be whole again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.chaos.deployment import SENTINEL, Unsupported
from tests.chaos.experiments.definition import Definition
from tests.chaos.history import Acknowledged, Event, Fault
from tests.chaos.trial import Trial


def fail_over(trial: Trial) -> None:
    """The master of the store is killed and stays down until work goes on with a replica."""
    if not trial.names(SENTINEL):
        raise Unsupported("this deployment has no Sentinel, and without it no replica is promoted")
    trial.pass_time(1.0, 2.0)
    store = trial.master()
    trial.kill(store)
    trial.load.wait_working([f"consumer{number}" for number in range(trial.load.options.consumers)])
    trial.start(store)
    trial.pass_time(1.0, 2.0)


def went_on_without_the_store(events: Sequence[Event]) -> Iterator[str]:
    """After a fail-over acknowledgements were confirmed before the old master was back."""
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
)
