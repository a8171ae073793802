"""The history of one simulated run: immutable events in the order in which they happened.

Three kinds of sources add events: clients (what an application saw), observers at the edge of every service (the
requests that reached a process, and the responses that left it), and the world (processes, faults, samples of served
state). Checkers read the history, the story prints it, and the same seed gives the same text byte for byte. Times are
virtual milliseconds since the start of the run. A topic is identified by its id in hexadecimal digits, because names
are reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar, overload


class Place(NamedTuple):
    """The position of a record."""

    topic_id: str
    partition: int
    offset: int


class Share(NamedTuple):
    """A share-partition: a group's view of one topic-partition."""

    group_id: str
    topic_id: str
    partition: int


#: (first offset, last offset, state, delivery count), as persisted; then the end of the record's delay (PL-934).
StateBatchSeen = tuple[int, ...]
#: (first offset, last offset, delivery count, reason), as persisted (SC-117).
FailureSeen = tuple[int, int, int, str]
#: (first offset, last offset, acknowledge types: one for all, or one per offset), as requested.
AckBatchSeen = tuple[int, int, tuple[int, ...]]
#: The dead-letter topic of every run: its records are dead letters, none of them sent by a producer of the run.
LETTER_TOPIC = "dlq.letters"
#: A record's headers in their order.
HeadersSeen = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An event at `at_ms` in the process `process` (a node's name, or a client's)."""

    at_ms: int
    process: str


# ---- seen by clients


@dataclass(frozen=True, slots=True)
class ProduceSent(Event):
    """A producer was given a record; all values in a run are different."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: HeadersSeen = ()


@dataclass(frozen=True, slots=True)
class Produced(Event):
    """A producer received NONE: the record is at `place`."""

    value: bytes
    place: Place


@dataclass(frozen=True, slots=True)
class ProduceFailed(Event):
    """A producer gave up; the record may or may not be in the log."""

    value: bytes
    error: str


@dataclass(frozen=True, slots=True)
class Delivered(Event):
    """A consumer's application received a record."""

    member_id: str
    group_id: str
    place: Place
    delivery_count: int
    value: bytes
    key: bytes | None = None
    headers: HeadersSeen = ()


@dataclass(frozen=True, slots=True)
class Settled(Event):
    """An application received the outcome of its acknowledgement; `error` is "" for NONE, UNKNOWN if there was no
    response."""

    member_id: str
    group_id: str
    place: Place
    type: int
    error: str


@dataclass(frozen=True, slots=True)
class ClientFailed(Event):
    """A client's call ended with an error that its application saw."""

    call: str
    error: str


@dataclass(frozen=True, slots=True)
class LagSeen(Event):
    """The result of DescribeShareGroupOffsets for a share-partition. -1: not known."""

    share: Share
    start_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class Administered(Event):
    """An admin call ended: `call` is its RPC name, `target` a topic name or group, `detail` the request.

    Details: CreateTopics, DeleteTopics `<topic id>`; CreatePartitions `<topic id> <count>`; IncrementalAlterConfigs
    `<config>=<value>`; DeleteRecords `<topic id>/<partition> <first offset that stays>`; DeleteGroups nothing;
    DeleteShareGroupOffsets `<topic name>`; AlterShareGroupOffsets `<topic name>/<partition> <start offset>`. With
    REQUEST_TIMED_OUT or NETWORK_EXCEPTION it may have been done. If it was done, that happened at some time since
    `asked_ms`.
    """

    call: str
    target: str
    detail: str
    error: str
    asked_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupListed(Event):
    """A client learned from ListGroups or ShareGroupDescribe (`call`) whether a group exists."""

    call: str
    group_id: str
    there: bool
    #: The number of events in the history when it was asked.
    asked: int = 0


# ---- responses and events of the services


@dataclass(frozen=True, slots=True)
class SessionAsked(Event):
    """A ShareFetch or ShareAcknowledge arrived; `request`, unique within the process, identifies it in its response."""

    incarnation: int
    request: int
    call: str
    group_id: str
    member_id: str
    connection: str
    session_epoch: int
    acks: tuple[tuple[str, int, AckBatchSeen], ...]
    #: The session that the request names (0: none), and the one that accepted it (0: refused, with `code`).
    session_id: int = 0
    accepted: int = 0
    code: int = 0
    #: How long a fetch may wait; -1 for an acknowledge.
    max_wait_ms: int = -1


@dataclass(frozen=True, slots=True)
class SessionEnded(Event):
    """A share session ended on this leader, for any reason: it was closed, replaced or silent, or its connection was
    lost."""

    incarnation: int
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class SessionAnswered(Event):
    """A ShareFetch or ShareAcknowledge got a response with this top-level code."""

    incarnation: int
    request: int
    asked_ms: int
    call: str
    group_id: str
    member_id: str
    session_epoch: int
    code: int


@dataclass(frozen=True, slots=True)
class AckAnswered(Event):
    """One partition's acknowledgements in a request, and the code in their response."""

    incarnation: int
    request: int
    asked_ms: int
    share: Share
    member_id: str
    leader_epoch: int
    #: Identifies the share-partition object that responded; a process creates a new one after it drops one. 0: unknown.
    object_id: int
    batches: tuple[AckBatchSeen, ...]
    code: int
    state_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    """A range that a ShareFetch response reported as acquired."""

    incarnation: int
    request: int
    share: Share
    member_id: str
    leader_epoch: int
    object_id: int
    first_offset: int
    last_offset: int
    delivery_count: int
    lock_ms: int
    #: The offsets covered by the record data in the response: first and last of each batch.
    data: tuple[tuple[int, int], ...]
    #: The leader's offsets at `locked_ms`, when it locked the range: the group's start offset for the partition, the
    #: log's start offset and its high watermark.
    start_offset: int
    log_start_offset: int
    high_watermark: int
    state_epoch: int = 0
    locked_ms: int = -1


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered(Event):
    """A ShareGroupHeartbeat got its response. `assignment` is None if the response leaves it unchanged."""

    incarnation: int
    group_id: str
    member_id: str
    sent_epoch: int
    member_epoch: int
    assignment: tuple[tuple[str, int], ...] | None
    code: int
    asked_ms: int = 0
    #: The number of events in the history when it was asked.
    asked: int = 0
    #: The topic names that it sent; None if it sent none, which leaves its subscription unchanged.
    subscribed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StateAnswered(Event):
    """A state RPC of the share coordinator got its response for one share-partition.

    `call` is Initialize, Read, Write, Delete or Summary. The fields are those of the request; for a Read or Summary
    with the response NONE, they are the state found: state epoch, start offset, batches, and a Summary's leader epoch.
    """

    incarnation: int
    call: str
    share: Share
    leader_epoch: int
    state_epoch: int
    start_offset: int
    batches: tuple[StateBatchSeen, ...]
    code: int
    generation: int = 0
    delivery_complete_count: int = -1
    #: The number of events in the history when it was asked.
    asked: int = 0
    #: The reasons written or, for a Read, found.
    failures: tuple[FailureSeen, ...] = ()


# ---- actions and samples of the world


@dataclass(frozen=True, slots=True)
class Configured(Event):
    """The cluster starts with these settings in addition to the defaults."""

    flags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProcessChanged(Event):
    """A process started, stopped, was killed, paused or resumed."""

    what: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class FaultStruck(Event):
    """A fault started (or, with `ended`, ended); `fault` describes it in words."""

    fault: str
    ended: bool = False


@dataclass(frozen=True, slots=True)
class StateSeen(Event):
    """A share-partition's state with nothing unconfirmed in it, as held by a coordinator that may respond."""

    share: Share
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatchSeen, ...]
    failures: tuple[FailureSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSeen(Event):
    """A group as its coordinator holds it: epochs, members and target assignment."""

    group_id: str
    group_epoch: int
    assignment_epoch: int
    members: tuple[tuple[str, int], ...]
    target: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    incarnation: int = 0
    #: All partitions of the topics that members subscribe to, and which of them are initialised.
    subscribed: tuple[tuple[str, int], ...] = ()
    assignable: tuple[tuple[str, int], ...] = ()
    session_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class LimitsSeen(Event):
    """The settings of a group that a partition leader uses, recorded at its first read and at each change."""

    incarnation: int
    group_id: str
    delivery_count_limit: int
    lock_ms: int
    max_record_locks: int


@dataclass(frozen=True, slots=True)
class SizesSeen(Event):
    """The sizes of a process's queues, caches and windows: (name, length, maximum)."""

    sizes: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class PhaseBegan(Event):
    """The run enters the phase "work", "calm" (no more faults), "drain" or "rest"."""

    phase: str


E = TypeVar("E", bound=Event)


@dataclass
class History:
    """The events of one run. `operations` counts client requests: records produced, fetches, acknowledgements and admin
    calls, but not heartbeats or a client's internal retries."""

    OPERATIONS: ClassVar = (ProduceSent, SessionAnswered, Administered)

    seed: int
    now_ms: Callable[[], int]
    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Record an event."""
        self.events.append(event)

    @overload
    def of(self, kind: type[E], /) -> Iterator[E]: ...

    @overload
    def of(self, *kinds: type[Event]) -> Iterator[Any]: ...

    def of(self, *kinds: type[Event]) -> Iterator[Any]:
        """Return the events of these kinds, in order."""
        return iter([event for event in self.events if type(event) in kinds])

    @property
    def operations(self) -> int:
        """Return the number of client operations in the run."""
        return sum(type(event) in self.OPERATIONS for event in self.events)

    def text(self) -> str:
        """Return one line per event; two runs of one seed are compared by this text."""
        return "\n".join(map(line, self.events))


def line(event: Event) -> str:
    """Return an event as one line."""
    names = [each.name for each in fields(event)][2:]
    said = " ".join(f"{name}={getattr(event, name)!r}" for name in names)
    return f"{event.at_ms:>8} {event.process:<10} {type(event).__name__} {said}"
