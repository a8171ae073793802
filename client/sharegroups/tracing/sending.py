"""A producer's spans and metrics, and the trace contexts that its records carry (CL-172).

A record's own context, that of a span which is current where it is produced, comes first. Records without one get the
context of the span that sends their batch. So a fast producer pays for one decision of the sampler per batch, and
records of a span that is not sampled are stored as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from kip932.telemetry import (
    CONTEXT_BYTES,
    TRACEPARENT,
    context_in,
    headers_of,
    traceparent_of,
    without_context,
)
from sharegroups.producing.core.produce_lane import Batch, Group
from sharegroups.producing.delivery_reports import OnDelivery
from sharegroups.producing.produced import ProducedRecord, size_of
from sharegroups.reports import DeliveryReport
from sharegroups.tracing.instruments import LINKS_MAX, Instruments, end, span_name

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

_Header = tuple[str, bytes | None]


class BatchTrace:
    """What a batch is traced with, from its first request to its outcome.

    `added`: the headers that its records without a context get; they are encoded with them, and kept without.
    `traceparent`: what the request says of its sender; empty if nothing is sampled.
    """

    __slots__ = ("_began_s", "_span", "_tracing", "added", "traceparent")

    def __init__(self, tracing: ProducerTracing, span: Span | None, added: Sequence[_Header], traceparent: str) -> None:
        self._tracing = tracing
        self._span = span
        self._began_s = time.monotonic()
        self.added = added
        self.traceparent = traceparent

    def stamped(self, records: Sequence[ProducedRecord]) -> Sequence[ProducedRecord]:
        """Return the records as they are encoded."""
        added = self.added
        if not added:
            return records
        return [
            record if has_context(record) else (record[0], record[1], [*record[2], *added], record[3])
            for record in records
        ]

    def over(self, partition: TopicPartition, records: int, error: BaseException | None, offset: int = -1) -> None:
        """Note the batch's outcome. `offset`: where its first record is stored."""
        self._tracing.sent(partition.topic, records, error)
        self._tracing.took("send", "send", partition.topic, time.monotonic() - self._began_s, error)
        if self._span is not None:
            if error is None and self._span.is_recording():
                self._span.set_attribute("messaging.kafka.offset", offset)
            end(self._span, error)


class ProducerTracing(Instruments):
    """The tracing of one producer. `batch_bytes` and `record_bytes` bound what its records may grow to."""

    def __init__(self, enabled: bool, client_id: str, batch_bytes: int, record_bytes: int) -> None:
        #: Returns what is current in this thread or task, empty for nothing; None while no context is to be stamped.
        self.contexts: Callable[[], Mapping[str, object]] | None = None
        #: Whether records keep the contexts that they are given, as a redriven dead letter does.
        self.keeps_contexts = False
        super().__init__(enabled, client_id)
        self._batch_bytes = batch_bytes
        self._record_bytes = record_bytes
        #: The spans of `send` calls that wait for their record's outcome, by span id.
        self._sends: Final[set[int]] = set()

    def refresh(self) -> None:
        """Take up the providers that the program has set by now."""
        super().refresh()
        if self.spans is not None and self.contexts is None and not self.keeps_contexts:
            self.contexts = self.spans.current

    def reserve_bytes(self, records: int) -> int:
        """Return how much smaller batches of this many records are made, so that contexts fit into full ones, too."""
        return min(records * CONTEXT_BYTES, self._batch_bytes // 8) if self.spans is not None else 0

    async def send(self, topic: str, sending: Coroutine[Any, Any, DeliveryReport]) -> DeliveryReport:
        """Run a `send` call under its span, whose context its record gets."""
        if self.spans is None:
            return await sending
        span = self.spans.sent_one(f"send {topic}", self.attributes("send", "send", topic))
        number = span.get_span_context().span_id
        if span.is_recording():
            self._sends.add(number)
        try:
            with self.spans.within(span):
                report = await sending
        except BaseException as error:
            end(span, error)
            raise
        finally:
            self._sends.discard(number)
        if span.is_recording():
            span.set_attribute("messaging.destination.partition.id", str(report.partition()))
            span.set_attribute("messaging.kafka.offset", report.offset())
        end(span, None)
        return report

    def stamp(self, topic: str, record: ProducedRecord) -> ProducedRecord:
        """Return the record with its own context, that of a `create` span, if a sampled span is current. A current span
        also replaces the context that the record was given, for example with the headers of another record."""
        assert self.spans is not None, "there are contexts"
        context = self.spans.current_span()
        if not context.is_valid:
            return record
        if context.trace_flags.sampled and context.span_id not in self._sends:
            context = self._created(topic, record)
        if context.trace_flags.sampled or has_context(record):
            return self._carrying(record, context)
        return record

    def _created(self, topic: str, record: ProducedRecord) -> SpanContext:
        assert self.spans is not None
        attributes = self.attributes("create", "create", topic)
        if record[1] is None:
            attributes["messaging.kafka.message.tombstone"] = True
        span = self.spans.sent_one(f"create {topic}", attributes)
        span.end()
        return span.get_span_context()

    def _carrying(self, record: ProducedRecord, context: SpanContext) -> ProducedRecord:
        """Return the record with this context in place of an older one, unless it would become too large."""
        key, value, headers, timestamp_ms = record
        kept = without_context(headers) if headers else []
        if not context.trace_flags.sampled:
            return key, value, kept, timestamp_ms
        carrying = (key, value, [*kept, *headers_of(context)], timestamp_ms)
        if size_of(carrying) > self._record_bytes >= size_of(record):
            return key, value, kept, timestamp_ms
        return carrying

    def sending(self, groups: Iterable[Group[ProducedRecord, Any]]) -> str:
        """Begin the tracing of batches that are sent now, unless an earlier request began it. Returns the traceparent
        for the request."""
        traceparent = ""
        for group in groups:
            for batch in group.batches:
                if batch.trace is None:
                    batch.trace = self._begin(group.partition, batch)
                traceparent = traceparent or batch.trace.traceparent
        return traceparent

    def _begin(self, partition: TopicPartition, batch: Batch[ProducedRecord, Any]) -> BatchTrace:
        if self.spans is None:
            return BatchTrace(self, None, (), "")
        records = batch.records
        carried = [record for record in records if record[2] and has_context(record)]
        contexts = [found for record in carried[:LINKS_MAX] if (found := context_in(record[2])) is not None]
        sent_alone = len(carried) == len(records) and all(one.span_id in self._sends for one in contexts)
        if contexts and (sent_alone or self.keeps_contexts):  # these have spans of their own
            return BatchTrace(self, None, (), traceparent_of(contexts[0]))
        span = self.spans.sent_batch(
            span_name("send", [partition.topic]),
            self.attributes("send", "send", partition.topic, partition.partition, len(records)),
            contexts,
            is_call=len(carried) == len(records),
        )
        if not span.get_span_context().trace_flags.sampled:
            return BatchTrace(self, span, (), traceparent_of(contexts[0]) if contexts else "")
        own = span.get_span_context()
        fits = self._fits(batch, len(records) - len(carried))
        return BatchTrace(self, span, headers_of(own) if fits else (), traceparent_of(own))

    def _fits(self, batch: Batch[ProducedRecord, Any], records: int) -> bool:
        """Return whether this many records may get a context, so that no leader refuses the batch because of it."""
        most = max(self._batch_bytes, self._record_bytes) if len(batch.records) == 1 else self._batch_bytes
        return batch.size_bytes + records * CONTEXT_BYTES <= most

    def redriven(self, topic: str, headers: Iterable[_Header], on_delivery: OnDelivery) -> OnDelivery:
        """Begin the span of a dead letter that is produced again: linked to the letter, whose context it keeps. Returns
        an `on_delivery` that ends it."""
        self.keeps_contexts, self.contexts = True, None
        if self.spans is None:
            return on_delivery
        span = self.spans.sent_one(f"send {topic}", self.attributes("send", "send", topic), context_in(headers))

        def delivered(error: KafkaError | None, report: DeliveryReport) -> None:
            end(span, error)
            on_delivery(error, report)

        return delivered


def has_context(record: ProducedRecord) -> bool:
    """Return whether a record has a header for a context."""
    return any(name == TRACEPARENT for name, _ in record[2])
