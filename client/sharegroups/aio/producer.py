"""The producer for asyncio: `send` waits for the delivery of one record, `produce` only for space in the buffer.

Rules P-1, CM-42, CM-43, CM-44. It serialises records and chooses their partitions; `sender` delivers them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from shlex import quote
from types import TracebackType
from typing import Any, Final, Self

from kip932.errors import (
    InvalidRequestError,
    KafkaError,
    MessageTooLargeError,
    NetworkError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kip932.handshakes import is_about_handshake
from kip932.rpc.transport import Transport
from sharegroups import arguments
from sharegroups.config import producer_config
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.core.stall_diagnosis import EXAMINE_AFTER_S, UNAUTHENTICATED, UNKNOWN, UNREACHABLE, Trouble
from sharegroups.connection.security import transport_for
from sharegroups.errors import BufferFullError
from sharegroups.forks import ProcessBound
from sharegroups.left_open import LeftRecords
from sharegroups.producing.delivery_reports import OnDelivery
from sharegroups.producing.produced import ProducedRecord, header_pairs, size_of
from sharegroups.producing.sender import Sender
from sharegroups.producing.transactions import Transactions, no_offsets
from sharegroups.reports import DeliveryReport
from sharegroups.tracing.sending import ProducerTracing

log = logging.getLogger(__name__)

#: Timestamps are at least the first and below the second: a batch stores them as 64-bit differences.
_TIMES: Final = (-(2**62), 2**62)

TAKEN_BACK: Final = "The record is not sent any more, and not stored."
MAY_BE_STORED: Final = "The record may be stored: a request carries it, or has carried it without an answer."

#: After this many records, `produce` yields to the loop's other tasks, including the sender's. Otherwise a tight loop
#: of calls would fill the buffer before the first record is sent.
_RECORDS_A_TURN: Final = 256

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]] | None


class Producer(ProcessBound):
    """Sends records. Create it inside the event loop; use it as `async with`, or call `close`.

    Raises ConfigError for invalid settings.
    """

    _NOUN = "producer"

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, transport: Transport | None = None, **keywords: Any
    ) -> None:
        self._config = producer_config(settings, keywords)
        self._own_transport = transport is None
        self._transport = transport if transport is not None else transport_for(self._config)
        self.cluster = Cluster(self._transport, self._config)
        self.tracing = ProducerTracing(
            self._config["opentelemetry.enable"],
            self._config["client.id"],
            self._config["batch.size"],
            self._config["max.request.size"],
        )
        self.sender = Sender(self.cluster, self._config, self._changed, self.tracing)
        self._left = LeftRecords(self.sender.buffer)
        self._progress = asyncio.Event()
        self._sticky: dict[str, int] = {}
        self._serialize_key = self._config["key.serializer"]
        self._serialize_value = self._config["value.serializer"]
        self._size_max = int(self._config["max.request.size"])
        self._random_partitions = self._config["partitioner"] == "random"
        self.on_progress: Callable[[], None] | None = None
        #: Monotonic clock in seconds, for the age of batches.
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        #: Topics for which the log already says that the producer is waiting.
        self._logged_waiting: set[str] = set()
        self._turn = 0
        self._bind_process()
        self._transactions = Transactions(self.cluster, self._config, self.sender, self.flush)
        self._is_transactional = self.sender.transaction is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        *,
        headers: Headers = None,
        timestamp: int | None = None,
    ) -> DeliveryReport:
        """Produce one record and return where it is stored. Raises whatever `produce` raises, or the error that made
        the delivery fail.

        If the call is cancelled, for example by `asyncio.timeout`, its record is withdrawn and not sent any more. A
        record in a request that is in flight at that moment, or that got no response, may still be stored. A note on
        the exception says which.
        """
        sending = self._send(topic, value, key, partition, headers, timestamp)
        return await (self.tracing.send(topic, sending) if self.tracing.on else sending)

    async def _send(  # noqa: PLR0917 - the arguments of `send`
        self, topic: str, value: Any, key: Any, partition: int | None, headers: Headers, timestamp: int | None
    ) -> DeliveryReport:
        delivered: asyncio.Future[DeliveryReport] = asyncio.get_running_loop().create_future()

        def done(error: KafkaError | None, report: DeliveryReport) -> None:
            self.sender.ended(done)
            if delivered.done():
                return
            if error is None:
                delivered.set_result(report)
            else:
                delivered.set_exception(error)

        try:
            await self.produce(topic, value, key, partition, done, headers=headers, timestamp=timestamp)
            return await delivered
        except asyncio.CancelledError as cancelled:
            cancelled.add_note(self._take_back(topic, delivered, done))
            raise

    def _take_back(self, topic: str, delivered: asyncio.Future[DeliveryReport], done: OnDelivery) -> str:
        """Withdraw the record of a cancelled `send`. Returns a sentence about the outcome."""
        if delivered.done() and not delivered.cancelled():
            failed = delivered.exception()
            return "The record is stored." if failed is None else f"The delivery has failed: {failed}"
        return TAKEN_BACK if self.sender.take_back(topic, done) else MAY_BE_STORED

    async def produce(
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
        """Put one record into the buffer; `on_delivery(error or None, report)` is called with the outcome in the event
        loop.

        Without `on_delivery` a failure is logged as an error. `timestamp` is in ms since 1970, now by default. Waits
        for metadata and for space in the buffer, at most max.block.ms each. A cancelled call may have put the record
        into the buffer. Raises BufferFullError, MessageTooLargeError, UnknownTopicOrPartitionError, InvalidRequestError
        for a partition that does not exist, TopicAuthorizationFailedError at once without the right (CL-143).
        """
        if not self.knows(topic):
            await self.ensure_topic(topic)
        if on_delivery is not None:
            arguments.callback("produce", "on_delivery", on_delivery, "error, report")
        record = self.record(value, key, headers, timestamp)
        if (contexts := self.tracing.contexts) is not None and contexts():  # this runs for every record
            record = self.tracing.stamp(topic, record)
        wake = self.append(topic, partition, record, on_delivery)
        if wake is None:
            wake = await self._append_when_room(topic, partition, record, on_delivery)
        if wake:
            asyncio.get_running_loop().call_soon(self.sender.pump)
        self._turn += 1
        if self._turn >= _RECORDS_A_TURN:
            self._turn = 0
            await asyncio.sleep(0)

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return metrics by (group, name): how long nodes make this producer wait for its quota, in ms (CL-163)."""
        waits = self.sender.quota_waits
        return {
            ("producer-metrics", "produce-throttle-time-avg"): waits.average_ms,
            ("producer-metrics", "produce-throttle-time-max"): float(waits.maximum_ms),
        }

    async def flush(self, timeout: float | None = None) -> int:  # noqa: ASYNC109 - the public signature of CL-44
        """Wait until every record is delivered or has failed. Returns how many are still pending after `timeout`
        seconds."""
        arguments.seconds("flush", timeout)
        try:
            async with asyncio.timeout(timeout):
                while self.sender.buffer.records:
                    self._progress.clear()
                    self.sender.pump()
                    await self._progress.wait()
        except TimeoutError:
            pass
        return self.sender.buffer.records

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the public signature of CL-44
        """Flush for at most `timeout` seconds (default: delivery.timeout.ms), then stop. A second call does nothing. An
        open transaction is aborted."""
        arguments.seconds("close", timeout)
        if self._closed:
            return
        await self._transactions.abort()
        await self.flush(self._config["delivery.timeout.ms"] / 1000 if timeout is None else timeout)
        self._closed = True
        self._left.done()
        await self.sender.close()
        await self.cluster.close()
        if self._own_transport:
            await self._transport.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run the block as a transaction: groups with share.isolation.level=read_committed get all of its records or
        none (CM-44). Needs transactional.id. The end of the block commits; an exception aborts.

        If a record cannot be delivered, its error is raised and no record of the transaction is delivered. Raises
        ProducerFencedError when another producer uses the id, InvalidTxnStateError when the transaction was aborted,
        for example because it timed out. If the end of the block raises RequestTimedOutError,
        NetworkError, SaslAuthenticationFailedError or TransactionalIdAuthorizationFailedError, the outcome is unknown;
        the next transaction begins once it is known.
        """
        await self.begin_transaction()
        try:
            yield
            await self.end_transaction(commit=True)
        except BaseException:
            await self.abort_transaction()
            raise

    async def send_offsets_to_transaction(self, offsets: object = None, group: object = None) -> None:
        """Raise InvalidRequestError, because share groups have no offsets (CL-104)."""
        raise no_offsets()

    # Used by the blocking producer too.

    @property
    def block_s(self) -> float:
        """max.block.ms in seconds."""
        return float(self._config["max.block.ms"]) / 1000

    @property
    def delivery_timeout_s(self) -> float:
        """delivery.timeout.ms in seconds."""
        return float(self._config["delivery.timeout.ms"]) / 1000

    async def begin_transaction(self) -> None:
        """Begin a transaction (CM-44)."""
        await self._transactions.begin()

    def transaction_not_begun(self) -> None:
        """Undo a `begin_transaction` whose caller was interrupted."""
        self._transactions.not_begun()

    async def end_transaction(self, commit: bool) -> None:
        """End the transaction: flush, then commit or abort."""
        await self._transactions.end(commit)

    async def abort_transaction(self) -> None:
        """Abort while an exception propagates. A failure is only logged, so that the caller gets that exception."""
        await self._transactions.abort()

    def knows(self, topic: str) -> bool:
        """Return whether the topic is in the metadata. Raises ValueError for a value that cannot be a name."""
        try:
            return topic in self.cluster.topics
        except TypeError:  # a list, for example; `ensure_topic` refuses a number
            raise arguments.refusal("produce", "topic", topic, "the name of a topic") from None

    async def ensure_topic(self, topic: str) -> None:
        """Wait for the topic's metadata, at most max.block.ms. After 2 s, log a warning that says why it waits.

        Raises the topic's error, SaslAuthenticationFailedError if the nodes do not accept this client (at once, unless
        its credentials can change: CL-158), NetworkError if the cluster did not answer, or else
        UnknownTopicOrPartitionError.
        """
        if self._closed:
            self._check_open()
        arguments.text("produce", "topic", topic)
        self.cluster.start()
        warning_timer = asyncio.get_running_loop().call_later(EXAMINE_AFTER_S, self._log_waiting, topic)
        try:
            async with asyncio.timeout(self._config["max.block.ms"] / 1000):
                self.cluster.want([topic])
                while topic not in self.cluster.topics:
                    await self.cluster.wait_refreshed()
                    if self.cluster.refusal is not None and not self._config.renews_credentials:
                        self.cluster.forget([topic])
                        raise self.cluster.refusal
                    error = self.cluster.errors.get(topic)
                    if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
                        self.cluster.forget([topic])
                        if isinstance(error, TopicAuthorizationFailedError):
                            error = self.sender.explained(error, [topic])
                        raise error
        except TimeoutError:
            self.cluster.forget([topic])
            if self.cluster.refusal is not None:
                raise self.cluster.refusal from None
            if topic not in self.cluster.errors:  # no node has reported that the topic does not exist
                why = self.cluster.trouble or "no node answered within max.block.ms"
                hint = ". Is the cluster up (sharegroups up), and is bootstrap.servers right?"
                raise NetworkError(
                    f"topic {topic!r} could not be looked up: {why}{'' if is_about_handshake(why) else hint}"
                ) from None
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} was not found within {self._config['max.block.ms']} ms; "
                f"create it first, for example with: sharegroups topics create {quote(topic)}"
            ) from None
        finally:
            warning_timer.cancel()
            self._logged_waiting.discard(topic)

    def _log_waiting(self, topic: str) -> None:
        """Log once for all calls that wait for this topic now."""
        if topic in self._logged_waiting or topic in self.cluster.topics:
            return
        self._logged_waiting.add(topic)
        kind, where = UNKNOWN if topic in self.cluster.errors else UNREACHABLE, self._config["bootstrap.servers"]
        if self.cluster.refusal is not None:
            kind = UNAUTHENTICATED
        why = "" if kind == UNKNOWN else self.cluster.trouble or f"no answer within {EXAMINE_AFTER_S:g} s"
        trouble = Trouble(kind, where, (topic,), why)
        text = f"{trouble.text(name='the name given to the producer')} It waits for max.block.ms"
        log.warning("%s, %d ms.", text, self._config["max.block.ms"], extra={"trouble": trouble})

    def record(self, value: Any, key: Any, headers: Headers, timestamp_ms: int | None) -> ProducedRecord:
        """Serialise one record. Raises ValueError for a key or value that is neither bytes nor text, and for headers or
        a timestamp that are invalid."""
        if type(value) is not bytes or self._serialize_value is not None:
            value = _bytes(value, self._serialize_value, "value")
        if key is not None and (type(key) is not bytes or self._serialize_key is not None):
            key = _bytes(key, self._serialize_key, "key")
        pairs = header_pairs(headers) if headers else ()
        if timestamp_ms is None:
            return key, value, pairs, time.time_ns() // 1_000_000
        if type(timestamp_ms) is not int:
            expected, instead = "ms since 1970 as a whole number", "timestamp=int(time.time() * 1000)"
            raise arguments.refusal("produce", "timestamp", timestamp_ms, expected, instead)
        if not _TIMES[0] <= timestamp_ms < _TIMES[1]:
            expected = "ms since 1970 from -2^62 on and below 2^62"
            raise arguments.refusal("produce", "timestamp", timestamp_ms, expected)
        return key, value, pairs, timestamp_ms

    def append(
        self, topic: str, partition: int | None, record: ProducedRecord, on_delivery: OnDelivery | None
    ) -> bool | None:
        """Put a record into the buffer, from any thread. If it returns True, call `sender.pump` in the loop. Returns
        None if there is no space.

        Raises MessageTooLargeError, InvalidRequestError for a partition that does not exist, IllegalStateError.
        """
        if self._closed:
            self._check_open()
        if self._is_transactional:
            self._transactions.check_open()
        size = size_of(record)
        if size > self._size_max:
            raise MessageTooLargeError(f"the record has {size} bytes; max.request.size allows {self._size_max}")
        chosen = self._partition(topic, partition, record[0])
        sender = self.sender
        buffer = sender.buffer
        with sender.lock:
            if buffer.extend((topic, chosen), record, size, on_delivery):
                return False
            if not buffer.has_room(size):
                return None
            appended = buffer.append((topic, chosen), record, size, int(self.clock() * 1000), on_delivery)
        self.tracing.refresh()
        if appended.began_batch and partition is None and record[0] is None:
            self._sticky[topic] = chosen + 1
        return appended.wakes

    def _partition(self, topic: str, partition: int | None, key: bytes | None) -> int:
        found = self.cluster.topics.get(topic)
        count = found.partitions if found is not None else 1
        if partition is not None:
            if type(partition) is not int:
                arguments.whole("produce", "partition", partition)
            if not 0 <= partition < count:
                raise InvalidRequestError(f"topic {topic!r} has partitions 0 to {count - 1}; {partition} is not one")
            return partition
        if self._random_partitions:
            first = random.randrange(count)
        elif key is not None:
            return zlib.crc32(key) % count
        else:
            first = self._sticky.get(topic, 0) % count
        unavailable = self.sender.health.unavailable
        return unavailable.choose(topic, first, count) if unavailable else first

    async def _append_when_room(
        self, topic: str, partition: int | None, record: ProducedRecord, on_delivery: OnDelivery | None
    ) -> bool:
        """Append the record once there is space, within max.block.ms. Raises BufferFullError."""
        try:
            async with asyncio.timeout(self._config["max.block.ms"] / 1000):
                while (wake := self.append(topic, partition, record, on_delivery)) is None:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise self.buffer_full() from None
        return wake

    def buffer_full(self) -> BufferFullError:
        """Return the error for a full buffer."""
        return BufferFullError(
            f"the buffer held {self.sender.buffer.used_bytes} bytes for {self._config['max.block.ms']} ms; "
            "raise buffer.memory, or produce more slowly, or wait longer (max.block.ms)"
        )

    def _changed(self) -> None:
        self._progress.set()
        if self.on_progress is not None:
            self.on_progress()


def _bytes(data: Any, serializer: Any, part: str) -> bytes | None:
    if serializer is not None and data is not None:
        data = serializer(data)
    if isinstance(data, str):
        return data.encode()
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise ValueError(f"the {part} is a {type(data).__name__}; expected bytes or text, or set {part}.serializer")
