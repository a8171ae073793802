"""The definition of an experiment, and the few checks that several experiments share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.checker import Checker
from tests.chaos.history import Acknowledged, Delivered, Ended, Event, Failed, Fault
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial

USUAL_LOAD: Final = LoadOptions()


@dataclass(frozen=True, slots=True)
class Definition:
    """`shows`: scenarios and fault schedules in docs/spec/scenarios.md. `checks` are run in addition to the invariants.

    `measures_recovery`: services are killed one at a time while everything else is healthy, so that the recovery times
    are meaningful. `by_default`: part of a usual run; other experiments run only if named.
    """

    name: str
    sentence: str
    shows: tuple[str, ...]
    run: Callable[[Trial], None]
    load: LoadOptions = USUAL_LOAD
    checks: tuple[Checker, ...] = ()
    by_default: bool = True
    measures_recovery: bool = False


def no_failed_calls(events: Sequence[Event]) -> Iterator[str]:
    """S-106: no call failed for good; only calls that a client retried by itself may have failed."""
    for event in events:
        if isinstance(event, Failed):
            yield f"S-106: {event.worker}'s {event.call} failed with {event.error} at {event.at_ms}"


def everybody_worked(events: Sequence[Event]) -> Iterator[str]:
    """S-107, S-108: every consumer that received a record, or was started, got NONE for an acknowledgement."""
    confirmed = {event.worker for event in events if isinstance(event, Acknowledged) and not event.error}
    had = {event.worker for event in events if isinstance(event, Delivered)}
    there = {event.worker for event in events if isinstance(event, Ended) and event.worker.startswith("consumer")}
    for worker in sorted((had | there) - confirmed):
        what = "had records" if worker in had else "had no record"
        yield f"S-107: {worker} {what} and never had an acknowledgement confirmed"


def works_again_after(fault: str) -> Checker:
    """Return a check that each worker with this fault received a record that it fetched afterwards."""

    def check(events: Sequence[Event]) -> Iterator[str]:
        for met in events:
            if isinstance(met, Fault) and met.name == fault and not _worked(events, met):
                yield f"{met.target} got nothing after {fault} at {met.at_ms}"

    return check


def _worked(events: Sequence[Event], met: Fault) -> bool:
    return any(
        isinstance(event, Delivered) and event.worker == met.target and event.fetched_ms >= met.at_ms
        for event in events
    )
