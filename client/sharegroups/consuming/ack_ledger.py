"""The deliveries that the application holds, its acknowledgements, its commits, and the results for its callback.

Rules CL-21, CL-23 to CL-27, CL-113, CL-165. The ledger hands acknowledgements to the sessions that delivered the
records; `settled` receives their outcome.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kip932.errors import KafkaError, RequestTimedOutError, UnsupportedVersionError
from kip932.failures import REASON_BYTES_MAX, cut
from kip932.ids import ACK_REJECT, ACK_RELEASE, ACK_RENEW
from sharegroups import arguments
from sharegroups.consuming.ack_outbox import PendingAck
from sharegroups.consuming.core.acknowledgements import Delivery, offsets_with, record_ranges
from sharegroups.consuming.core.record_batch import Extent, restrict
from sharegroups.consuming.share_session import ShareSession
from sharegroups.errors import DelayTooLongError, IllegalStateError
from sharegroups.messages import Delivered, TopicIdPartition

AckCallback = Callable[[dict[TopicIdPartition, set[int]], KafkaError | None], None]
CommitResult = dict[TopicIdPartition, KafkaError | None]

#: The maximum number of results that wait for the callback; beyond it, the oldest are dropped.
_RESULTS_MAX: Final = 10_000
_NEVER_MS: Final = 2**53
#: The longest delay that this client accepts, in seconds: a century. The leader sets each group's maximum (PL-931).
_DELAY_MAX_S: Final = 36_525 * 86_400


class AckResult(NamedTuple):
    """The acknowledgements of one partition that have their result, for the callback (CL-26)."""

    partition: TopicIdPartition
    ranges: list[tuple[int, int]]
    error: KafkaError | None

    def offsets(self) -> dict[TopicIdPartition, set[int]]:
        """The offsets as the callback gets them."""
        return {self.partition: set().union(*[range(low, high + 1) for low, high in self.ranges])}


class Commit:
    """A commit_sync that waits for the results of its acknowledgements. `partitions` has one entry for each
    acknowledgement."""

    def __init__(self, partitions: Iterable[TopicIdPartition]) -> None:
        self.results: CommitResult = {}
        self._open = Counter(partitions)

    @property
    def is_done(self) -> bool:
        """True when every acknowledgement has its result."""
        return not self._open

    def settle(self, partition: TopicIdPartition, error: KafkaError | None) -> None:
        """Record the result of one acknowledgement. The first error of a partition is the partition's result."""
        if self.results.get(partition) is None:
            self.results[partition] = error
        self._open[partition] -= 1
        if self._open[partition] <= 0:
            del self._open[partition]

    def time_out(self) -> None:
        """Give RequestTimedOutError to the partitions without a result, because the caller stops waiting (CL-34)."""
        for partition in self._open:
            self.results[partition] = RequestTimedOutError(
                f"the acknowledgements for {partition.topic}-{partition.partition} were not confirmed in time; "
                "they may still take effect"
            )


class AckLedger:
    """The deliveries that the application holds. `explicit`: True in explicit acknowledgement mode."""

    def __init__(self, explicit: bool) -> None:
        self.explicit = explicit
        #: Called with acknowledgements that are about to be sent, if they are traced.
        self.on_send: Callable[[list[PendingAck]], None] | None = None
        self.callback: AckCallback | None = None
        self.in_callback = False
        self._handed: list[Delivered] = []
        self._results: deque[AckResult] = deque(maxlen=_RESULTS_MAX)

    @property
    def holds_any(self) -> bool:
        """True when the application has records whose acknowledgement has not been sent."""
        return bool(self._handed)

    def in_hand(self) -> list[Delivered]:
        """Return the deliveries with records whose acknowledgement has not been sent. May be called from any thread."""
        return list(self._handed)

    def hand_out(self, delivered: Iterable[Delivered]) -> None:
        """Add the records that a poll returns to the application."""
        self._handed.extend(delivered)

    def take_back(self, delivered: Iterable[Delivered]) -> list[Delivered]:
        """Take back records from a poll that was interrupted before it returned them. Returns those that were still
        held."""
        returned = [part for part in delivered if part in self._handed]
        self._handed = [part for part in self._handed if part not in returned]
        return returned

    def uses(self, session: ShareSession) -> bool:
        """Return whether the application holds records of this session (CL-37)."""
        return any(part.session is session for part in self._handed)

    def acknowledge(  # noqa: PLR0917 - the consumer's arguments
        self,
        part: Delivered,
        offset: int,
        kind: int,
        delay: float | None = None,
        undelivered: bool = False,
        reason: str = "",
    ) -> None:
        """Set one record's acknowledgement; `delay` (s) postpones its next delivery (CL-113), `undelivered` makes this
        delivery not count (CL-145), `reason` says why the record is given up (CL-165).

        Raises IllegalStateError when the record is not in flight (CL-23), ValueError for an invalid delay,
        `undelivered` or `reason`, DelayTooLongError for a delay above the group's maximum, UnsupportedVersionError for
        a delay that the leader would ignore.
        """
        self._check_explicit()
        delay_ms = None if delay is None else _delay_ms("acknowledge", kind, delay)
        if delay_ms:
            _check_delay("acknowledge", part, offset, delay_ms)
        if undelivered:
            _check_undelivered("acknowledge", kind, undelivered)
        if reason != "":
            reason = _reason("acknowledge", kind, reason)
        if not part.delivery.acknowledge(offset, kind, delay_ms, undelivered, reason):
            raise _refusal(part.place, offset, renewed=part.delivery.is_renewed(offset))

    def acknowledge_offset(  # noqa: PLR0917 - the consumer's arguments
        self,
        topic: str,
        partition: int,
        offset: int,
        kind: int,
        delay: float | None = None,
        undelivered: bool = False,
        reason: str = "",
    ) -> None:
        """Acknowledge the record at this topic, partition and offset, as `acknowledge` does (CL-23)."""
        self._check_explicit()
        if type(offset) is not int:
            arguments.whole("acknowledge_offset", "offset", offset, 64)
        delay_ms = None if delay is None else _delay_ms("acknowledge_offset", kind, delay)
        if undelivered:
            _check_undelivered("acknowledge_offset", kind, undelivered)
        if reason != "":
            reason = _reason("acknowledge_offset", kind, reason)
        for part in reversed(self._handed):
            if part.topic != topic or part.id_partition.partition != partition:
                continue
            if delay_ms and part.delivery.in_flight(offset):
                _check_delay("acknowledge_offset", part, offset, delay_ms)
            if part.delivery.acknowledge(offset, kind, delay_ms, undelivered, reason):
                return
        raise _refusal(f"{topic}-{partition}", offset)

    def check_all_acknowledged(self) -> None:
        """Raise IllegalStateError when, in explicit mode, a record of the previous poll is unacknowledged (CL-21)."""
        if self.explicit and any(part.blocks_poll for part in self._handed):
            raise IllegalStateError("All records must be acknowledged in explicit acknowledgement mode.")

    def take(self, accept_rest: bool) -> list[PendingAck]:
        """Return the acknowledgements to send. With `accept_rest`, first accept the records that have none. Call `send`
        next."""
        acks: list[PendingAck] = []
        if not self._handed:
            return acks
        for part in self._handed:
            if accept_rest:
                part.delivery.accept_rest()
            if batches := part.delivery.take():
                acks.append(PendingAck(part, batches, 0))
        self._handed = [] if accept_rest else [part for part in self._handed if not part.delivery.finished]
        return acks

    def send(
        self,
        acks: list[PendingAck],
        timeout_ms: int | None,
        now_ms: int,
        commit: Commit | None = None,
        flush: bool = True,
    ) -> None:
        """Hand acknowledgements to their sessions, which retry them for up to `timeout_ms`; None means no limit.

        With `flush` the sessions send them now, otherwise in their next ShareFetch.
        """
        if self.on_send is not None:
            self.on_send(acks)
        for ack in acks:
            ack.commit = commit
            ack.deadline_ms = _NEVER_MS if timeout_ms is None else now_ms + timeout_ms
            session = ack.delivered.session
            assert isinstance(session, ShareSession)
            session.outbox.add(ack)
            if flush:
                session.flush()

    def settled(self, ack: PendingAck, error: KafkaError | None) -> Delivered | None:
        """Record the final outcome of acknowledgements. Returns renewed records, for poll to return again (CL-27)."""
        partition = ack.delivered.key
        if isinstance(ack.commit, Commit):
            ack.commit.settle(partition, error)
        # Gaps are left out: the application never received their offsets, and a gap may span a million of them (CM-47).
        if self.callback is not None and not ack.unseen and (ranges := record_ranges(ack.batches)):
            self._results.append(AckResult(partition, ranges, error))
        return _renewed(ack) if ack.renews and error is None else None

    @property
    def has_results(self) -> bool:
        """True when results wait for the callback."""
        return self.callback is not None and bool(self._results)

    def set_callback(self, callback: AckCallback | None) -> None:
        """Set the callback. None clears it and drops queued results (CL-26)."""
        arguments.callback("set_acknowledgement_commit_callback", "callback", callback, "offsets, error")
        self.callback = callback
        if callback is None:
            self._results.clear()

    def run_callbacks(self) -> None:
        """Run the callback for every queued result. Then raise the first error that the callback raised (CL-26)."""
        first: Exception | None = None
        while self._results and self.callback is not None:
            result = self._results.popleft()
            self.in_callback = True
            try:
                self.callback(result.offsets(), result.error)
            except Exception as error:
                first = first or error
            finally:
                self.in_callback = False
        if first is not None:
            raise first

    def _check_explicit(self) -> None:
        if not self.explicit:
            raise IllegalStateError("Implicit acknowledgement of delivery is being used.")


def _refusal(place: str, offset: int, *, renewed: bool = False) -> IllegalStateError:
    """Return the error that says why a record cannot be acknowledged (CL-23, CL-27)."""
    if renewed:
        why = (
            "its renewal has been sent, so it is not in your hands: poll() returns it again once the renewal is "
            "confirmed; acknowledge the message from that poll"
        )
    else:
        why = "it is not in your hands: its acknowledgement or renewal was sent, or this consumer never had it"
    return IllegalStateError(f"The record cannot be acknowledged: {place} offset {offset}: {why}.")


def _delay_ms(call: str, kind: int, delay: float) -> int:
    """Return the delay of a release in ms, rounded up. Raises ValueError for an invalid one (CL-113)."""
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= _DELAY_MAX_S:
        instead = f"{call}(message, AcknowledgeType.RELEASE, delay=30.0)"
        raise arguments.refusal(call, "delay", delay, "0 seconds or more, or None for the group's back-off", instead)
    if kind != ACK_RELEASE:
        raise arguments.refusal(
            call, "delay", delay, "none with this type: only AcknowledgeType.RELEASE makes a record wait"
        )
    return math.ceil(delay * 1000)


def _check_undelivered(call: str, kind: int, undelivered: object) -> None:
    """Raise ValueError unless `undelivered` is True and the type is RELEASE (CL-145)."""
    if undelivered is not True:
        raise arguments.refusal(call, "undelivered", undelivered, "True or False")
    if kind != ACK_RELEASE:
        raise arguments.refusal(
            call, "undelivered", True, "False with this type: only AcknowledgeType.RELEASE takes a delivery back"
        )


def _reason(call: str, kind: int, reason: object) -> str:
    """Return the reason as it is sent: text that can be encoded, of at most REASON_BYTES_MAX bytes. Raises ValueError
    unless it is a str and the type is RELEASE or REJECT (CL-165)."""
    if not isinstance(reason, str):
        instead = f"{call}(message, AcknowledgeType.REJECT, reason=str(error))"
        raise arguments.refusal(call, "reason", reason, 'text, or "" for none', instead)
    if kind not in (ACK_RELEASE, ACK_REJECT):
        only = "only AcknowledgeType.RELEASE and REJECT give a record up"
        raise arguments.refusal(call, "reason", reason, f"none with this type: {only}")
    beginning = reason[: REASON_BYTES_MAX + 1]  # so that a very long text is not encoded as a whole
    return cut(beginning.encode("utf-8", "replace").decode(), REASON_BYTES_MAX)


def _check_delay(call: str, part: Delivered, offset: int, delay_ms: int) -> None:
    """Raise UnsupportedVersionError if the leader that delivered the records does not support delays, DelayTooLongError
    if it has reported a lower maximum (PL-931)."""
    session = part.session
    maximum_ms = session.release_delay_max_ms
    if not maximum_ms:
        raise UnsupportedVersionError(
            f"node {session.node_id}, which leads {part.place}, does not support release delays and would redeliver "
            "the record at once: upgrade that node, or release without a delay"
        )
    if delay_ms > maximum_ms:
        maximum = maximum_ms / 1000
        raise DelayTooLongError(
            f"{call}: delay is {delay_ms / 1000:.10g} s for {part.place} offset {offset}, but the group allows "
            f"{maximum:.10g} s at most. Use a shorter delay, or raise the group's sharegroups.retry.delay.max.ms",
            maximum,
        )


def _renewed(ack: PendingAck) -> Delivered:
    """Return the records that a successful renewal gives back to the application, as a separate delivery."""
    old = ack.delivered
    ranges = offsets_with(ack.batches, ACK_RENEW)
    extents = [Extent(batch.base_offset, batch.size) for batch in old.batches]
    slices = restrict(old.slices, extents, ranges)
    return Delivered(
        topic=old.topic,
        id_partition=old.id_partition,
        session=old.session,
        generation=old.generation,
        delivery=Delivery(ranges),
        batches=old.batches,
        slices=slices,
        records=sum(piece.stop - piece.start for piece in slices),
        was_renewed=True,
        acquired_ms=ack.sent_ms,
        lock_ms=ack.lock_ms or old.lock_ms,
    )
