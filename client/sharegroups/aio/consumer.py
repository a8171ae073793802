"""The share consumer for asyncio: wraps `consuming.engine` for one task at a time, and runs the acknowledgement
callback.

Rules CL-26, CL-28, CL-29; `consuming.engine` carries out the rest of CL-20 to CL-28.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from kip932.errors import KafkaError
from kip932.rpc.transport import Transport
from sharegroups import arguments
from sharegroups.consuming.ack_ledger import AckCallback, CommitResult
from sharegroups.consuming.engine import ConsumerEngine
from sharegroups.consuming.lock_renewals import Kept, OnLost
from sharegroups.errors import ConcurrentModificationError, IllegalStateError
from sharegroups.forks import ProcessBound
from sharegroups.messages import AcknowledgeType, Message, Messages, delivered_of


class ShareConsumer(ProcessBound):
    """A member of a share group. Takes settings as a dict, or as keyword arguments with `_` for `.` (CL-44).

    Raises ConfigError for invalid settings, InvalidGroupIdError without a group. Use it as `async with`, or call
    `close`.
    """

    _NOUN = "consumer"

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._engine = ConsumerEngine(settings, keywords, transport)
        self._busy = False
        self._bind_process()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def member_id(self) -> str:
        """The member id, constant for the life of this object."""
        return self._engine.member_id

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; empty means unsubscribe (CL-20). Raises ValueError for None or a blank name."""
        with self._exclusive():
            self._engine.subscribe(topics)

    def unsubscribe(self) -> None:
        """Leave the group; the leave heartbeat is sent immediately (CL-8)."""
        with self._exclusive():
            self._engine.unsubscribe()

    def subscription(self) -> list[str]:
        """Return the topics subscribed to."""
        self._check_open()
        return list(self._engine.subscription)

    async def poll(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of CL-44
        *,
        max_records: int | None = None,
    ) -> Messages:
        """Return records as soon as there are any, or nothing after `timeout` seconds; None waits without limit
        (CL-21).

        In implicit mode the records of the previous poll are accepted. `max_records`: how many records to ask for at
        most; 0 asks for none, and only keeps the membership (CL-98). Raises WakeupError; IllegalStateError without a
        subscription, and in explicit mode while a record is neither acknowledged nor kept alive; on every call, the
        KafkaError that ended the membership. Raises TopicAuthorizationFailedError or GroupAuthorizationFailedError once
        when this client lacks a right, SaslAuthenticationFailedError once when its token or password is not accepted;
        if you go on polling, records come as soon as that is over (CL-143, CL-158).
        """
        arguments.seconds("poll", timeout)
        arguments.count("poll", "max_records", max_records)
        engine = self._engine
        self._enter()
        try:
            clock = asyncio.get_running_loop().time
            deadline = None if timeout is None or timeout < 0 else clock() + timeout
            engine.raise_background()
            engine.ledger.run_callbacks()
            messages = await engine.poll(None if deadline is None else deadline - clock(), max_records)
            while messages is None:
                engine.ledger.run_callbacks()
                messages = await engine.wait_records(None if deadline is None else deadline - clock())
            return messages
        except KafkaError:
            await asyncio.sleep(0)  # so that the leave is sent even if the caller keeps polling
            raise
        finally:
            self._busy = False

    def acknowledge(
        self,
        message: Message,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
        *,
        delay: float | None = None,
        undelivered: bool = False,
        reason: str = "",
    ) -> None:
        """Acknowledge a record; the next poll or commit sends the acknowledgement (CL-23). Raises IllegalStateError if
        it is not in flight.

        `delay`, with RELEASE only: how many seconds pass before the record may be delivered again; 0: none; None: the
        group's back-off applies (CL-113). Raises ValueError if `delay` is given with another type; DelayTooLongError (a
        ValueError) if it exceeds the group's maximum; UnsupportedVersionError if the leader does not support delays.
        The record is then unchanged. `undelivered`, with RELEASE only: the application did not start work on the
        record, so this delivery does not count, at most ten times in a row (CL-145). `reason`, with RELEASE and REJECT
        only: why the record is given up, such as the exception; the cluster keeps up to 1,024 bytes of it, and shows it
        to those who may read the group (CL-165).
        """
        self._enter()  # no context manager: this is called for each record
        try:
            kind = type if type.__class__ is AcknowledgeType else AcknowledgeType(type)
            self._engine.ledger.acknowledge(delivered_of(message), message.offset(), kind, delay, undelivered, reason)
        finally:
            self._busy = False

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
        """Acknowledge the record in flight at this topic, partition and offset, as `acknowledge` does (CL-23)."""
        with self._exclusive():
            kind = AcknowledgeType(type)
            self._engine.ledger.acknowledge_offset(topic, partition, offset, kind, delay, undelivered, reason)

    def keep_alive(self, messages: Message | Iterable[Message], on_lost: OnLost | None = None) -> KeepAlive:
        """Keep locks alive: `async with consumer.keep_alive(message) as kept:` renews until acknowledgement or the
        block's end.

        This needs explicit mode. `kept.lost`, `kept.is_lost(message)` and `kept.check()` report a lock that could not
        be kept; `on_lost` is called with the affected messages (CL-94 to CL-96). poll() may be called inside the block.
        """
        return KeepAlive(self, Kept(messages, on_lost))

    async def commit_sync(self, timeout: float | None = None) -> CommitResult:  # noqa: ASYNC109 - the signature of CL-44
        """Send the acknowledgements and wait (CL-24). Returns None or the error by partition; {} when nothing is
        pending.

        In implicit mode the records of the last poll are accepted. `timeout` is in seconds, default.api.timeout.ms by
        default; below 0 means no limit. Raises WakeupError.
        """
        arguments.seconds("commit_sync", timeout)
        with self._exclusive():
            results = await self._engine.commit(timeout)
            self._engine.ledger.run_callbacks()
            return results

    def commit_async(self) -> None:
        """Send the acknowledgements; the callback receives their results (CL-25). Must run inside the event loop."""
        with self._exclusive():
            self._engine.ledger.run_callbacks()
            self._engine.send_acknowledged()

    def set_acknowledgement_commit_callback(self, callback: AckCallback | None) -> None:
        """Set the function that poll, commit and close call for each partition's result (CL-26).

        None clears it and drops queued results.
        """
        with self._exclusive():
            self._engine.ledger.set_callback(callback)

    def delivery_count_limit(self) -> int | None:
        """Return the number of deliveries after which the group archives a record, as a leader last reported it; None
        before a report."""
        return self._engine.delivery_count_limit()

    def dead_letter_topic(self) -> str | None:
        """Return the group's dead-letter topic as a leader last reported it; "" when there is none, None before a
        report."""
        return self._engine.dead_letter_topic()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return how long records are locked, in ms, as a leader last reported it; None before the first response
        (CL-27)."""
        return self._engine.acquisition_lock_timeout_ms()

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return metrics by (group, name) (CL-41); empty before the first poll. Must run inside the event loop."""
        return self._engine.metrics()

    def wakeup(self) -> None:
        """Make a waiting poll or commit_sync, or the next one, raise WakeupError (CL-29)."""
        self._engine.wakeup()

    async def close(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - the signature of CL-44
        """Send acknowledgements, close sessions, leave the group (CL-28). Raises the first error.

        In implicit mode the records of the last poll are not accepted: they are released. A second call does nothing.
        """
        arguments.seconds("close", timeout)
        if self._closed:
            return
        with self._exclusive():
            self._closed = True
            await self._engine.close(timeout)
            self._engine.finish_close()

    def _keep(self, kept: Kept, begin: bool) -> None:
        if begin:
            self._check_open()
        (self._engine.keeper.begin if begin else self._engine.keeper.end)(kept)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._enter()
        try:
            yield
        finally:
            self._busy = False

    def _enter(self) -> None:
        """Allow one caller at a time (CL-29), none from inside a callback (CL-26), and none after close (CL-28)."""
        if self._engine.ledger.in_callback:
            raise IllegalStateError("The consumer cannot be used from inside its acknowledgement callback.")
        if self._busy:
            raise ConcurrentModificationError("the consumer is in use elsewhere; only wakeup() may be called now")
        self._check_open()
        self._busy = True


class KeepAlive:
    """The result of `keep_alive`. Use it as `async with`, or call `begin` and `end`."""

    def __init__(self, consumer: ShareConsumer, kept: Kept) -> None:
        self._consumer = consumer
        self._kept = kept

    @property
    def kept(self) -> Kept:
        """The object that `begin` returns. Until `begin` is called, nothing is renewed and no lock counts as lost."""
        return self._kept

    def begin(self) -> Kept:
        """Start renewing. Raises IllegalStateError in implicit mode, or for a record that is not in flight."""
        self._consumer._keep(self._kept, begin=True)
        return self._kept

    def end(self) -> None:
        """Stop renewing. A second call does nothing."""
        self._consumer._keep(self._kept, begin=False)

    async def __aenter__(self) -> Kept:
        return self.begin()

    async def __aexit__(self, *_: object) -> None:
        self.end()
