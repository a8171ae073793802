"""What the spans and metrics of one client have in common: names, attributes, and whether OpenTelemetry is set up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kip932.errors import KafkaError
from kip932.telemetry import meter, tracer

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span

    from sharegroups.tracing.spans import Spans

#: The name of the instrumentation.
NAME: Final = "sharegroups"
#: The value that dashboards for messaging know for topics, partitions and groups.
SYSTEM: Final = "kafka"
#: Upper bounds of the histograms, in seconds, from the conventions.
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
#: The SDK's own limit for the links of a span.
LINKS_MAX: Final = 128

#: How many attributes of metrics are kept, one for each operation and topic.
_KNOWN_MAX: Final = 1_000

Attributes = dict[str, str | int]


class Instruments:
    """The spans and metrics of one client. `on`: whether the program has set up OpenTelemetry, and this client uses it;
    `spans`: None unless it has set a provider of spans. Call `refresh` once per batch or poll: a provider may be set
    after the client was created. What is recorded for each record has its attributes prepared."""

    def __init__(self, enabled: bool, client_id: str, group_id: str = "") -> None:
        self.on = False
        self.spans: Spans | None = None
        self._duration: Histogram | None = None
        self._sent: Counter | None = None
        self._consumed: Counter | None = None
        self._process: Histogram | None = None
        self._is_complete = not enabled
        self._common: Attributes = {"messaging.system": SYSTEM}
        if group_id:
            self._common["messaging.consumer.group.name"] = group_id
        self._known: dict[tuple[str, str | None], Attributes] = {}
        self._known_of_spans: dict[tuple[str, str | None], Attributes] = {}
        self._own: Attributes = {"messaging.client.id": client_id} if client_id else {}
        self.refresh()

    def refresh(self) -> None:
        """Take up the providers that the program has set by now."""
        if self._is_complete:
            return
        if self.spans is None and (provided := tracer(NAME)) is not None:
            from sharegroups.tracing.spans import Spans  # noqa: PLC0415 - it imports OpenTelemetry: see kip932.telemetry

            self.spans = Spans(provided)
        if self._duration is None and (found := meter(NAME)) is not None:
            self._duration = found.create_histogram(
                "messaging.client.operation.duration",
                unit="s",
                description="Duration of messaging operation initiated by a producer or consumer client.",
                explicit_bucket_boundaries_advisory=BUCKETS_S,
            )
            self._sent = found.create_counter(
                "messaging.client.sent.messages",
                unit="{message}",
                description="Number of messages producer attempted to send to the broker.",
            )
            self._consumed = found.create_counter(
                "messaging.client.consumed.messages",
                unit="{message}",
                description="Number of messages that were delivered to the application.",
            )
            self._process = found.create_histogram(
                "messaging.process.duration",
                unit="s",
                description="Duration of processing operation.",
                explicit_bucket_boundaries_advisory=BUCKETS_S,
            )
        self._is_complete = self.spans is not None and self._duration is not None
        self.on = self.spans is not None or self._duration is not None

    def attributes(
        self, operation: str, kind: str, topic: str | None, partition: int | None = None, count: int = 1
    ) -> Attributes:
        """Return a span's attributes. `count`: how many records the operation is for; one needs no count."""
        prepared = self._known_of_spans.get((operation, topic))
        if prepared is None:
            prepared = self._metric_attributes(operation, kind, topic) | self._own
            if len(self._known_of_spans) < _KNOWN_MAX:
                self._known_of_spans[operation, topic] = prepared
        found = prepared.copy()
        if partition is not None:
            found["messaging.destination.partition.id"] = str(partition)
        if count != 1:
            found["messaging.batch.message_count"] = count
        return found

    def took(
        self, operation: str, kind: str, topic: str | None, seconds: float, error: BaseException | None = None
    ) -> None:
        """Record how long an operation took."""
        if self._duration is not None:
            self._duration.record(seconds, _with_error(self._metric_attributes(operation, kind, topic), error))

    def sent(self, topic: str, records: int, error: BaseException | None) -> None:
        """Count records that were sent, or could not be delivered."""
        if self._sent is not None:
            self._sent.add(records, _with_error(self._metric_attributes("send", "send", topic), error))

    def consumed(self, topic: str, records: int) -> None:
        """Count records that the application received, each delivery once."""
        if self._consumed is not None:
            self._consumed.add(records, self._metric_attributes("poll", "receive", topic))

    def processed(self, topic: str, seconds: float, error_type: str) -> None:
        """Record how long a job took. `error_type`: "" if it was done."""
        if self._process is not None:
            attributes = self._known.get(("process", topic)) or self._metric_attributes("process", "process", topic)
            if error_type:
                attributes = attributes | {"error.type": error_type}
            self._process.record(seconds, attributes)

    def _metric_attributes(self, operation: str, kind: str, topic: str | None) -> Attributes:
        found = self._known.get((operation, topic))
        if found is None:
            found = self._common | {"messaging.operation.name": operation, "messaging.operation.type": kind}
            if topic is not None:
                found["messaging.destination.name"] = topic
            if len(self._known) < _KNOWN_MAX:
                self._known[operation, topic] = found
        return found


def error_type(error: BaseException) -> str:
    """Return what `error.type` says of an exception: Kafka's name of the error, or the exception's class."""
    return error.name if isinstance(error, KafkaError) else type(error).__qualname__


def end(span: Span, error: BaseException | None) -> None:
    """End a span; with an error it has failed."""
    if error is not None and span.is_recording():
        from sharegroups.tracing.spans import fail  # noqa: PLC0415 - see Instruments.refresh

        fail(span, error_type(error), str(error))
    span.end()


def span_name(operation: str, topics: Sequence[str]) -> str:
    """Return `operation topic`, or the operation alone for several topics."""
    return f"{operation} {topics[0]}" if len(topics) == 1 else operation


def _with_error(attributes: Attributes, error: BaseException | None) -> Attributes:
    return attributes if error is None else attributes | {"error.type": error_type(error)}
