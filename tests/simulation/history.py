"""What happened in one simulated run: frozen events in the order in which they happened, nothing else.

Three kinds of witness write here: clients (what an application saw), observers at the edge of every service (what a
process was asked, and what left it as an answer), and the world (processes, faults, samples of served state). Checkers
read it, the story prints it, and the same seed gives the same text byte for byte. Times are virtual milliseconds since
the start of the run. A topic is named by its id in hexadecimal digits, because names come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar, overload


class Place(NamedTuple):
    """Where a record lies."""

    topic_id: str
    partition: int
    offset: int


class Share(NamedTuple):
    """A share-partition: a group's view of one topic-partition."""

    group_id: str
    topic_id: str
    partition: int


#: (first offset, last offset, state, delivery count), as persisted; then the instant before which it waits (PL-934).
StateBatchSeen = tuple[int, ...]
#: (first offset, last offset, acknowledge types: one for all, or one per offset), as asked.
AckBatchSeen = tuple[int, int, tuple[int, ...]]
#: The dead-letter topic of every run: its records are letters, and nobody's that was produced.
LETTER_TOPIC = "dlq.letters"
#: A record's headers in their order.
HeadersSeen = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at_ms` in the process `process` (a node's name, or a client's)."""

    at_ms: int
    process: str


# ---- what clients saw


@dataclass(frozen=True, slots=True)
class ProduceSent(Event):
    """A producer was given a record; every value of a run is different."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: HeadersSeen = ()


@dataclass(frozen=True, slots=True)
class Produced(Event):
    """A producer was told NONE: the record lies at `place`."""

    value: bytes
    place: Place


@dataclass(frozen=True, slots=True)
class ProduceFailed(Event):
    """A producer gave up; the record may lie in the log or not."""

    value: bytes
    error: str


@dataclass(frozen=True, slots=True)
class Delivered(Event):
    """A consumer's application was given a record."""

    member_id: str
    group_id: str
    place: Place
    delivery_count: int
    value: bytes
    key: bytes | None = None
    headers: HeadersSeen = ()


@dataclass(frozen=True, slots=True)
class Settled(Event):
    """An application was told the outcome of its acknowledgement; `error` is "" for NONE, UNKNOWN when not answered."""

    member_id: str
    group_id: str
    place: Place
    type: int
    error: str


@dataclass(frozen=True, slots=True)
class ClientFailed(Event):
    """A call of a client ended with an error that its application saw."""

    call: str
    error: str


@dataclass(frozen=True, slots=True)
class LagSeen(Event):
    """DescribeShareGroupOffsets answered this for a share-partition. -1: not known."""

    share: Share
    start_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class Administered(Event):
    """An admin call ended: `call` is its RPC name, `target` a topic name or group, `detail` what was asked.

    Details: CreateTopics, DeleteTopics `<topic id>`; CreatePartitions `<topic id> <count>`; IncrementalAlterConfigs
    `<config>=<value>`; DeleteRecords `<topic id>/<partition> <first offset that stays>`; DeleteGroups nothing;
    DeleteShareGroupOffsets `<topic name>`; AlterShareGroupOffsets `<topic name>/<partition> <start offset>`. With
    REQUEST_TIMED_OUT or NETWORK_EXCEPTION it may have been done. It was done at some time since `asked_ms`, if it was.
    """

    call: str
    target: str
    detail: str
    error: str
    asked_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupLooked(Event):
    """ListGroups or ShareGroupDescribe (`call`) told a client whether a group exists."""

    call: str
    group_id: str
    there: bool
    #: How many events the history had when it was asked.
    asked: int = 0


# ---- what left the services


@dataclass(frozen=True, slots=True)
class SessionAsked(Event):
    """A ShareFetch or ShareAcknowledge arrived; `request` numbers it within its process, for its answer."""

    incarnation: int
    request: int
    call: str
    group_id: str
    member_id: str
    connection: str
    session_epoch: int
    acks: tuple[tuple[str, int, AckBatchSeen], ...]
    #: The session that the request names (0: none), and the one that it was accepted into (0: refused, with `code`).
    session_id: int = 0
    accepted: int = 0
    code: int = 0
    #: How long a fetch may wait; -1 for an acknowledge.
    max_wait_ms: int = -1


@dataclass(frozen=True, slots=True)
class SessionEnded(Event):
    """A share session is over on this leader, whatever the reason: closed, replaced, silent or its connection lost."""

    incarnation: int
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class SessionAnswered(Event):
    """A ShareFetch or ShareAcknowledge was answered with this top-level code."""

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
    """One partition's acknowledgements of a request, and the code that they were answered with."""

    incarnation: int
    request: int
    asked_ms: int
    share: Share
    member_id: str
    leader_epoch: int
    #: Names the share-partition object that answered; a process makes a new one whenever it drops one. 0: unknown.
    object_id: int
    batches: tuple[AckBatchSeen, ...]
    code: int
    state_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    """A range that a ShareFetch answered as acquired."""

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
    #: The offsets that the record data beside it covers: first and last of each batch.
    data: tuple[tuple[int, int], ...]
    #: What the leader had at `locked_ms`, when it gave the range out: the partition's start offset of the group, its
    #: log's start offset and high watermark.
    start_offset: int
    log_start_offset: int
    high_watermark: int
    state_epoch: int = 0
    locked_ms: int = -1


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered(Event):
    """A ShareGroupHeartbeat was answered. `assignment` is None where the answer leaves it unchanged."""

    incarnation: int
    group_id: str
    member_id: str
    sent_epoch: int
    member_epoch: int
    assignment: tuple[tuple[str, int], ...] | None
    code: int
    asked_ms: int = 0
    #: How many events the history had when it was asked.
    asked: int = 0
    #: The topic names that it sent; None where it sent none, which leaves its subscription as it was.
    subscribed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StateAnswered(Event):
    """A state RPC of the share coordinator was answered for one share-partition.

    `call` is Initialize, Read, Write, Delete or Summary. What was asked stands here; of a Read or Summary that was
    answered NONE what it found: state epoch, start offset, batches, and a Summary's leader epoch.
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
    #: How many events the history had when it was asked.
    asked: int = 0


# ---- what the world did and saw


@dataclass(frozen=True, slots=True)
class Configured(Event):
    """The cluster begins with these settings beside the defaults."""

    flags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProcessChanged(Event):
    """A process started, stopped, was killed, paused or resumed."""

    what: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class FaultStruck(Event):
    """A fault began (or, with `ended`, was over); `fault` says it in words."""

    fault: str
    ended: bool = False


@dataclass(frozen=True, slots=True)
class StateSeen(Event):
    """A share-partition's state as a coordinator that may answer holds it, with nothing unconfirmed."""

    share: Share
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatchSeen, ...]


@dataclass(frozen=True, slots=True)
class GroupSeen(Event):
    """A group as its coordinator holds it: epochs, members and target assignment."""

    group_id: str
    group_epoch: int
    assignment_epoch: int
    members: tuple[tuple[str, int], ...]
    target: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    incarnation: int = 0
    #: All partitions of the topics that members subscribe to, and those of them that are initialised.
    subscribed: tuple[tuple[str, int], ...] = ()
    assignable: tuple[tuple[str, int], ...] = ()
    session_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class LimitsSeen(Event):
    """What a partition leader takes for the settings of a group, from its first look at them on."""

    incarnation: int
    group_id: str
    delivery_count_limit: int
    lock_ms: int
    max_record_locks: int


@dataclass(frozen=True, slots=True)
class SizesSeen(Event):
    """How long queues, caches and windows of a process are: (name, length, bound)."""

    sizes: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class PhaseBegan(Event):
    """The run goes on to "work", "calm" (no fault any more), "drain" or "rest"."""

    phase: str


E = TypeVar("E", bound=Event)


@dataclass
class History:
    """The events of one run. `operations` counts what clients asked: records produced, fetches, acknowledgements, admin
    calls; heartbeats and retries below a client do not count."""

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
        """The events of some kinds, in order."""
        return iter([event for event in self.events if type(event) in kinds])

    @property
    def operations(self) -> int:
        """How many operations of clients the run had."""
        return sum(type(event) in self.OPERATIONS for event in self.events)

    def text(self) -> str:
        """One line per event: what two runs of one seed are compared by."""
        return "\n".join(map(line, self.events))


def line(event: Event) -> str:
    """An event as one line."""
    names = [each.name for each in fields(event)][2:]
    said = " ".join(f"{name}={getattr(event, name)!r}" for name in names)
    return f"{event.at_ms:>8} {event.process:<10} {type(event).__name__} {said}"
