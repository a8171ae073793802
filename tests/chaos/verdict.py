"""The verdict on one experiment, from its histories alone: violations, counts, recovery times, stalls.

This allows stored histories to be judged again, also by newer checkers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.chaos.checker import CHECKERS, Checker, accept_is_final, no_loss, nothing_vanishes, undecided
from tests.chaos.deployment import GROUP_COORDINATOR, SERVICES
from tests.chaos.history import Acknowledged, Ended, Event, Failed, Fault, Observed, Produced

CONSUMER: Final = "consumer"
CONSUMER_KILLED: Final = "SIGKILL of a consumer"
#: Faults that end the measurement of the recovery from an earlier one.
HARM: Final = frozenset({"SIGKILL", "SIGTERM", "SIGSTOP", "cut", CONSUMER_KILLED})


@dataclass(frozen=True, slots=True)
class Recovered:
    """The time from the SIGKILL of a service or consumer until it was served again, for the partition that waited
    longest."""

    role: str
    ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest time between two confirmed acknowledgements while records were produced: over all partitions, and for
    one partition."""

    any_ms: int
    partition_ms: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """`lost`: the number of violations of INV-1; `accepted_twice`: of INV-4. `failed_calls`: see `Failed`.

    `undecided`: records that may or may not be lost, because the experiment ended before its topic was drained.
    """

    records: int
    lost: int
    accepted_twice: int
    violations: tuple[str, ...]
    faults: int
    failed_calls: int
    refused_acknowledgements: int
    recovered: tuple[Recovered, ...]
    stall: Stall
    undecided: int = 0


def ended_in_order(events: Sequence[Event]) -> Iterator[str]:
    """Check that workers that were asked to leave ended with status 0. One that was killed on purpose may have any
    status."""
    for event in events:
        if isinstance(event, Ended) and event.status != 0 and not event.killed:
            yield f"worker {event.worker} ended with {event.status}"


def has_work(events: Sequence[Event]) -> Iterator[str]:
    """Check that there is a confirmed record and a confirmed acknowledgement; a history without them proves nothing."""
    if not any(isinstance(event, Produced) for event in events):
        yield "no record was confirmed"
    if not any(isinstance(event, Acknowledged) and not event.error for event in events):
        yield "no acknowledgement was confirmed"


def judge_history(events: Sequence[Event], checks: Iterable[Checker] = (), *, measured: bool = False) -> Verdict:
    """Judge chronological events with every checker. `measured`: recovery times are taken from the kills."""
    everywhere = (*CHECKERS, ended_in_order, has_work)
    found = [violation for check in (*everywhere, *checks) for violation in check(events)]
    return Verdict(
        records=sum(isinstance(event, Produced) for event in events),
        lost=len(list(no_loss(events))) + len(list(nothing_vanishes(events))),
        accepted_twice=len(list(accept_is_final(events))),
        violations=tuple(found),
        faults=sum(isinstance(event, Fault) for event in events),
        failed_calls=sum(isinstance(event, Failed) for event in events),
        refused_acknowledgements=sum(isinstance(event, Acknowledged) and bool(event.error) for event in events),
        recovered=tuple(recoveries(events)) if measured else (),
        stall=longest_stall(events),
        undecided=undecided(events),
    )


def recoveries(events: Sequence[Event]) -> Iterator[Recovered]:
    """Yield one for each SIGKILL of a service or consumer under load, unless another fault came before everything was
    served again.

    For leaders, share coordinators and consumers: until every partition has confirmed an acknowledgement sent after the
    kill. For group coordinators: until the response to a poll of the group's offsets that was sent after the kill.
    """
    partitions = {event.partition for event in events if isinstance(event, Acknowledged)}
    faults = [event for event in events if isinstance(event, Fault)]
    produced_ms = max((event.at_ms for event in events if isinstance(event, Produced)), default=0)
    for number, fault in enumerate(faults):
        role = _killed(fault)
        if not role or fault.at_ms > produced_ms:
            continue
        until = next((later.at_ms for later in faults[number + 1 :] if later.name in HARM), events[-1].at_ms + 1)
        answered = _answers(events, role, fault.at_ms, until)
        if answered.keys() >= (partitions if role != GROUP_COORDINATOR else {0}):
            yield Recovered(role, max(answered.values()) - fault.at_ms)


def _killed(fault: Fault) -> str:
    """Return the role that was killed; "" for another fault."""
    if fault.name == CONSUMER_KILLED:
        return CONSUMER
    role = fault.target.rpartition("-")[0]
    return role if fault.name == "SIGKILL" and role in SERVICES else ""


def _answers(events: Sequence[Event], role: str, since_ms: int, until_ms: int) -> dict[int, int]:
    """Return when the first response to a request sent after `since_ms` arrived, by partition (for a group coordinator:
    0)."""
    found: dict[int, int] = {}
    for event in events:
        if not since_ms <= event.at_ms < until_ms:
            continue
        if role == GROUP_COORDINATOR:
            if isinstance(event, Observed) and event.asked_ms >= since_ms:
                found.setdefault(0, event.at_ms)
        elif isinstance(event, Acknowledged) and not event.error and event.sent_ms >= since_ms:
            found.setdefault(event.partition, event.at_ms)
    return found


def longest_stall(events: Sequence[Event]) -> Stall:
    """Return the longest gaps between confirmed acknowledgements, up to the last confirmed record."""
    last_ms = max((event.at_ms for event in events if isinstance(event, Produced)), default=0)
    moments: defaultdict[int, list[int]] = defaultdict(list)
    for event in events:
        if isinstance(event, Acknowledged) and not event.error and event.at_ms <= last_ms:
            moments[event.partition].append(event.at_ms)
    everything = sorted(at_ms for found in moments.values() for at_ms in found)
    return Stall(_gap(everything), max((_gap(found) for found in moments.values()), default=0))


def _gap(moments: Sequence[int]) -> int:
    return max((later - earlier for earlier, later in pairwise(moments)), default=0)
