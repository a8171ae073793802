"""The blocking share consumer: confluent-kafka's call signatures plus the additions of CL-45, on top of the asyncio
engine.

Calls that need no network run on the calling thread; the others run in this object's loop thread. Callbacks run on the
thread that called poll, commit_sync, commit_async or close (CL-26).
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
from sharegroups.consuming.ack_ledger import AckCallback, CommitResult
from sharegroups.consuming.engine import ConsumerEngine
from sharegroups.consuming.lock_renewals import Kept, OnLost
from sharegroups.errors import ConcurrentModificationError, IllegalStateError
from sharegroups.forks import ProcessBound
from sharegroups.left_open import close_at_end
from sharegroups.loop_thread import LoopThread
from sharegroups.messages import AcknowledgeType, Message, Messages, delivered_of


class ShareConsumer(ProcessBound):
    """A member of a share group, for use by one thread at a time.

    Pass the settings as a dict, or as keyword arguments with `_` for `.`. Use it in a `with` statement, or call
    `close`. Raises ConfigError for wrong settings, InvalidGroupIdError without a group. A consumer that has polled and
    is still open when the program ends is closed at that point, with a warning in the log (CL-141). It works only in
    the process that created it: in a process forked from that one, every call but `close` raises IllegalStateError.
    """

    _NOUN = "consumer"

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._bind_process()
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
        """Replace the subscription; no topics means unsubscribe.

        Raises ValueError for None or a blank name (CL-20).
        """
        with self._exclusive():
            self._thread.run(lambda: self._engine.subscribe(topics))

    def unsubscribe(self) -> None:
        """Leave the group immediately.

        The leave heartbeat is sent without delay (CL-8).
        """
        with self._exclusive():
            self._thread.run(self._engine.unsubscribe)

    def subscription(self) -> list[str]:
        """Return the topics of the subscription."""
        if self._closed:
            self._check_open()
        return list(self._engine.subscription)

    def poll(self, timeout: float | None = None, *, max_records: int | None = None) -> Messages:
        """Return records as soon as there are any, or none after `timeout` seconds; with None, wait without limit.

        In implicit mode, this accepts the records of the previous poll (CL-21). `max_records`: the maximum number of
        records to request; 0 requests none and only keeps the membership (CL-98). Raises WakeupError; IllegalStateError
        without a subscription, and in explicit mode while a record is neither acknowledged nor kept alive; on every
        call, the KafkaError that ended the membership. Raises TopicAuthorizationFailedError or
        GroupAuthorizationFailedError once when this client lacks a right, SaslAuthenticationFailedError once when its
        token or password is not accepted; if you go on polling, records come as soon as that is over (CL-143, CL-158).
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
        reason: str = "",
    ) -> None:
        """Acknowledge a record; the next poll or commit sends the acknowledgement.

        Raises IllegalStateError if the record is not in flight (CL-23). `delay`, with RELEASE only: how many seconds
        pass before the record may be delivered again; 0 means no delay, None the group's back-off (CL-113). Raises
        ValueError if `delay` is given with a type other than RELEASE; DelayTooLongError (a ValueError) if it exceeds
        the group's maximum; UnsupportedVersionError if the leader does not support delays. The record is then
        unchanged. `undelivered`, with RELEASE only: the record was not worked on, so this delivery does not count, at
        most ten times in a row (CL-145). `reason`, with RELEASE and REJECT only: why the record is given up, such as
        the exception; the cluster keeps up to 1,024 bytes of it, and shows it to those who may read the group (CL-165).
        """
        self._enter()  # without the context manager, which is slower: this runs for every record
        try:
            kind = type if type.__class__ is AcknowledgeType else AcknowledgeType(type)
            self._engine.ledger.acknowledge(delivered_of(message), message.offset(), kind, delay, undelivered, reason)
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
        reason: str = "",
    ) -> None:
        """Acknowledge the record in flight at this topic, partition and offset, like `acknowledge`.

        See CL-23.
        """
        with self._exclusive():
            kind = AcknowledgeType(type)
            self._engine.ledger.acknowledge_offset(topic, partition, offset, kind, delay, undelivered, reason)

    @contextmanager
    def keep_alive(self, messages: Message | Iterable[Message], on_lost: OnLost | None = None) -> Iterator[Kept]:
        """Renew the locks of these messages until the `with` block ends or they are acknowledged.

        Use it as `with consumer.keep_alive(message) as kept:`, in explicit mode. The client's loop thread sends the
        renewals. `kept.lost`, `kept.is_lost(message)` and `kept.check()` report a lost lock; `on_lost` is called in
        that thread with the messages whose locks were lost. Inside the block, poll() may be called (CL-94 to CL-96).
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
        """Send the acknowledgements and return their result by partition: None or an error; {} when none are pending.

        In implicit mode, this accepts the records of the last poll. `timeout`: seconds, by default
        default.api.timeout.ms; a negative number waits without limit (CL-24). Raises WakeupError.
        """
        arguments.seconds("commit_sync", timeout)
        with self._exclusive():
            results = self._thread.call(self._engine.commit(timeout))
            self._engine.ledger.run_callbacks()
            return results

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting; the acknowledgement callback gets their results.

        In implicit mode, this accepts the records of the last poll (CL-25).
        """
        with self._exclusive():
            self._engine.ledger.run_callbacks()
            self._thread.run(self._engine.send_acknowledged)

    def set_acknowledgement_commit_callback(self, callback: AckCallback | None) -> None:
        """Set the function that poll, commit and close call with each partition's result.

        None removes it and drops the queued results (CL-26).
        """
        with self._exclusive():
            self._engine.ledger.set_callback(callback)

    def delivery_count_limit(self) -> int | None:
        """The number of deliveries after which the group archives a record, as a leader last reported it; None before a
        report."""
        return self._engine.delivery_count_limit()

    def dead_letter_topic(self) -> str | None:
        """The group's dead-letter topic as a leader last reported it; "" if there is none, None before a report."""
        return self._engine.dead_letter_topic()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are locked, in ms, as a leader last reported it; None before the first response.

        See CL-27.
        """
        return self._engine.acquisition_lock_timeout_ms()

    def metrics(self) -> dict[tuple[str, str], float]:
        """The consumer's metrics by (group, name); empty before the first poll.

        See CL-41.
        """
        return {} if self._closed else self._thread.run(self._engine.metrics)

    def wakeup(self) -> None:
        """Make the poll or commit_sync that is waiting, or the next one, raise WakeupError.

        Any thread may call it (CL-29).
        """
        if not self._closed:
            self._thread.post(self._engine.wakeup)

    def close(self, timeout: float = 30.0) -> None:
        """Send the acknowledgements, close the sessions and leave the group. Raises the first error.

        In implicit mode, the records of the last poll are not accepted but released. A second call does nothing
        (CL-28).
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
        """Claim the consumer for this thread.

        Raises ConcurrentModificationError while another thread uses it (CL-29), IllegalStateError inside a callback
        (CL-26) and after close (CL-28).
        """
        if self._owner == threading.get_ident():
            raise IllegalStateError("The consumer cannot be used from inside its acknowledgement callback.")
        if not self._lock.acquire(blocking=False):
            raise ConcurrentModificationError("the consumer is in use by another thread; only wakeup() may be called")
        try:
            if self._closed:
                self._check_open()
            self._owner = threading.get_ident()
        except BaseException:  # including an interrupt
            self._leave()
            raise

    def _close_in_child(self) -> None:
        super()._close_in_child()
        self._lock, self._owner = threading.Lock(), None  # the parent's thread may have held the old lock

    def _leave(self) -> None:
        self._owner = None
        self._lock.release()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
