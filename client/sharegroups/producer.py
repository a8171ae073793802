"""The blocking producer: produce() fills the buffer on the calling thread, and the loop thread sends the batches;
send() waits for the delivery of one record.

Delivery callbacks run on the thread that calls poll, flush or close, as in confluent-kafka. Any number of threads may
produce at the same time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from kip932.errors import KafkaError
from kip932.rpc.transport import Transport
from sharegroups import arguments
from sharegroups.aio.producer import Headers
from sharegroups.aio.producer import Producer as AsyncProducer
from sharegroups.forks import ProcessBound
from sharegroups.left_open import flush_at_end
from sharegroups.loop_thread import LoopThread
from sharegroups.producing.delivery_reports import OnDelivery
from sharegroups.producing.produced import ProducedRecord
from sharegroups.producing.transactions import no_offsets
from sharegroups.reports import DeliveryReport

#: When more callbacks than this are pending, produce() runs them itself, so that their number stays bounded.
_CALLBACKS_MAX: Final = 10_000


class Producer(ProcessBound):
    """Sends records to topics; any number of threads may use it.

    Pass the settings as a dict, or as keyword arguments with `_` for `.`. Use it in a `with` statement, or call
    `close`. Raises ConfigError. If the program ends before all records are delivered, the producer waits for them up to
    5 s, and logs a warning (CL-140). It works only in the process that created it: in a process forked from that one,
    every call but `close` raises IllegalStateError.
    """

    _NOUN = "producer"

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._bind_process()
        self._thread = LoopThread("sharegroups-producer")
        self._progress = threading.Condition()
        self._callbacks: deque[tuple[OnDelivery, KafkaError | None, DeliveryReport]] = deque()
        try:
            self._inner = self._thread.run(lambda: AsyncProducer(settings, transport=transport, **keywords))
        except BaseException:
            self._thread.stop()
            raise
        self._inner.on_progress = self._notify
        self._inner.clock = time.monotonic
        self.tracing = self._inner.tracing
        self._block_s = self._inner.block_s
        self._at_end = flush_at_end(self.flush, self._inner.sender.buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
        *,
        headers: Headers = None,
        timestamp: int | None = None,
    ) -> None:
        """Put one record into the buffer; `on_delivery(error or None, report)` runs in a later poll or flush.

        Without a callback, a failure is logged as an error. `timestamp`: ms since 1970, by default now. Waits for
        metadata and for space in the buffer, at most max.block.ms each. Raises BufferFullError, MessageTooLargeError,
        UnknownTopicOrPartitionError, InvalidRequestError for a partition that does not exist,
        TopicAuthorizationFailedError at once without the right (CL-143).
        """
        if self._closed:
            self._check_open()
        if len(self._callbacks) > _CALLBACKS_MAX:
            self.poll(0)
        inner = self._inner
        if not inner.knows(topic):
            self._thread.call(inner.ensure_topic(topic))
        done = None if on_delivery is None else self._queueing(on_delivery)
        record = inner.record(value, key, headers, timestamp)
        if (contexts := inner.tracing.contexts) is not None and contexts():  # this runs for every record
            record = inner.tracing.stamp(topic, record)
        wake = inner.append(topic, partition, record, done)
        if wake is None:
            wake = self._append_when_room(topic, partition, record, done)
        if wake:
            self._thread.post(inner.sender.pump)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        *,
        headers: Headers = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> DeliveryReport:
        """Produce one record, wait for its confirmation, and return where it is stored.

        Raises whatever `produce` raises, or the error that made the delivery fail. Raises TimeoutError when the record
        is not confirmed within `timeout` seconds; with None, max.block.ms and delivery.timeout.ms are the limits. After
        a time-out, or when the call is interrupted, the record is withdrawn and not sent any more. A record in a
        request that is in flight at that moment, or that got no response, may still be stored; the error says which.
        """
        arguments.seconds("send", timeout)
        self._check_open()

        async def sent() -> DeliveryReport:
            async with asyncio.timeout(timeout):
                return await self._inner.send(topic, value, key, partition, headers=headers, timestamp=timestamp)

        try:
            return self._thread.call(sent())
        except TimeoutError as error:
            # Python 3.11.2, as in Debian 12, does not set `__cause__` here; every version sets `__context__`.
            if timeout is None or not isinstance(error.__context__, asyncio.CancelledError):
                raise  # raised by a serializer
            notes = " ".join(getattr(error.__context__, "__notes__", ()))
            raise TimeoutError(f"no confirmation of a record for {topic!r} within {timeout:g} s. {notes}") from None

    def poll(self, timeout: float = 0.0) -> int:
        """Run the pending delivery callbacks; wait up to `timeout` seconds for the first. Returns how many ran."""
        arguments.seconds("poll", timeout)
        self._check_process()
        if timeout > 0 and not self._callbacks:
            with self._progress:
                self._progress.wait_for(lambda: bool(self._callbacks), timeout)
        ran = 0
        while self._callbacks:
            try:
                callback, error, report = self._callbacks.popleft()
            except IndexError:  # another thread took the last one
                break
            ran += 1
            callback(error, report)
        return ran

    def flush(self, timeout: float | None = None) -> int:
        """Run callbacks until every record is delivered or has failed.

        Returns how many records are still pending after `timeout` seconds; without a time-out, 0.
        """
        arguments.seconds("flush", timeout)
        self._check_process()
        deadline = None if timeout is None else time.monotonic() + timeout
        buffer = self._inner.sender.buffer
        while True:
            self.poll(0)
            if not buffer.records and not self._callbacks:
                return 0
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return buffer.records
            with self._progress:
                self._progress.wait_for(lambda: bool(self._callbacks) or not buffer.records, remaining)

    def metrics(self) -> dict[tuple[str, str], float]:
        """Metrics by (group, name): how long nodes make this producer wait for its quota, in ms.

        Any thread may call it (CL-163).
        """
        return self._inner.metrics()

    def close(self, timeout: float | None = None) -> None:
        """Flush for at most `timeout` seconds, by default delivery.timeout.ms, then stop.

        A second call does nothing.
        """
        arguments.seconds("close", timeout)
        if self._closed:
            return
        try:
            self.flush(self._inner.delivery_timeout_s if timeout is None else timeout)
        finally:
            self._closed = True
            self._at_end.done()
            try:
                self._thread.call(self._inner.close(0))
            finally:
                self._thread.stop()
        self.poll(0)

    def __len__(self) -> int:
        """How many records have not been delivered yet."""
        return self._inner.sender.buffer.records

    def __bool__(self) -> bool:
        return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the `with` block as a transaction: it commits at the end of the block, and aborts after an exception.

        Groups with share.isolation.level=read_committed get all of its records or none. It needs transactional.id
        (CM-44). If a record cannot be delivered, its error is raised and none of the transaction is delivered. Raises
        ProducerFencedError when another producer uses the id; InvalidTxnStateError when the transaction was aborted,
        for example because it timed out. After RequestTimedOutError, and after NetworkError,
        SaslAuthenticationFailedError or TransactionalIdAuthorizationFailedError at the end of the block, the outcome is
        unknown; the next transaction begins once it is known.
        """
        self._check_open()
        self._thread.call(self._inner.begin_transaction(), self._inner.transaction_not_begun)
        try:
            yield
            self._thread.call(self._inner.end_transaction(commit=True))
        except BaseException:
            self._thread.call(self._inner.abort_transaction())
            raise

    def send_offsets_to_transaction(self, offsets: object = None, group: object = None) -> None:
        """Raise InvalidRequestError: share groups have no offsets to commit.

        See CL-104.
        """
        raise no_offsets()

    def _append_when_room(
        self, topic: str, partition: int | None, record: ProducedRecord, on_delivery: OnDelivery | None
    ) -> bool:
        """Append the record once there is space, within max.block.ms. Raises BufferFullError."""
        deadline = time.monotonic() + self._block_s
        with self._progress:
            while (wake := self._inner.append(topic, partition, record, on_delivery)) is None:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise self._inner.buffer_full()
                self._progress.wait(remaining)
        return wake

    def _queueing(self, callback: OnDelivery) -> Callable[[KafkaError | None, DeliveryReport], None]:
        arguments.callback("produce", "on_delivery", callback, "error, report")
        return lambda error, report: self._callbacks.append((callback, error, report))

    def _notify(self) -> None:
        """Wake waiting threads, since a batch was delivered or has failed. Runs in the loop thread."""
        with self._progress:
            self._progress.notify_all()
