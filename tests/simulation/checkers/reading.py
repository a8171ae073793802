"""How checkers read a history: the offsets and types of acknowledgements, which of them may have been applied, and
which groups were drained."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kip932.errors import InvalidRecordStateError, InvalidRequestError
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, TERMINAL_STATES
from tests.simulation.delay_events import ReleaseAsked
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    AckAnswered,
    AckBatchSeen,
    Acquired,
    Administered,
    Event,
    GroupSeen,
    History,
    PhaseBegan,
    Produced,
    SessionAnswered,
    SessionAsked,
    Share,
    StateBatchSeen,
)
from tests.simulation.leader_events import AckDone, GivenBack, Locked, ObjectDropped, ReasonsGiven

#: A range longer than any window of a simulated group spans a hole left by a lost tail (CM-47).
RANGE_MAX: Final = 5_000
#: Acknowledge types that finish a record.
FINISHING: Final = frozenset({ACK_GAP, ACK_ACCEPT, ACK_REJECT})
#: Error codes of a share-partition that prove that nothing except renewals was applied (PL-326).
REFUSALS: Final = frozenset({InvalidRequestError.code, InvalidRecordStateError.code})
#: A position after every event.
AT_THE_END: Final = 1 << 62

ObjectKey = tuple[str, int, int]
RequestKey = tuple[str, int, int]
Partition = tuple[str, int]


class StateKey(NamedTuple):
    """A share-partition's state from one Initialize to the next."""

    share: Share
    state_epoch: int


def object_of(event: Locked | AckDone | GivenBack | Acquired | ObjectDropped) -> ObjectKey:
    """Return the key of the share-partition object that an event concerns."""
    return event.process, event.incarnation, event.object_id


def request_of(
    event: Locked | AckDone | AckAnswered | Acquired | SessionAsked | SessionAnswered | ReleaseAsked | ReasonsGiven,
) -> RequestKey:
    """Return the key of the request to which an event belongs."""
    return event.process, event.incarnation, event.request


def partition_of(share: Share) -> Partition:
    """Return the topic-partition of a share-partition."""
    return share.topic_id, share.partition


def offsets(first: int, last: int) -> range:
    """Return the offsets of a range; none if it is not a valid range."""
    return range(first, last + 1) if 0 <= last - first < RANGE_MAX else range(0)


def typed(batches: Iterable[AckBatchSeen]) -> Iterator[tuple[int, int]]:
    """Yield every offset in acknowledgement batches with its type; malformed batches are skipped."""
    for first, last, types in batches:
        covered = offsets(first, last)
        if len(types) == 1:
            for offset in covered:
                yield offset, types[0]
        elif len(types) == len(covered):
            yield from zip(covered, types, strict=True)


def finished_in(batches: Iterable[StateBatchSeen]) -> Iterator[int]:
    """Yield the offsets that are terminal in state batches."""
    for first, last, state, *_ in batches:
        if state in TERMINAL_STATES:
            yield from offsets(first, last)


def terminal_count(start_offset: int, batches: Iterable[StateBatchSeen]) -> int:
    """Count the terminal offsets at or after the start offset."""
    return sum(
        last - max(first, start_offset) + 1
        for first, last, state, *_ in batches
        if state in TERMINAL_STATES and last >= start_offset
    )


class Records:
    """The offsets of every topic-partition that are known to hold a record, and the current log starts."""

    def __init__(self, history: History, final: FinalState) -> None:
        found: dict[Partition, set[int]] = defaultdict(set)
        for event in history.of(Produced):
            found[event.place[:2]].add(event.place.offset)
        for partition, values in final.values.items():
            found[partition].update(values)
        self._offsets = {partition: sorted(some) for partition, some in found.items()}
        self.log_starts = {partition: log.log_start_offset for partition, log in final.logs.items()}
        for deletion in history.of(Administered):
            if deletion.call == "DeleteRecords":
                self._cut(deletion, final)
        for topic_id in shortened(history):
            for partition in self._offsets:
                if partition[0] == topic_id and partition not in final.logs:
                    self.log_starts[partition] = AT_THE_END  # it is deleted: its last log start is unknown

    def of(self, partition: Partition) -> list[int]:
        """Return all such offsets of a partition, ascending."""
        return self._offsets.get(partition, [])

    def between(self, partition: Partition, first: int, end: int) -> list[int]:
        """Return those with first <= offset < end."""
        some = self.of(partition)
        return some[bisect_left(some, first) : bisect_left(some, end)]

    def holds(self, partition: Partition, offset: int) -> bool:
        """Return True if the offset is known to hold a record."""
        return bool(self.between(partition, offset, offset + 1))

    def log_start(self, partition: Partition) -> int:
        """Return the offset below which the log may have been deleted at the end of the run."""
        return self.log_starts.get(partition, 0)

    def _cut(self, deletion: Administered, final: FinalState) -> None:
        """Take a log's own start if it exists; for a deleted topic, the requested deletion may have been done."""
        name, _, first = deletion.detail.partition(" ")
        topic_id, _, number = name.partition("/")
        partition = (topic_id, int(number))
        if partition not in final.logs:
            self.log_starts[partition] = max(self.log_starts.get(partition, 0), int(first))


def shortened(history: History) -> set[str]:
    """Return the ids of topics whose retention was changed."""
    changes = list(history.of(Administered))
    names = {
        event.target
        for event in changes
        if event.call == "IncrementalAlterConfigs" and event.detail.startswith(("retention.", "sharegroups.retention="))
    }
    return {event.detail for event in changes if event.call == "CreateTopics" and event.target in names}


class Applied:
    """The acknowledgements that may have been applied: all except those in refused requests and those that were
    certainly refused."""

    def __init__(self, history: History) -> None:
        self._done = {(*request_of(event), event.share): event for event in history.of(AckDone)}
        self._refused = {(*request_of(event), event.share) for event in history.of(AckAnswered) if event.code}

    def done(self, event: AckAnswered) -> AckDone | None:
        """Return the share-partition object's result for the acknowledgements of a response; None if they never reached
        it."""
        return self._done.get((*request_of(event), event.share))

    def possible(self, asked: SessionAsked, share: Share) -> bool:
        """Return True if the request's acknowledgements for this share-partition may have been applied."""
        if not asked.accepted:
            return False
        key = (*request_of(asked), share)
        done = self._done.get(key)
        if done is not None:
            return done.code not in REFUSALS
        return key not in self._refused


def doomed(history: History) -> dict[str, int]:
    """Return the ids of topics whose deletion was requested, and since when. Whatever the outcome, nothing is
    guaranteed for them: a deletion of unknown outcome may have started and then be lost with the store's tail. It names
    the id (CL-156), so an attempt that arrives late does not affect the next topic of that name."""
    found: dict[str, int] = {}
    for event in history.of(Administered):
        if event.call == "DeleteTopics":
            found[event.detail] = min(event.asked_ms, found.get(event.detail, event.asked_ms))
    return found


def begun_ms(history: History, phase: str) -> int | None:
    """Return when a phase of the run started; None if it never did."""
    return next((event.at_ms for event in history.of(PhaseBegan) if event.phase == phase), None)


def drained(history: History) -> dict[str, frozenset[Partition]]:
    """Return, by group, the partitions that its members subscribed to during the drain: all of them must be finished at
    the end."""
    found: dict[str, frozenset[Partition]] = {}
    draining = False
    for event in history.of(PhaseBegan, GroupSeen):
        if isinstance(event, PhaseBegan):
            draining = event.phase == "drain"
        elif draining and event.members:
            found[event.group_id] = frozenset(event.subscribed)
    return found


def numbered(history: History, *kinds: type[Event]) -> Iterator[tuple[int, Any]]:
    """Yield the events of these kinds with their positions in the history."""
    for position, event in enumerate(history.events):
        if isinstance(event, kinds):
            yield position, event
