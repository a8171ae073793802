"""Scenarios played step by step with the test's own clients, whose results are checked too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from sharegroups import AcknowledgeType
from tests.chaos.checker import Checker, counts_rise
from tests.chaos.deployment import GROUP_COORDINATOR, PARTITION_LEADER, REPLICA, SHARE_COORDINATOR, STORE, Cut
from tests.chaos.experiments.definition import Definition
from tests.chaos.history import Acknowledged, Delivered, Event
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial

ALONE: Final = LoadOptions(partitions=1, consumers=0, rate=0)
#: For stories in which an expiring lock must not be what releases records.
LONG_LOCKS: Final = replace(ALONE, lock_ms=30_000)
SECOND_TOPIC: Final = "-unloaded"


def crash_of_a_leader(trial: Trial) -> None:
    """S-109: accepted records are not redelivered; released or merely acquired ones are."""
    trial.produce(30)
    one = trial.hand("m1")
    messages = one.take(30)
    one.settle(messages[:10], AcknowledgeType.ACCEPT)
    one.settle(messages[10:15], AcknowledgeType.RELEASE)
    assert not (errors := one.commit()), f"m1's first acknowledgements: {errors}"
    leader = trial.leader()
    trial.kill(leader)
    trial.start(leader)
    two = trial.hand("m2")
    two.take_and_accept(range(10, 30))
    one.settle(messages[15:], AcknowledgeType.ACCEPT)
    one.commit()


def leadership_moves(trial: Trial) -> None:
    """S-110: a running leader hands a partition over; the new leader refuses acknowledgements of records acquired from
    the old one."""
    first = trial.leader()
    trial.kill(first)
    trial.until(lambda: trial.leader() != first, "take-over of the partition")
    trial.produce(10)
    one = trial.hand("m1")
    messages = one.take(10)
    two = trial.hand("m2")
    with ThreadPoolExecutor(1) as pool:
        parked = pool.submit(two.take_and_accept, range(10))  # receives nothing until the partition moves
        trial.pass_time(1.5, 2.0)
        trial.start(first)
        trial.until(lambda: trial.leader() == first, "return of the partition to its first leader")
        one.settle(messages, AcknowledgeType.ACCEPT)
        one.commit()
        parked.result()


def old_leader(trial: Trial, isolate: Callable[[Trial, str], None], rejoin: Callable[[Trial, str], None]) -> None:
    """S-111: a leader that others consider dead confirms nothing when it returns."""
    trial.produce(10)
    one = trial.hand("m1")
    messages = one.take(10)
    first = trial.leader()
    isolate(trial, first)
    trial.until(lambda: trial.leader() != first, "take-over of the partition")
    two = trial.hand("m2")
    taken = two.take(10)
    two.settle(taken[:5], AcknowledgeType.ACCEPT)
    assert not (errors := two.commit()), f"m2's acceptances at the new leader: {errors}"
    rejoin(trial, first)
    one.settle(messages, AcknowledgeType.ACCEPT)
    one.commit()
    two.settle(taken[5:], AcknowledgeType.RELEASE)
    two.commit()
    two.take_and_accept(range(5, 10))


def _pause(trial: Trial, name: str) -> None:
    trial.pause(name)


def _resume(trial: Trial, name: str) -> None:
    trial.resume(name)


def _cut_off(trial: Trial, name: str) -> None:
    for other in trial.everybody((SHARE_COORDINATOR, GROUP_COORDINATOR, STORE, REPLICA)):
        trial.cut(name, other, Cut.SILENT)


def _heal(trial: Trial, name: str) -> None:
    trial.heal()


def no_share_coordinator(trial: Trial, kind: Cut, unread_s: float) -> None:
    """S-112: without its share coordinator a leader confirms nothing, and invents no state.

    Requests that it sent may still arrive once the link is back: the acceptance is then in effect although no client
    got a response (INV-5). Otherwise the records are redelivered with rising counts. Only a leader that could not read
    back the outcome of the acceptance either, and dropped the share-partition, counts from the start again (PL-707). A
    cut that refuses connections keeps sent requests from arriving later, and if it is healed soon (`unread_s`), the
    read-back succeeds.
    """
    other = f"{trial.load.topic}{SECOND_TOPIC}"
    trial.produce(10)
    one = trial.hand("m1")
    messages = one.take(10)
    trial.load.create_topic(other, 1)
    trial.produce(10, other)
    for keeper in trial.names(SHARE_COORDINATOR):
        for leader in trial.names(PARTITION_LEADER):  # all leaders: a partition may move meanwhile
            trial.cut(leader, keeper, kind)
    one.settle(messages, AcknowledgeType.ACCEPT)
    assert one.commit(), "an acceptance was confirmed without a share coordinator"
    two = trial.hand("m2", other)
    assert not two.poll(unread_s), "records of a share-partition whose state could not be read"
    trial.heal()
    two.take_and_accept(range(10))

    def settled() -> bool:
        one.accept_some()
        return trial.load.drained(1.0)

    trial.until(settled, "end of the unknown outcome")
    trial.note_drops(trial.load.topic, other)


# ---- what the histories must show


def never_confirmed(worker: str, offsets: range, first_only: bool = False) -> Checker:
    """Check that every acknowledgement of these offsets by this worker was refused (`first_only`: the first of
    each)."""

    def check(events: Sequence[Event]) -> Iterator[str]:
        seen: set[tuple[str, int]] = set()
        for event in events:
            if not isinstance(event, Acknowledged) or event.worker != worker or event.offset not in offsets:
                continue
            if not event.error and not (first_only and (event.topic, event.offset) in seen):
                yield f"{worker}'s {event.type} of {event.offset} was answered NONE"
            seen.add((event.topic, event.offset))
        if not seen:
            yield f"{worker} never acknowledged any of {offsets}"

    return check


def delivered_to(worker: str, offsets: range, least_count: int = 1) -> Checker:
    """Check that this worker received these offsets, with at least this delivery count."""

    def check(events: Sequence[Event]) -> Iterator[str]:
        counts = {e.offset: e.delivery_count for e in events if isinstance(e, Delivered) and e.worker == worker}
        for offset in offsets:
            if counts.get(offset, 0) < least_count:
                yield f"{worker} got offset {offset} with count {counts.get(offset, 0)}, expected {least_count} or more"

    return check


def not_delivered_to(worker: str, offsets: range) -> Checker:
    """Check that this worker received none of these offsets."""

    def check(events: Sequence[Event]) -> Iterator[str]:
        for event in events:
            if isinstance(event, Delivered) and event.worker == worker and event.offset in offsets:
                yield f"{worker} got offset {event.offset} (count {event.delivery_count})"

    return check


_UNKNOWN: Final = (never_confirmed("m1", range(10), first_only=True), counts_rise, delivered_to("m2", range(10)))
_LATE: Final = (never_confirmed("m1", range(10)), delivered_to("m2", range(10)))

EXPERIMENTS: Final = (
    Definition(
        "leader-crash",
        "A leader is killed: acquired records come back, accepted ones do not",
        ("S-109",),
        crash_of_a_leader,
        LONG_LOCKS,
        (
            not_delivered_to("m2", range(10)),
            delivered_to("m2", range(10, 15), 2),
            delivered_to("m2", range(15, 30)),
            never_confirmed("m1", range(15, 30)),
        ),
    ),
    Definition(
        "leadership-moves",
        "Leadership goes to another node while the old one runs on",
        ("S-110",),
        leadership_moves,
        LONG_LOCKS,
        _LATE,
    ),
    Definition(
        "leader-paused",
        "A paused old leader cannot persist",
        ("S-111",),
        partial(old_leader, isolate=_pause, rejoin=_resume),
        LONG_LOCKS,
        _LATE,
    ),
    Definition(
        "leader-cut-off",
        "A leader cut off from coordinators and store, not from its clients, cannot persist",
        ("S-111", "schedule: two owners alive at once"),
        partial(old_leader, isolate=_cut_off, rejoin=_heal),
        LONG_LOCKS,
        _LATE,
    ),
    Definition(
        "leader-without-share-coordinator",
        "Leaders cut off from every share coordinator",
        ("S-112",),
        partial(no_share_coordinator, kind=Cut.SILENT, unread_s=3.0),
        ALONE,
        _UNKNOWN,
    ),
    Definition(
        "share-coordinators-refuse",
        "Leaders refused by every share coordinator, and let in again before they give up",
        ("S-112",),
        partial(no_share_coordinator, kind=Cut.GONE, unread_s=1.0),
        ALONE,
        _UNKNOWN,
        by_default=False,
    ),
)
