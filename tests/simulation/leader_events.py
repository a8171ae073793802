"""Events inside partition leaders, including those that no response shows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import AckBatchSeen, Event, FailureSeen, Share

#: An acknowledgement batch, whether its deliveries are taken back (one value for all, or one per offset; PL-941), and
#: its reason.
ReasonSeen = tuple[AckBatchSeen, tuple[bool, ...], str]


@dataclass(frozen=True, slots=True)
class Locked(Event):
    """A share-partition object delivered a range to a member; the lock starts at this moment."""

    incarnation: int
    request: int
    share: Share
    member_id: str
    leader_epoch: int
    generation: int
    state_epoch: int
    object_id: int
    first_offset: int
    last_offset: int
    delivery_count: int
    lock_ms: int
    #: The group's delivery limit at this moment.
    limit: int
    #: The window: its length before and now, its maximum, and the longest batch that was read from the log.
    in_flight_before: int
    in_flight: int
    max_locks: int
    batch_max: int
    #: The number of offsets by which this fetch moved the window's end.
    new_offsets: int


@dataclass(frozen=True, slots=True)
class AckDone(Event):
    """A share-partition object has completed one request's acknowledgements, whether or not the response is sent."""

    incarnation: int
    request: int
    share: Share
    member_id: str
    leader_epoch: int
    state_epoch: int
    object_id: int
    batches: tuple[AckBatchSeen, ...]
    code: int
    #: True if a state write contains it.
    persisted: bool
    #: When it was requested, how many events the history had then, and the object's start offset at that moment.
    begun_ms: int
    begun: int
    start_offset: int
    lock_ms: int
    limit: int


@dataclass(frozen=True, slots=True)
class ReasonsGiven(Event):
    """A share-partition object starts to process acknowledgements, some of which have a reason (PL-942); `batches` are
    those."""

    incarnation: int
    request: int
    share: Share
    state_epoch: int
    object_id: int
    batches: tuple[ReasonSeen, ...]


@dataclass(frozen=True, slots=True)
class ReasonsKept(Event):
    """The reasons that a share-partition object keeps in memory have changed, or it has loaded its state.

    `start_offset` is stored, or the log starts there; `window_start` is the start offset in memory.
    """

    incarnation: int
    share: Share
    state_epoch: int
    object_id: int
    start_offset: int
    window_start: int
    failures: tuple[FailureSeen, ...]


@dataclass(frozen=True, slots=True)
class GivenBack(Event):
    """A share-partition object starts to release records that a member holds: its session ended (`ranges` None), or
    ranges could not be delivered to it."""

    incarnation: int
    share: Share
    object_id: int
    member_id: str
    ranges: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True)
class MemoryWrong(Event):
    """A share-partition object is inconsistent after an event (`Window.check`), or gave up because the table in PL-102
    has no transition for a record's state and trigger."""

    incarnation: int
    share: Share
    object_id: int
    offset: int
    sentence: str


@dataclass(frozen=True, slots=True)
class ObjectMade(Event):
    """A leader created a share-partition object; `object_id` identifies it in all its events."""

    incarnation: int
    share: Share
    object_id: int
    leader_epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class ObjectDropped(Event):
    """A share-partition object is dropped, for a `DropReason`; deliveries that were not persisted are forgotten."""

    incarnation: int
    share: Share
    object_id: int
    leader_epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Consumed(Event):
    """A leader starts to move a log start because every group has finished the records before it (CM-160).

    `asked`: the groups that had state for the topic, with nothing unconfirmed, when the leader asked for their
    progress, each with the state epoch of this partition, −1 if there was certainly none. `now`: the groups that have
    state at this moment, with state epoch and start offset of this partition. Neither includes shards that no process
    serves.
    """

    incarnation: int
    topic_id: str
    partition: int
    log_start_offset: int
    asked: tuple[tuple[str, int], ...]
    now: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class StartResolved(Event):
    """A share-partition without a stored start offset got one from `share.auto.offset.reset`; it is not written yet."""

    incarnation: int
    share: Share
    object_id: int
    state_epoch: int
    start_offset: int
    log_start_offset: int
    high_watermark: int
