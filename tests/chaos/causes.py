"""Rules about what happens to a record after its first delivery (INV-1, INV-3, INV-8): nothing ends without a cause.

Faults hide events from an outside observer: responses that never arrived, deliveries to a process that was killed. So
near a fault a cause may be missing, for at most one delivery per fault; far from faults, every cause must be in the
history.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from tests.chaos.history import (
    Acknowledged,
    Configured,
    Delivered,
    Dropped,
    Ended,
    Event,
    Failed,
    Fault,
    Observed,
    Produced,
    SessionEnded,
    Unseen,
)

FINAL_TYPES: Final = frozenset({"ACCEPT", "REJECT"})
#: Errors after which the acknowledgement had no effect. After any other error it may have been stored (PL-707).
REFUSALS: Final = frozenset(
    {
        "INVALID_RECORD_STATE",
        "INVALID_REQUEST",
        "INVALID_SHARE_SESSION_EPOCH",
        "SHARE_SESSION_NOT_FOUND",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
)
#: How long a fault may have effects: leases, timeouts, retries.
REACH_MS: Final = 30_000
#: How much later than the leader a client may notice that its stream has ended.
NOTICED_MS: Final = 1_000
#: The fault recorded at the end of every experiment, whether or not anything had to be repaired.
_MENDED: Final = "mended"


class Place(NamedTuple):
    """Where a record is stored."""

    topic: str
    partition: int
    offset: int


def place(event: Produced | Delivered | Acknowledged | Unseen) -> Place:
    """Return where the event's record is stored."""
    return Place(event.topic, event.partition, event.offset)


class Evidence:
    """A history, indexed for the rules of this module."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.produced: list[Produced] = []
        self.deliveries: defaultdict[Place, list[Delivered | Unseen]] = defaultdict(list)
        self.acks: defaultdict[Place, list[Acknowledged]] = defaultdict(list)
        self.starts: dict[tuple[str, int], int] = {}
        self.configured: Configured | None = None
        self._faults: list[Fault] = []
        self._worker_ends: defaultdict[str, list[int]] = defaultdict(list)
        self._kills: defaultdict[str, list[int]] = defaultdict(list)
        self._drops: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for event in events:
            self._sort(event)
        harmful = [fault for fault in self._faults if fault.name != _MENDED]
        self.faults_ms: list[int] = [fault.at_ms for fault in self._faults] if harmful else []

    def _sort(self, event: Event) -> None:
        match event:
            case Produced():
                self.produced.append(event)
            case Delivered() | Unseen():
                self.deliveries[place(event)].append(event)
            case Acknowledged():
                self.acks[place(event)].append(event)
            case Observed():
                self.starts[event.topic, event.partition] = event.start_offset
            case Configured():
                self.configured = event
            case Fault():
                self._faults.append(event)
                if "SIGKILL" in event.name:
                    self._kills[event.target].append(event.at_ms)
            case Ended():
                self._worker_ends[event.worker].append(event.at_ms)
                if event.status < 0:
                    self._kills[event.worker].append(event.at_ms)
            case SessionEnded() | Failed():
                self._worker_ends[event.worker].append(event.at_ms)
            case Dropped():
                self._drops[event.topic, event.partition].append(event.at_ms)

    def faults(self, since_ms: int, until_ms: int | None = None) -> int:
        """Count the faults that may have effects between two moments; without `until_ms`, until the history's end."""
        first = bisect_left(self.faults_ms, since_ms - REACH_MS)
        return (len(self.faults_ms) if until_ms is None else bisect_right(self.faults_ms, until_ms)) - first

    def killed(self, worker: str, since_ms: int, until_ms: int) -> bool:
        """Return whether a worker was killed between two moments, so that it may have been unable to record a
        response."""
        return any(since_ms <= at_ms <= until_ms for at_ms in self._kills[worker])

    def let_go(self, worker: str, since_ms: int, until_ms: int) -> bool:
        """Return whether a worker's session may have ended between two moments; the fetch sent at `since_ms` may itself
        open one."""
        return any(since_ms < at_ms <= until_ms + NOTICED_MS for at_ms in self._worker_ends[worker])

    def dropped(self, at: Place, since_ms: int, until_ms: int) -> bool:
        """Return whether a leader dropped the share-partition between two moments."""
        return any(since_ms <= at_ms <= until_ms for at_ms in self._drops[at.topic, at.partition])

    def drops(self, at: Place) -> int:
        """Count how many times leaders logged that they dropped the share-partition."""
        return len(self._drops[at.topic, at.partition])


def configured(events: Sequence[Event]) -> Iterator[str]:
    """The history must contain the group's settings: without them the rules below would excuse everything."""
    if not any(isinstance(event, Configured) for event in events):
        yield "the history does not contain the lock duration and the delivery limit of the group"


def ends_have_causes(events: Sequence[Event], drained: set[tuple[str, int]]) -> Iterator[str]:
    """INV-1: a delivered record ends only by an ACCEPT or REJECT that was confirmed or may have been stored, at the
    delivery limit, or while its holder was killed. Judges the records of drained partitions and those below the start
    offset."""
    evidence = Evidence(events)
    for event in evidence.produced:
        at = place(event)
        over = at[:2] in drained or at.offset < evidence.starts.get(at[:2], -1)
        if over and evidence.deliveries[at] and not _has_cause(evidence, at):
            last = max(evidence.deliveries[at], key=lambda one: (one.delivery_count, one.at_ms))
            yield (
                f"INV-1: {at} ({event.value}) was delivered {len(evidence.deliveries[at])} times, "
                f"the last time with count {last.delivery_count} to {last.worker}, "
                "and ended without an ACCEPT or REJECT, a reached limit, or a killed holder; "
                f"acknowledgements: {_said(evidence.acks[at])}"
            )


def _has_cause(evidence: Evidence, at: Place) -> bool:
    deliveries = evidence.deliveries[at]
    if any(_may_have_ended(evidence, ack, deliveries) for ack in evidence.acks[at]):
        return True
    last_ms = max(one.fetched_ms for one in deliveries)  # an earlier kill ended nothing: it was redelivered
    if any(evidence.killed(one.worker, max(one.fetched_ms, last_ms), one.at_ms + REACH_MS) for one in deliveries):
        return True
    if evidence.configured is None:
        return False
    hidden = evidence.faults(last_ms)
    return max(one.delivery_count for one in deliveries) + hidden >= evidence.configured.delivery_limit


def _may_have_ended(evidence: Evidence, ack: Acknowledged, deliveries: Sequence[Delivered | Unseen]) -> bool:
    """Return whether this acknowledgement may have ended the record. An unanswered one did not if a fetch that was sent
    after the client had given it up returned the record again (INV-5)."""
    if ack.type not in FINAL_TYPES:
        return False
    if not ack.error:
        return True
    if ack.error in REFUSALS and not evidence.faults(ack.sent_ms, ack.at_ms):
        return False
    return not any(one.fetched_ms > ack.at_ms for one in deliveries)


def _said(acks: Sequence[Acknowledged]) -> str:
    said = [f"{ack.worker} {ack.type} of count {ack.delivery_count} {ack.error or 'NONE'}" for ack in acks]
    return ", ".join(said) or "none"


def one_holder(events: Sequence[Event]) -> Iterator[str]:
    """INV-3: while a worker's lock is held, no worker gets the record, not even the holder.

    The lock cannot have expired if the response to the next fetch that returns the record arrived within the lock's
    duration after the first worker's fetch was sent. An acknowledgement, the end of the session or the drop of the
    share-partition's object may have ended the lock earlier; faults end sessions and objects without leaving an event.
    A record that the worker never saw may have been released by its client at any time, for example when the partition
    was assigned to another member.
    """
    evidence = Evidence(events)
    if evidence.configured is None:
        return
    for at, deliveries in evidence.deliveries.items():
        ordered = sorted(deliveries, key=lambda one: (one.delivery_count, one.at_ms))
        for first, second in pairwise(ordered):
            if isinstance(first, Unseen) or second.at_ms >= first.fetched_ms + evidence.configured.lock_ms:
                continue
            if not _lock_may_have_ended(evidence, at, first, second):
                yield (
                    f"INV-3: {at} went to {second.worker} (count {second.delivery_count}) at {second.at_ms}, while "
                    f"{first.worker} (count {first.delivery_count}) held it, which asked for it at "
                    f"{first.fetched_ms}; its lock lasts {evidence.configured.lock_ms} ms"
                )


def _lock_may_have_ended(evidence: Evidence, at: Place, first: Delivered | Unseen, second: Delivered | Unseen) -> bool:
    since_ms, until_ms = first.fetched_ms, second.at_ms
    return (
        any(
            ack.worker == first.worker and since_ms <= ack.sent_ms <= until_ms and ack.error not in REFUSALS
            for ack in evidence.acks[at]
        )
        or evidence.let_go(first.worker, since_ms, until_ms)
        or evidence.dropped(at, since_ms, until_ms)
        or bool(evidence.faults(since_ms, until_ms))
    )


def attempts_are_bounded(events: Sequence[Event]) -> Iterator[str]:
    """INV-8: no delivery count exceeds the limit, and there are at most as many deliveries as the limit, plus one for
    each fault or drop that may have removed the share-partition's object."""
    evidence = Evidence(events)
    if evidence.configured is None:
        return
    limit = evidence.configured.delivery_limit
    for at, deliveries in evidence.deliveries.items():
        highest = max(deliveries, key=lambda one: one.delivery_count)
        if highest.delivery_count > limit:
            yield f"INV-8: {at} went to {highest.worker} with count {highest.delivery_count}; the limit is {limit}"
        allowed = limit + evidence.drops(at) + len(evidence.faults_ms)
        if len(deliveries) > allowed:
            yield f"INV-8: {at} was delivered {len(deliveries)} times; limit {limit}, with faults and drops {allowed}"
