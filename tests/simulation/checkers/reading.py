"""How checkers read a history: offsets and types of acknowledgements, what may have been applied, who was drained."""

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
from tests.simulation.leader_events import AckDone, GivenBack, Locked

#: A range longer than any window of a simulated group runs over a hole that a lost tail has left (CM-47).
RANGE_MAX: Final = 5_000
#: Types that end a record's life.
FINISHING: Final = frozenset({ACK_GAP, ACK_ACCEPT, ACK_REJECT})
#: Codes of a share-partition that say for certain: nothing was applied but renewals (PL-326).
REFUSALS: Final = frozenset({InvalidRequestError.code, InvalidRecordStateError.code})
#: Behind everything that happened.
AT_THE_END: Final = 1 << 62

ObjectKey = tuple[str, int, int]
RequestKey = tuple[str, int, int]
Partition = tuple[str, int]


class StateKey(NamedTuple):
    """A share-partition's state from one Initialize to the next."""

    share: Share
    state_epoch: int


def object_of(event: Locked | AckDone | GivenBack | Acquired) -> ObjectKey:
    """The share-partition object that an event happened to."""
    return event.process, event.incarnation, event.object_id


def request_of(
    event: Locked | AckDone | AckAnswered | Acquired | SessionAsked | SessionAnswered | ReleaseAsked,
) -> RequestKey:
    """The request that an event belongs to."""
    return event.process, event.incarnation, event.request


def partition_of(share: Share) -> Partition:
    """The topic-partition of a share-partition."""
    return share.topic_id, share.partition


def offsets(first: int, last: int) -> range:
    """The offsets of a range; none of one that is no real range."""
    return range(first, last + 1) if 0 <= last - first < RANGE_MAX else range(0)


def typed(batches: Iterable[AckBatchSeen]) -> Iterator[tuple[int, int]]:
    """Offset and type of everything that acknowledgement batches name; malformed ones name nothing."""
    for first, last, types in batches:
        covered = offsets(first, last)
        if len(types) == 1:
            for offset in covered:
                yield offset, types[0]
        elif len(types) == len(covered):
            yield from zip(covered, types, strict=True)


def finished_in(batches: Iterable[StateBatchSeen]) -> Iterator[int]:
    """Offsets that state batches show as terminal."""
    for first, last, state, *_ in batches:
        if state in TERMINAL_STATES:
            yield from offsets(first, last)


def terminal_count(start_offset: int, batches: Iterable[StateBatchSeen]) -> int:
    """How many offsets from the start offset on are terminal."""
    return sum(
        last - max(first, start_offset) + 1
        for first, last, state, *_ in batches
        if state in TERMINAL_STATES and last >= start_offset
    )


class Records:
    """The offsets of every topic-partition that are known to hold a record, and where the logs begin now."""

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
                    self.log_starts[partition] = AT_THE_END  # it is deleted: where it began at last nobody knows

    def of(self, partition: Partition) -> list[int]:
        """All of a partition, ascending."""
        return self._offsets.get(partition, [])

    def between(self, partition: Partition, first: int, end: int) -> list[int]:
        """Those with first <= offset < end."""
        some = self.of(partition)
        return some[bisect_left(some, first) : bisect_left(some, end)]

    def holds(self, partition: Partition, offset: int) -> bool:
        """Whether a record is known to lie there."""
        return bool(self.between(partition, offset, offset + 1))

    def log_start(self, partition: Partition) -> int:
        """Offsets below may be gone from the log at the end of the run."""
        return self.log_starts.get(partition, 0)

    def _cut(self, deletion: Administered, final: FinalState) -> None:
        """A log that exists tells itself where it begins; of a deleted topic what was asked for may have been done."""
        name, _, first = deletion.detail.partition(" ")
        topic_id, _, number = name.partition("/")
        partition = (topic_id, int(number))
        if partition not in final.logs:
            self.log_starts[partition] = max(self.log_starts.get(partition, 0), int(first))


def shortened(history: History) -> set[str]:
    """Topics whose retention was changed, by id."""
    changes = list(history.of(Administered))
    names = {
        event.target
        for event in changes
        if event.call == "IncrementalAlterConfigs" and event.detail.startswith(("retention.", "sharegroups.retention="))
    }
    return {event.detail for event in changes if event.call == "CreateTopics" and event.target in names}


class Applied:
    """Which acknowledgements may have been applied: not those of refused requests, nor those refused for certain."""

    def __init__(self, history: History) -> None:
        self._done = {(*request_of(event), event.share): event for event in history.of(AckDone)}
        self._refused = {(*request_of(event), event.share) for event in history.of(AckAnswered) if event.code}

    def done(self, event: AckAnswered) -> AckDone | None:
        """What the share-partition object said to the acknowledgements of an answer; None: they never reached it."""
        return self._done.get((*request_of(event), event.share))

    def possible(self, asked: SessionAsked, share: Share) -> bool:
        """Whether the request's acknowledgements for this share-partition may have been applied."""
        if not asked.accepted:
            return False
        key = (*request_of(asked), share)
        done = self._done.get(key)
        if done is not None:
            return done.code not in REFUSALS
        return key not in self._refused


#: A request that was given up arrives at most so much later: the longest lateness of a message, and a cut's end.
_LATEST_MS: Final = 5_000


def doomed(history: History) -> dict[str, int]:
    """Topics whose deletion was asked for, by id, and since when. Whatever came of that, nothing is promised of them: a
    deletion of unknown outcome may have begun and then be lost with the store's tail; and since it names no id, it may
    still come late, and be of the topic that was created under that name meanwhile."""
    found: dict[str, int] = {}
    unknown_ms: dict[str, int] = {}
    for event in history.of(Administered):
        if event.call == "DeleteTopics":
            found[event.detail] = min(event.asked_ms, found.get(event.detail, event.asked_ms))
            if event.error not in {"", "UNKNOWN_TOPIC_OR_PARTITION"}:
                unknown_ms[event.target] = event.at_ms
        elif event.call == "CreateTopics" and event.at_ms - unknown_ms.get(event.target, -_LATEST_MS) < _LATEST_MS:
            found.setdefault(event.detail, event.asked_ms)
    return found


def begun_ms(history: History, phase: str) -> int | None:
    """When a phase of the run began; None when it never did."""
    return next((event.at_ms for event in history.of(PhaseBegan) if event.phase == phase), None)


def drained(history: History) -> dict[str, frozenset[Partition]]:
    """By group what its members subscribed to while it was emptied: all of that must be finished at the end."""
    found: dict[str, frozenset[Partition]] = {}
    draining = False
    for event in history.of(PhaseBegan, GroupSeen):
        if isinstance(event, PhaseBegan):
            draining = event.phase == "drain"
        elif draining and event.members:
            found[event.group_id] = frozenset(event.subscribed)
    return found


def numbered(history: History, *kinds: type[Event]) -> Iterator[tuple[int, Any]]:
    """Events of some kinds with their position in the history."""
    for position, event in enumerate(history.events):
        if isinstance(event, kinds):
            yield position, event
