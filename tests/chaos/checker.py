"""Judges a history by small separate rules on what an outside observer saw (INV-n in docs/spec/scenarios.md).

Each checker takes the events in chronological order and yields a sentence per violation. `python -m tests.chaos.checker
FILE…` judges stored histories again.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from partition_leader.share_partition.core.status import DropReason
from tests.chaos.causes import FINAL_TYPES, Place, attempts_are_bounded, configured, ends_have_causes, one_holder, place
from tests.chaos.history import Acknowledged, Delivered, Dropped, Event, Observed, Produced, read_history

__all__ = ["FINAL_TYPES", "Place", "judge", "place"]

#: The reasons why a leader drops a share-partition's object, and with it the counts that were never stored.
FORGETS = frozenset({DropReason.OUTCOME_UNKNOWN, DropReason.LEADERSHIP_LOST, DropReason.RELEASED})


Checker = Callable[[Sequence[Event]], Iterable[str]]


def drained_partitions(events: Iterable[Event]) -> set[tuple[str, int]]:
    """Return the partitions whose lag was 0 at the last observation, which is made once everything has been
    produced."""
    seen: dict[tuple[str, int], Observed] = {}
    produced_ms: defaultdict[tuple[str, int], int] = defaultdict(int)
    for event in events:
        if isinstance(event, Observed):
            seen[event.topic, event.partition] = event
        elif isinstance(event, Produced):
            key = event.topic, event.partition
            produced_ms[key] = max(produced_ms[key], event.at_ms)
    return {key for key, each in seen.items() if each.lag == 0 and (each.asked_ms or each.at_ms) >= produced_ms[key]}


def no_loss(events: Sequence[Event]) -> Iterator[str]:
    """INV-1: every confirmed record of a drained partition was delivered. Undrained partitions are left to
    `not_drained`."""
    delivered = {place(e) for e in events if isinstance(e, Delivered)}
    drained = drained_partitions(events)
    for event in events:
        if isinstance(event, Produced) and (at := place(event)) not in delivered and at[:2] in drained:
            yield f"INV-1: {at} ({event.value}) was confirmed to its producer and never delivered"


def nothing_vanishes(events: Sequence[Event]) -> Iterator[str]:
    """INV-1: a delivered record ends only for a reason; see `causes`."""
    yield from ends_have_causes(events, drained_partitions(events))


def undecided(events: Sequence[Event]) -> int:
    """Count the confirmed records of undrained partitions that were never delivered or never finished."""
    delivered = {place(e) for e in events if isinstance(e, Delivered)}
    finished = {place(e) for e in events if isinstance(e, Acknowledged) and e.type in FINAL_TYPES}  # perhaps
    left = {place(e) for e in events if isinstance(e, Produced)} - (delivered & finished)
    drained = drained_partitions(events)
    return sum(at[:2] not in drained for at in left)


def not_drained(events: Sequence[Event]) -> Iterator[str]:
    """INV-1 can only be judged for drained partitions, so an experiment that leaves any undrained proves nothing."""
    if count := undecided(events):
        yield f"not drained: {count} records undecided"


def no_invention(events: Sequence[Event]) -> Iterator[str]:
    """INV-2: a delivered record is the one produced at that place; a place never holds two values."""
    produced: dict[Place, str] = {}
    for event in events:
        if isinstance(event, Produced) and produced.setdefault(place(event), event.value) != event.value:
            yield f"INV-2: {place(event)} was confirmed for two values, {produced[place(event)]} and {event.value}"
    seen: dict[Place, str] = {}
    for event in events:
        if isinstance(event, Delivered):
            at = place(event)
            if seen.setdefault(at, event.value) != event.value:
                yield f"INV-2: {at} was delivered with two values, {seen[at]} and {event.value}"
            if at in produced and produced[at] != event.value:
                yield f"INV-2: {at} holds {produced[at]} but was delivered as {event.value}"


def stored_once(events: Sequence[Event]) -> Iterator[str]:
    """INV-2, CM-43: a value (all are different) is stored at one place only, however many times its produce was
    repeated."""
    places: dict[str, Place] = {}
    for event in events:
        if isinstance(event, Produced | Delivered) and places.setdefault(event.value, place(event)) != place(event):
            yield f"INV-2: {event.value} lies at {places[event.value]} and at {place(event)}; a retry was stored"


def accept_is_final(events: Sequence[Event]) -> Iterator[str]:
    """INV-4, INV-11: nothing is redelivered after its ACCEPT or REJECT got NONE, whichever process was killed since.

    A delivery recorded after that response may have been acquired before it. It is a violation if its fetch was sent
    after the response had arrived, or if it arrived later with a delivery count above that of the accepted delivery.
    """
    finished: dict[Place, Acknowledged] = {}
    for event in events:
        if isinstance(event, Acknowledged) and event.type in FINAL_TYPES and not event.error:
            finished.setdefault(place(event), event)
        elif isinstance(event, Delivered) and (ack := finished.get(place(event))):
            late = event.fetched_ms > ack.at_ms
            if late or (event.delivery_count > ack.delivery_count and event.at_ms > ack.at_ms):
                yield (
                    f"INV-4: {place(event)} went to {event.worker} (count {event.delivery_count}, fetch at "
                    f"{event.fetched_ms}) after {ack.worker}'s {ack.type} of count {ack.delivery_count} was "
                    f"answered NONE at {ack.at_ms}"
                )


def stored_counts_are_kept(events: Sequence[Event]) -> Iterator[str]:
    """INV-7: a record whose release was confirmed is redelivered with a higher count, whichever process was killed
    since."""
    stored: dict[Place, Acknowledged] = {}
    for event in events:
        if isinstance(event, Acknowledged) and event.type == "RELEASE" and not event.error:
            before = stored.setdefault(place(event), event)
            if event.delivery_count > before.delivery_count:
                stored[place(event)] = event
        elif isinstance(event, Delivered) and (ack := stored.get(place(event))):
            late = event.fetched_ms > ack.at_ms
            if late and event.delivery_count <= ack.delivery_count:
                yield (
                    f"INV-7: {place(event)} went to {event.worker} with count {event.delivery_count}, though its "
                    f"release of count {ack.delivery_count} by {ack.worker} was answered NONE at {ack.at_ms}"
                )


def counts_rise(events: Sequence[Event]) -> Iterator[str]:
    """INV-7: each further delivery has a higher count, unless the leader dropped the share-partition in between.

    An acquisition is not stored (PL-105), so a count is repeated if the share-partition has got a new object meanwhile,
    which continues from the last count that was stored (PL-707). `Trial.note_drops` records such drops; a killed leader
    leaves no record of one, so this rule is for experiments in which no leader is killed.
    """
    last: dict[Place, Delivered] = {}
    drops = [event for event in events if isinstance(event, Dropped) and event.reason in FORGETS]
    for event in events:
        if not isinstance(event, Delivered):
            continue
        before = last.get(place(event))
        if before and event.delivery_count <= before.delivery_count and not _let_go(drops, before, event):
            yield (
                f"INV-7: {place(event)} went to {event.worker} with count {event.delivery_count} after "
                f"{before.worker} had it with count {before.delivery_count}, and no leader had let its "
                f"share-partition go"
            )
        last[place(event)] = event


def _let_go(drops: Sequence[Dropped], before: Delivered, event: Delivered) -> bool:
    """Return whether an object that may have made the first of two deliveries was dropped before the second."""
    return any(
        (drop.topic, drop.partition) == place(event)[:2] and before.fetched_ms <= drop.at_ms <= event.at_ms
        for drop in drops
    )


def one_owner_confirms(events: Sequence[Event]) -> Iterator[str]:
    """INV-5, INV-6: the confirmed ends of a record do not differ in type, and only a worker that had the record gets
    NONE.

    A NONE for a place below the start offset is a no-op and proves nothing. So a second, different end is a violation
    only if the start offset was never seen past the place, or had not passed it when that response arrived.
    """
    seen: dict[tuple[str, int], list[Observed]] = defaultdict(list)
    for event in events:
        if isinstance(event, Observed):
            seen[event.topic, event.partition].append(event)
    delivered: dict[Place, set[str]] = defaultdict(set)
    finals: dict[Place, Acknowledged] = {}
    for event in events:
        if isinstance(event, Delivered):
            delivered[place(event)].add(event.worker)
        elif isinstance(event, Acknowledged) and not event.error:
            at = place(event)
            if event.worker not in delivered[at]:
                yield f"INV-6: {event.worker}'s {event.type} of {at} was answered NONE, but it never had the record"
            first = finals.get(at)
            if event.type in FINAL_TYPES and first is None:
                finals[at] = event
            elif (
                first is not None
                and event.type in FINAL_TYPES
                and event.type != first.type
                and not _below_start(event, seen[at[:2]])
            ):
                yield f"INV-5: {at} was finished twice: {first.type} by {first.worker}, {event.type} by {event.worker}"


def _below_start(ack: Acknowledged, seen: Sequence[Observed]) -> bool:
    """Return whether the start offset may have passed the place before the response was sent."""
    passed = any(each.start_offset > ack.offset for each in seen)
    return passed and not any(each.start_offset <= ack.offset and each.asked_ms >= ack.at_ms for each in seen)


def start_offset_moves_forward(events: Sequence[Event]) -> Iterator[str]:
    """INV-9: the observed start offset never decreases."""
    highest: dict[tuple[str, int], int] = {}
    for event in events:
        if isinstance(event, Observed) and event.start_offset >= 0:
            key = (event.topic, event.partition)
            if event.start_offset < highest.get(key, -1):
                yield f"INV-9: start offset of {key} fell from {highest[key]} to {event.start_offset}"
            highest[key] = max(highest.get(key, -1), event.start_offset)


def start_offset_covers_only_finished(events: Sequence[Event]) -> Iterator[str]:
    """INV-9, INV-12: every record below the last observed start offset was delivered or finished by a worker."""
    start = {(e.topic, e.partition): e.start_offset for e in events if isinstance(e, Observed)}
    acknowledged = {place(e) for e in events if isinstance(e, Acknowledged) and e.type in FINAL_TYPES}
    delivered = {place(e) for e in events if isinstance(e, Delivered)}
    for event in events:
        if isinstance(event, Produced) and event.offset < start.get((event.topic, event.partition), -1):
            at = place(event)
            if at not in acknowledged and at not in delivered:
                yield f"INV-9: {at} lies below the start offset but was never delivered to anybody"


def drained(events: Sequence[Event]) -> Iterator[str]:
    """INV-17, INV-19: in the end every observed partition has lag 0."""
    last = {(e.topic, e.partition): e for e in events if isinstance(e, Observed)}
    for key, event in last.items():
        if event.lag != 0:
            yield f"INV-19: {key} still has lag {event.lag} at the end (start offset {event.start_offset})"


CHECKERS: tuple[Checker, ...] = (
    configured,
    not_drained,
    no_loss,
    nothing_vanishes,
    one_holder,
    attempts_are_bounded,
    no_invention,
    stored_once,
    accept_is_final,
    stored_counts_are_kept,
    one_owner_confirms,
    start_offset_moves_forward,
    start_offset_covers_only_finished,
    drained,
)


def judge(events: Sequence[Event]) -> list[str]:
    """Return every violation that any checker finds in a history."""
    return [violation for checker in CHECKERS for violation in checker(events)]


def main(arguments: Sequence[str]) -> int:
    """Judge stored histories; the exit status is 1 if a rule was broken."""
    violations = judge(read_history(Path(argument) for argument in arguments))
    for violation in violations[:50]:
        print(violation)
    print(f"violations={len(violations)}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
