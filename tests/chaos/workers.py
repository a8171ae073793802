"""The processes that use the cluster during faults: `python -m tests.chaos.workers KIND JSON`.

KIND is producer, consumer, or churner: a consumer that constantly leaves and joins again. Each writes what it observes
into its own history file, and leaves cleanly when its standard input closes or on SIGTERM. The client's results are
recorded unchanged; nothing here retries or repairs.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest, ShareStreamResponse
from kip932.errors import KafkaError, NetworkError, RequestTimedOutError
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, TransportError
from sharegroups import AcknowledgeType, DeliveryReport, Message, Producer, ShareConsumer, WakeupError
from sharegroups.messages import TopicIdPartition
from tests.chaos.history import (
    Acknowledged,
    Delivered,
    Failed,
    HistoryWriter,
    Produced,
    SessionEnded,
    Unseen,
    now_ms,
)
from tests.support.dial import Dial

#: Short, so that a client gives up on a paused owner within the bounds of an experiment.
REQUEST_TIMEOUT_MS = 2_000
UNKNOWN = "UNKNOWN"
#: The padding of a large value.
_PADDING = b"."


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker. `rate`: the producer's records per second; `records`: how many it produces, 0 for no
    limit; `accept_only`: consumers accept everything; `hold_ms`: how long they hold their records; `value_bytes`: the
    size to which a record's value is padded, 0 for no padding; `security`: the client's settings for TLS, none for
    plaintext."""

    bootstrap: str
    topic: str
    group: str
    partitions: int
    name: str
    seed: int
    rate: int
    history: str
    records: int = 0
    accept_only: bool = False
    hold_ms: int = 0
    value_bytes: int = 0
    security: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> str:
        """Return the options for a command line."""
        return json.dumps(asdict(self))


class Arrival(NamedTuple):
    """When a record's fetch was sent, when its response arrived, and the delivery count in it."""

    sent_ms: int
    at_ms: int
    delivery_count: int


class TimedTransport(GrpcTransport):
    """Notes in the transport when each acquired record was requested and when it arrived.

    `reach`: advertised addresses that are reached at another address from here. `session_ended` is called when a share
    session is opened or closed, and when its stream ends. `security`: the client's settings for TLS.
    """

    def __init__(
        self,
        reach: Mapping[str, str] | None = None,
        session_ended: Callable[[], None] = lambda: None,
        security: Mapping[str, str] | None = None,
    ) -> None:
        credentials = Dial(security or {}).credentials
        super().__init__(None if credentials is None else lambda: credentials)
        self._reach = dict(reach or {})
        self._session_ended = session_ended
        self._arrivals: defaultdict[tuple[bytes, int, int], list[Arrival]] = defaultdict(list)
        self._taken_back: list[tuple[int, int, Arrival]] = []

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """Call as gRPC's transport does."""
        return await super().call(self._reach.get(address, address), method, request, timeout_s)

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        """Open a stream as gRPC's transport does; note what share streams carry."""
        stream = await super().open_stream(self._reach.get(address, address), method)
        if method.request_type is not ShareStreamRequest:
            return stream
        timed = _TimedStream(cast(_ShareStream, stream), self._arrived, self._asked, self._session_ended)
        return cast(ClientStream[RequestT, ResponseT], timed)

    def _arrived(self, response: ShareStreamResponse, sent_ms: int) -> None:
        at_ms = now_ms()
        for topic in response.fetch.responses:
            for part in topic.partitions:
                for acquired in part.acquired_records:
                    arrival = Arrival(sent_ms, at_ms, acquired.delivery_count)
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        self._arrivals[topic.topic_id, part.partition_index, offset].append(arrival)

    def _asked(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> None:
        """Set aside the arrivals of records that the client returns undelivered (CL-137), which takes back the
        delivery: they may be delivered again with the same count."""
        for topic in request.topics:
            for part in topic.partitions:
                for batch in part.acknowledgement_batches:
                    flags = list(batch.undelivered)
                    for offset in range(batch.first_offset, batch.last_offset + 1):
                        if not flags or not flags[offset - batch.first_offset if len(flags) > 1 else 0]:
                            continue
                        arrivals = self._arrivals[topic.topic_id, part.partition_index, offset]
                        self._taken_back += [(part.partition_index, offset, arrival) for arrival in arrivals]
                        arrivals.clear()

    def arrival(self, message: Message) -> Arrival:
        """Take the oldest arrival of the record with this delivery count.

        The others are left for `unseen`: the client may have released one by itself, and received the record again.
        """
        arrivals = self._arrivals[message.topic_id(), message.partition(), message.offset()]
        counts = [arrival.delivery_count for arrival in arrivals]
        return arrivals.pop(counts.index(message.delivery_count()))

    def unseen(self, worker: str, topic: str) -> list[Unseen]:
        """Return the arrivals that `arrival` never took, for a worker of one topic."""
        left = [
            (partition, offset, arrival)
            for (_, partition, offset), arrivals in self._arrivals.items()
            for arrival in arrivals
        ]
        return [
            Unseen(worker, topic, partition, offset, arrival.delivery_count, arrival.sent_ms, arrival.at_ms)
            for partition, offset, arrival in (*self._taken_back, *left)
        ]


_ShareStream = ClientStream[ShareStreamRequest, ShareStreamResponse]


class _TimedStream:
    def __init__(
        self,
        stream: _ShareStream,
        arrived: Callable[[ShareStreamResponse, int], None],
        asked: Callable[[ShareFetchRequest | ShareAcknowledgeRequest], None],
        session_ended: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._arrived = arrived
        self._asked = asked
        self._session_ended = session_ended
        self._sent: dict[int, int] = {}

    async def write(self, message: ShareStreamRequest) -> None:
        request = message.fetch if message.HasField("fetch") else message.acknowledge
        if request.share_session_epoch <= 0:
            self._session_ended()
        self._asked(request)
        if message.HasField("fetch"):
            self._sent[message.correlation_id] = now_ms()
        await self._stream.write(message)

    async def read(self) -> ShareStreamResponse | None:
        try:
            response = await self._stream.read()
        except TransportError:
            self._session_ended()
            raise
        if response is None:
            self._session_ended()
        elif response.HasField("fetch"):
            self._arrived(response, self._sent.pop(response.correlation_id))
        return response

    def leave_connection(self) -> None:
        self._stream.leave_connection()

    async def close(self) -> None:
        self._session_ended()
        await self._stream.close()


class Sent(NamedTuple):
    """An acknowledgement without a result yet."""

    type: str
    delivery_count: int
    sent_ms: int


class AckBook:
    """Open acknowledgements by place, until the client's callback reports their outcome.

    A record may be redelivered while an older acknowledgement of it is open. It then gets the same type, so that it
    does not matter which result belongs to which.
    """

    def __init__(self, worker: str, history: HistoryWriter, choose: Callable[[], AcknowledgeType]) -> None:
        self._worker = worker
        self._history = history
        self._choose = choose
        self._open: defaultdict[tuple[str, int, int], list[Sent]] = defaultdict(list)

    def note(self, message: Message) -> AcknowledgeType:
        """Choose the type of a record's acknowledgement and remember it."""
        waiting = self._open[message.topic(), message.partition(), message.offset()]
        kind = AcknowledgeType[waiting[-1].type] if waiting else self._choose()
        waiting.append(Sent(kind.name, message.delivery_count(), now_ms()))
        return kind

    def settled(self, offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        """Take results from the client's callback. It also reports offsets without a record, which the client
        acknowledged by itself: a store that may have lost its tail leaves a million of them (CM-47)."""
        events = []
        for partition, places in offsets.items():
            for offset in sorted(places):
                if (at := (partition.topic, partition.partition, offset)) not in self._open:
                    continue
                sent = self._open[at].pop(0)
                events.append(
                    Acknowledged(
                        self._worker, partition.topic, partition.partition, offset, sent.type, sent.delivery_count,
                        answer_of(error), sent.sent_ms, now_ms(),
                    )
                )  # fmt: skip
        self._history.write(events)


def answer_of(error: KafkaError | None) -> str:
    """Return "" for NONE; UNKNOWN if no response came; else the name of the error."""
    if error is None:
        return ""
    return UNKNOWN if isinstance(error, NetworkError | RequestTimedOutError) else error.name


def choice(rng: random.Random) -> Callable[[], AcknowledgeType]:
    """Return a random type: mostly ACCEPT, some RELEASE, few REJECT."""
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    return lambda: rng.choices(kinds, (80, 15, 5))[0]


class ConsumerWorker:
    """Polls, acknowledges explicitly, and commits in one of three ways, chosen at random each time."""

    def __init__(self, options: WorkerOptions, life: int = 0) -> None:
        self._name = options.name
        self._topic = options.topic
        self._hold_s = options.hold_ms / 1000
        self._history = history = HistoryWriter(Path(options.history))
        self._transport = TimedTransport(
            session_ended=lambda: history.write([SessionEnded(options.name, now_ms())]), security=options.security
        )
        self._rng = random.Random(f"{options.seed}-{options.name}-{life}")
        choose = choice(self._rng) if not options.accept_only else lambda: AcknowledgeType.ACCEPT
        self._book = AckBook(options.name, self._history, choose)
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "client.id": options.name,
                "share.acknowledgement.mode": "explicit",
                "share.acquire.mode": "batch_optimized",  # several records at a time from the first poll on
                "max.poll.records": 20,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "default.api.timeout.ms": 5_000,
                **options.security,
            },
            transport=self._transport,
        )
        self.consumer.set_acknowledgement_commit_callback(self._book.settled)
        self.consumer.subscribe([options.topic])

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then close; both record the results."""
        while not stop.is_set():
            try:
                self._turn()
            except WakeupError:
                break
            except KafkaError as error:
                self._record("poll", error)
        try:
            self.consumer.close(5)
        except KafkaError as error:
            self._record("close", error)
        self._history.write(self._transport.unseen(self._name, self._topic))
        self._history.close()

    def _record(self, call: str, error: KafkaError) -> None:
        print(f"{now_ms()} {self._name} {call}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        self._history.write([Failed(self._name, call, error.name, now_ms())])

    def _turn(self) -> None:
        messages = self.consumer.poll(0.5)
        self._history.write([self._delivered(message) for message in messages])
        time.sleep(self._hold_s if messages else 0)
        for message in messages:
            self.consumer.acknowledge(message, self._book.note(message))
        way = self._rng.random()
        if way < 0.4:
            self.consumer.commit_sync(3.0)
        elif way < 0.7:
            self.consumer.commit_async()

    def _delivered(self, message: Message) -> Delivered:
        sent_ms, at_ms, _ = self._transport.arrival(message)
        value = value_text(message.value())
        return Delivered(
            self._name, message.topic(), message.partition(), message.offset(), value, message.delivery_count(),
            sent_ms, at_ms,
        )  # fmt: skip


def value_text(value: bytes | None) -> str:
    """Return a value as the history records it: without its padding."""
    return (value or b"").rstrip(_PADDING).decode()


def consume(options: WorkerOptions) -> None:
    """Run a consumer."""
    worker = ConsumerWorker(options)
    stop = _stop_event(worker.consumer.wakeup)
    worker.run(stop)


def churn(options: WorkerOptions) -> None:
    """Run a consumer that leaves and joins again every few hundred milliseconds, each time as another member."""
    stop, life = _stop_event(lambda: None), 0
    rng = random.Random(f"{options.seed}-{options.name}")
    while not stop.is_set():
        worker, leave = ConsumerWorker(options, life), threading.Event()
        timer = threading.Timer(rng.uniform(0.2, 0.9), leave.set)
        timer.start()
        worker.run(leave)
        timer.join()
        life += 1


def produce(options: WorkerOptions) -> None:
    """Run a producer of different values at a bounded rate; unconfirmed records are left out of its history."""
    stop = _stop_event(lambda: None)
    history = HistoryWriter(Path(options.history))

    def delivered(error: KafkaError | None, report: DeliveryReport) -> None:
        value = value_text(report.value())
        if error is None:
            history.write([Produced(report.topic(), report.partition(), report.offset(), value, now_ms())])
        else:
            print(f"{now_ms()} {value} not confirmed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            history.write([Failed(options.name, "produce", error.name, now_ms())])

    settings = {
        "bootstrap.servers": options.bootstrap,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        **options.security,
    }
    with Producer(settings) as producer:
        number, began = 0, time.monotonic()
        while not stop.is_set() and (not options.records or number < options.records):
            producer.produce(
                options.topic,
                f"v{number}".encode().ljust(options.value_bytes, _PADDING),
                partition=number % options.partitions,
                on_delivery=delivered,
            )
            number += 1
            producer.poll(0)
            stop.wait(max(0.0, began + number / options.rate - time.monotonic()))
        producer.flush(10)
        stop.wait()
    history.close()


def _stop_event(on_stop: Callable[[], None]) -> threading.Event:
    stop = threading.Event()

    def after(wait: Callable[[], object]) -> None:
        wait()
        stop.set()
        with contextlib.suppress(Exception):
            on_stop()

    for wait in (sys.stdin.read, lambda: signal.sigwait({signal.SIGTERM})):
        threading.Thread(target=after, args=(wait,), daemon=True).start()
    return stop


_LIVES: dict[str, Callable[[WorkerOptions], None]] = {"producer": produce, "consumer": consume, "churner": churn}


def main(arguments: Sequence[str]) -> int:
    """Run one worker."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before any thread starts: one thread waits for it
    kind, text = arguments
    fields: dict[str, Any] = json.loads(text)
    _LIVES[kind](WorkerOptions(**fields))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
