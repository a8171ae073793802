"""The acknowledgements that are to be sent to one leader, and the outcomes of those that were sent.

Rules CL-32 to CL-35. The outbox decides which acknowledgements go into the same request, which must fail and which are
retried; the session that owns the outbox sends them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeResponse
from kip932.errors import (
    FencedLeaderEpochError,
    InvalidRecordStateError,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    KafkaError,
    NetworkError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    RetriableError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kip932.failures import REASONS_BYTES_MAX
from kip932.ids import ACKNOWLEDGED_RANGES_MAX, TopicIdPartition
from sharegroups.connection.cluster import Cluster
from sharegroups.consuming.core.acknowledgements import (
    AckBatch,
    has_delay,
    has_renewal,
    merge,
    reason_bytes,
    without_delays,
)
from sharegroups.messages import Delivered
from sharegroups.tracing.traces import AckTrace

log = logging.getLogger(__name__)

#: Errors that mean that the session is lost (CL-31), or cannot be opened until this member has joined again (CL-38).
SESSION_LOST: Final = (
    ShareSessionNotFoundError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    UnknownMemberIdError,
)
#: Errors that show that the metadata are out of date (CL-34).
OUTDATED: Final = (
    NotLeaderOrFollowerError,
    FencedLeaderEpochError,
    UnknownTopicOrPartitionError,
    UnknownTopicIdError,
)
#: The maximum number of offset ranges in one request. The last delivery added may exceed it, so it is half of the
#: leader's limit (CM-62).
_RANGES_MAX: Final = ACKNOWLEDGED_RANGES_MAX // 2
#: The maximum number of bytes of reasons in one request, exceeded by at most one delivery's.
_REASONS_BYTES_MAX: Final = 4 * REASONS_BYTES_MAX
_NEVER_MS: Final = 2**62
#: Errors of a partition that mean that the request changed nothing there (INV-6, PL-401, PL-930).
_CHANGED_NOTHING: Final = (InvalidRecordStateError, InvalidRequestError)
_FINAL: Final = (*OUTDATED, *SESSION_LOST, NetworkError)


@dataclass(slots=True, eq=False)
class PendingAck:
    """Acknowledgements of one delivery, pending or sent. `commit` is the commit that waits for them (CL-24).

    `unseen`: the application does not know about this acknowledgement, so no callback reports it (CL-26).
    """

    delivered: Delivered
    batches: list[AckBatch]
    deadline_ms: int
    commit: object | None = None
    unseen: bool = False
    #: A retry is not sent before this time.
    not_before_ms: int = 0
    #: The error of an earlier attempt that may have taken effect despite the error.
    unsure: KafkaError | None = None
    #: Called with the outcome instead of notifying the application; set for a renewal by `keep_alive` (CL-94).
    on_outcome: Callable[[PendingAck, KafkaError | None], None] | None = None
    #: True if they were refused together with others of their partition, so that they are sent again without those
    #: (CL-97).
    alone: bool = False
    #: When the ShareAcknowledge that carried them was sent.
    sent_ms: int = 0
    #: How long renewed locks last after `sent_ms`, according to the response; 0 if the response does not say.
    lock_ms: int = 0
    #: What they are traced with, if they are.
    trace: AckTrace | None = None
    renews: bool = field(init=False)

    def __post_init__(self) -> None:
        self.renews = has_renewal(self.batches)


class NothingToSendError(Exception):
    """An earlier request has already taken all the acknowledgements that this request was meant to carry."""


class AckOwner(Protocol):
    """Receives the outcome of acknowledgements."""

    def settled(self, ack: PendingAck, error: KafkaError | None) -> None:
        """Receive a final outcome; the acknowledgements are not retried (CL-26)."""
        ...


class AckOutbox:
    """Pending acknowledgements for node `node_id`, in the order of the application's calls."""

    def __init__(self, node_id: int, cluster: Cluster, owner: AckOwner) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._owner = owner
        self._backoff = cluster.backoff()
        self._pending: deque[PendingAck] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def has_renewals(self) -> bool:
        """True when a renewal is pending; a ShareFetch cannot carry it (CL-27)."""
        return any(ack.renews for ack in self._pending)

    def add(self, ack: PendingAck) -> None:
        """Add acknowledgements. Their number is bounded by what the leader has delivered."""
        self._pending.append(ack)

    def next_due_ms(self) -> int | None:
        """Return when the first pending acknowledgement may be sent; None if there is none."""
        return min((ack.not_before_ms for ack in self._pending), default=None)

    def latest_ms(self) -> int:
        """Return when the first one must be sent even if the leader throttles this client: when three quarters of its
        records' lock have passed."""
        held = (ack.delivered for ack in self._pending)
        return min((one.acquired_ms + one.lock_ms * 3 // 4 for one in held if one.lock_ms), default=_NEVER_MS)

    def take(self, renewals: bool) -> list[PendingAck]:
        """Remove and return the acknowledgements of the next request.

        Those that overlap others, or exceed the request's limit, are left for a later request. Report those taken with
        `fetch_answered`, `acknowledge_answered`, `fail` or `put_back`.
        """
        if len(self._pending) == 1:
            ack = self._pending[0]
            if (ack.not_before_ms and ack.not_before_ms > _now_ms()) or (ack.renews and not renewals):
                return []
            return [self._pending.popleft()]
        now_ms, room, bytes_left = _now_ms(), _RANGES_MAX, _REASONS_BYTES_MAX
        ready: dict[TopicIdPartition, list[PendingAck]] = {}
        kept: list[PendingAck] = []
        for ack in self._pending:
            if ack.not_before_ms > now_ms or (ack.renews and not renewals) or min(room, bytes_left) <= 0:
                kept.append(ack)
            else:
                room -= len(ack.batches)
                bytes_left -= reason_bytes(ack.batches)
                ready.setdefault(ack.delivered.id_partition, []).append(ack)
        taken: list[PendingAck] = []
        for acks in ready.values():
            if len(acks) == 1:
                taken += acks
                continue
            if any(ack.alone for ack in acks):
                taken.append(acks[0])
                kept += acks[1:]
                continue
            waiting = set(merge([ack.batches for ack in acks])[1])
            for number, ack in enumerate(acks):
                (kept if number in waiting else taken).append(ack)
        self._pending = deque(kept)
        return taken

    @property
    def fits_one_request(self) -> bool:
        """True when one request can carry everything that is pending."""
        parts: dict[TopicIdPartition, list[list[AckBatch]]] = {}
        for ack in self._pending:
            parts.setdefault(ack.delivered.id_partition, []).append(ack.batches)
        if any(ack.alone for ack in self._pending):
            return len(self._pending) == 1
        few = (
            sum(len(ack.batches) for ack in self._pending) <= _RANGES_MAX
            and sum(reason_bytes(ack.batches) for ack in self._pending) <= _REASONS_BYTES_MAX
        )
        return few and not any(merge(batches)[1] for batches in parts.values())

    def drop_dead(self, generation: int) -> None:
        """Fail acknowledgements whose session was lost or whose partition's leader has changed (CL-32, CL-33)."""
        dead: list[tuple[PendingAck, KafkaError]] = []
        for ack in self._pending:
            leader = self._cluster.leader(ack.delivered.id_partition)
            if ack.delivered.generation != generation:
                text = f"the share session with node {self._node_id}, which delivered the records, is gone"
                dead.append((ack, NetworkError(text)))
            elif leader is not None and leader.node_id != self._node_id:
                text = f"the leader moved from node {self._node_id} to {leader.node_id}; the records are redelivered"
                dead.append((ack, NotLeaderOrFollowerError(text)))
        if dead:
            gone = {ack for ack, _ in dead}
            self._pending = deque([ack for ack in self._pending if ack not in gone])
            for ack, error in dead:
                self._owner.settled(ack, error)

    def fail(self, acks: list[PendingAck], error: KafkaError) -> None:
        """Fail `acks`, whose request failed as a whole."""
        for ack in acks:
            self._owner.settled(ack, error)

    def fail_pending(self, error: KafkaError) -> None:
        """Fail all pending acknowledgements, because nothing more will be sent."""
        acks, self._pending = list(self._pending), deque()
        self.fail(acks, error)

    def put_back(self, acks: list[PendingAck], error: KafkaError) -> None:
        """Retry acknowledgements until their deadline, because the leader did not process their request (CL-87), or, if
        it did, will refuse to process it again (CL-144)."""
        delay_ms = self._backoff.next_ms()
        for ack in acks:
            unsure = ack.unsure
            self._try_again(ack, error, delay_ms)
            ack.unsure = unsure  # this attempt has changed nothing at the leader

    def fetch_answered(self, acks: list[PendingAck], results: Mapping[TopicIdPartition, KafkaError | None]) -> None:
        """Process the results of acknowledgements that a ShareFetch carried; these are not retried (CL-21)."""
        self._settle(acks, results, retry=False)

    def acknowledge_answered(self, acks: list[PendingAck], response: ShareAcknowledgeResponse, retry: bool) -> None:
        """Process the results of a ShareAcknowledge. With `retry`, retriable errors are retried until the deadline
        (CL-34)."""
        results: dict[TopicIdPartition, KafkaError | None] = {}
        for topic in response.responses:
            for part in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, part.partition_index)
                results[partition] = error_for(part.error_code, part.error_message)
                if part.HasField("current_leader"):
                    self._cluster.learn(partition, part.current_leader, response.node_endpoints)
        self._settle(acks, results, retry)

    def _settle(
        self, acks: list[PendingAck], results: Mapping[TopicIdPartition, KafkaError | None], retry: bool
    ) -> None:
        delay_ms: int | None = None
        together = Counter([ack.delivered.id_partition for ack in acks]) if len(acks) > 1 else {}
        for ack in acks:
            partition = ack.delivered.id_partition
            if partition in results:
                error = results[partition]
            else:
                error = InvalidRecordStateError(f"the response from node {self._node_id} leaves out {partition.text}")
            if error is None:
                self._backoff.reset()
            elif isinstance(error, OUTDATED):
                self._cluster.request_refresh()
            if retry and isinstance(error, RetriableError) and not isinstance(error, _FINAL):
                delay_ms = (
                    self._backoff.next_ms() if delay_ms is None else delay_ms
                )  # one delay for all, since they failed together
                self._try_again(ack, error, delay_ms)
            elif isinstance(error, _CHANGED_NOTHING) and together.get(partition, 1) > 1:
                ack.alone = True  # another one may have caused the refusal
                self._pending.append(ack)
            elif isinstance(error, InvalidRequestError) and has_delay(ack.batches):
                log.warning(
                    "%s: the leader refused release delays: %s. The group's maximum has been lowered since they were "
                    "requested; these records are released with the group's own back-off instead",
                    ack.delivered.place, error.message,
                )  # fmt: skip
                ack.batches = without_delays(ack.batches)
                self._pending.append(ack)
            elif isinstance(error, InvalidRecordStateError) and ack.unsure is not None:
                self._owner.settled(ack, ack.unsure)  # the earlier attempt may have taken effect
            else:
                self._owner.settled(ack, error)

    def _try_again(self, ack: PendingAck, error: KafkaError, delay_ms: int) -> None:
        ack.unsure = error
        ack.not_before_ms = _now_ms() + delay_ms
        if ack.not_before_ms > ack.deadline_ms:
            text = f"the acknowledgements were not accepted in time; the last error was: {error}"
            self._owner.settled(ack, RequestTimedOutError(text))
        else:
            self._pending.append(ack)


def by_partition(acks: list[PendingAck]) -> dict[TopicIdPartition, list[AckBatch]]:
    """Return the batches of one request, by partition; `take` has left out those that would overlap."""
    if len(acks) == 1:
        return {acks[0].delivered.id_partition: acks[0].batches}
    parts: dict[TopicIdPartition, list[list[AckBatch]]] = {}
    for ack in acks:
        parts.setdefault(ack.delivered.id_partition, []).append(ack.batches)
    return {partition: merge(batches)[0] for partition, batches in parts.items()}


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
