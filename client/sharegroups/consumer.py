"""The blocking share consumer: confluent-kafka's call signatures, plus what CL-45 adds, over the asyncio engine.

Local calls run on the calling thread; calls that need the network run in the loop thread of this object. Callbacks run
on the thread that called poll, commit_sync, commit_async or close (CL-26).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from kip932.rpc.transport import Transport
from sharegroups import arguments
from sharegroups.aio.ack_ledger import AckCallback, CommitResult
from sharegroups.aio.engine import ConsumerEngine
from sharegroups.aio.keeping import Kept, OnLost
from sharegroups.errors import ConcurrentModificationError, IllegalStateError
from sharegroups.forks import OfOneProcess
from sharegroups.left_open import close_at_end
from sharegroups.loop_thread import LoopThread
from sharegroups.messages import AcknowledgeType, Message, Messages, delivered_of


class ShareConsumer(OfOneProcess):
    """A member of a share group for one thread at a time.

    Settings as a dict, or as keywords with `_` for `.`; use it as a context manager, or call `close`. Raises
    ConfigError for settings, InvalidGroupIdError without a group. A program that ends without either closes it then,
    and says so (CL-141). It works only in the process that made it, and not in one that is forked from that: every call
    but `close` raises IllegalStateError there.
    """

    _WHAT = "consumer"

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._belongs_here()
        self._engine = ConsumerEngine(settings, keywords, transport)
        self._thread = LoopThread("sharegroups-consumer")
        self._lock = threading.Lock()
        self._owner: int | None = None
        engine = self._engine
        self._at_end = close_at_end(self.close, lambda: engine.has_begun, engine.group_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def member_id(self) -> str:
        """The member id, constant for the life of this object."""
        return self._engine.member_id

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; empty means unsubscribe (CL-20). Raises ValueError for None or a blank name."""
        with self._exclusive():
            self._thread.run(lambda: self._engine.subscribe(topics))

    def unsubscribe(self) -> None:
        """Leave the group; the leave heartbeat is sent at once (CL-8)."""
        with self._exclusive():
            self._thread.run(self._engine.unsubscribe)

    def subscription(self) -> list[str]:
        """The topics subscribed to."""
        if self._closed:
            self._check_open()
        return list(self._engine.subscription)

    def poll(self, timeout: float | None = None, *, max_records: int | None = None) -> Messages:
        """Return records as soon as there are any; empty after `timeout` seconds; None waits without end (CL-21).

        In implicit mode it accepts what the previous poll returned. `max_records`: how many records to ask for at most;
        0 asks for none, and only keeps the membership (CL-98). Raises WakeupError; IllegalStateError without a
        subscription, and in explicit mode while a record is neither acknowledged nor kept alive; KafkaError that ended
        the membership.
        """
        arguments.seconds("poll", timeout)
        arguments.count("poll", "max_records", max_records)
        with self._exclusive():
            deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
            self._engine.raise_background()
            self._engine.ledger.run_callbacks()
            messages = self._thread.call(self._engine.poll(_left(deadline), max_records), self._engine.take_back)
            while messages is None:
                self._engine.ledger.run_callbacks()
                messages = self._thread.call(self._engine.wait_records(_left(deadline)), self._engine.take_back)
            return messages

    def acknowledge(
        self,
        message: Message,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
        *,
        delay: float | None = None,
        undelivered: bool = False,
    ) -> None:
        """Acknowledge a record; the next poll or commit sends it (CL-23). Raises IllegalStateError if not in flight.

        `delay`: with RELEASE, for how many seconds the group does not get the record again; 0: at once; None: as the
        group's back-off says (CL-113). ValueError with another type; DelayTooLongError, one of these, above the
        group's maximum: the record stays as it was; UnsupportedVersionError from a node of before. `undelivered`: with
        RELEASE, the record was not begun with, so this delivery does not count, at most ten times in a row (CL-145).
        """
        self._enter()  # and no context manager: this is called for each record
        try:
            kind = type if type.__class__ is AcknowledgeType else AcknowledgeType(type)
            self._engine.ledger.acknowledge(delivered_of(message), message.offset(), kind, delay, undelivered)
        finally:
            self._leave()

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
        *,
        delay: float | None = None,
        undelivered: bool = False,
    ) -> None:
        """As `acknowledge`, for the record in flight at this topic, partition and offset (CL-23)."""
        with self._exclusive():
            kind = AcknowledgeType(type)
            self._engine.ledger.acknowledge_offset(topic, partition, offset, kind, delay, undelivered)

    @contextmanager
    def keep_alive(self, messages: Message | Iterable[Message], on_lost: OnLost | None = None) -> Iterator[Kept]:
        """`with consumer.keep_alive(message) as kept:` renews the locks until the block ends or they are acknowledged.

        It needs explicit mode. The renewals go out in a thread of the client's. `kept.lost`, `kept.is_lost(message)`
        and `kept.check()` tell that a lock could not be kept; `on_lost` is called in that thread with the messages it
        befell (CL-94 to CL-96). Meanwhile poll() may be called.
        """
        kept = Kept(messages, on_lost)
        with self._exclusive():
            self._thread.run(lambda: self._engine.keeper.begin(kept))
        try:
            yield kept
        finally:
            if not self._closed:
                self._thread.run(lambda: self._engine.keeper.end(kept))

    def commit_sync(self, timeout: float | None = None) -> CommitResult:
        """Send the acknowledgements and wait (CL-24): None or the error per partition; {} when nothing is pending.

        In implicit mode it accepts what the last poll returned. `timeout` is in seconds, default.api.timeout.ms by
        default, below 0 without end. Raises WakeupError.
        """
        arguments.seconds("commit_sync", timeout)
        with self._exclusive():
            results = self._thread.call(self._engine.commit(timeout))
            self._engine.ledger.run_callbacks()
            return results

    def commit_async(self) -> None:
        """Send the acknowledgements; the callback gets their results (CL-25)."""
        with self._exclusive():
            self._engine.ledger.run_callbacks()
            self._thread.run(self._engine.send_acknowledged)

    def set_acknowledgement_commit_callback(self, callback: AckCallback | None) -> None:
        """Set the function that poll, commit and close call for each partition's result (CL-26).

        None clears it, and drops queued results.
        """
        with self._exclusive():
            self._engine.ledger.set_callback(callback)

    def delivery_count_limit(self) -> int | None:
        """After how many deliveries the group archives a record, as a leader last answered; None: none has said it."""
        return self._engine.delivery_count_limit()

    def dead_letter_topic(self) -> str | None:
        """The group's dead-letter topic, "" without one, as a leader last answered; None: none has said it."""
        return self._engine.dead_letter_topic()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are locked, ms, as a leader last answered; None before the first answer (CL-27)."""
        return self._engine.acquisition_lock_timeout_ms()

    def metrics(self) -> dict[tuple[str, str], float]:
        """Metrics by (group, name) (CL-41); empty before the first poll."""
        return {} if self._closed else self._thread.run(self._engine.metrics)

    def wakeup(self) -> None:
        """Make a waiting poll or commit_sync, or the next one, raise WakeupError (CL-29). May run in any thread."""
        if not self._closed:
            self._thread.post(self._engine.wakeup)

    def close(self, timeout: float = 30.0) -> None:
        """Send acknowledgements, close sessions, leave the group (CL-28). Raises the first error.

        In implicit mode the records of the last poll are not accepted: they are released. A second call does nothing.
        """
        arguments.seconds("close", timeout)
        if self._closed:
            return
        with self._exclusive():
            self._closed = True
            self._at_end.done()
            try:
                self._thread.call(self._engine.close(timeout))
            finally:
                self._thread.stop()
            self._engine.finish_close()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        """One thread at a time (CL-29); not from inside a callback (CL-26); not after close (CL-28)."""
        if self._owner == threading.get_ident():
            raise IllegalStateError("The consumer cannot be used from inside its acknowledgement callback.")
        if not self._lock.acquire(blocking=False):
            raise ConcurrentModificationError("the consumer is in use by another thread; only wakeup() may be called")
        try:
            if self._closed:
                self._check_open()
            self._owner = threading.get_ident()
        except BaseException:  # an interrupt too
            self._leave()
            raise

    def _left_behind(self) -> None:
        super()._left_behind()
        self._lock, self._owner = threading.Lock(), None  # a thread of the parent may hold the other one

    def _leave(self) -> None:
        self._owner = None
        self._lock.release()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
