"""A consumer's spans and metrics: polls that returned records, and acknowledgements (CL-173).

A sampled span links to the contexts that its records carry. Only for such a span are records' headers read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from kip932.errors import KafkaError
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_NAMES, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from kip932.telemetry import context_in, traceparent_of
from sharegroups.consuming.ack_outbox import PendingAck
from sharegroups.consuming.core.acknowledgements import offsets_with
from sharegroups.messages import Delivered
from sharegroups.tracing.instruments import LINKS_MAX, Attributes, Instruments, end, span_name
from sharegroups.tracing.traces import AckTrace, DeliveryTrace, Settling

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from sharegroups.tracing.spans import Spans

#: How an operation that settles records is named.
_NAMES: Final = {ACK_ACCEPT: "ack", ACK_RELEASE: "nack", ACK_REJECT: "nack", ACK_RENEW: "renew"}
#: The trace of a delivery that no poll has returned while spans were on; it stays empty.
_UNTRACED: Final = DeliveryTrace()
_Ranges = Sequence[tuple[int, int]]


class ConsumerTracing(Instruments):
    """The tracing of one consumer."""

    def __init__(self, enabled: bool, client_id: str, group_id: str, member_id: str) -> None:
        super().__init__(enabled, client_id, group_id)
        self._own["sharegroups.member.id"] = member_id
        self._polled_ns = 0
        self._polled_s = 0.0

    def poll_began(self) -> None:
        """Note when a poll began."""
        self._polled_ns, self._polled_s = time.time_ns(), time.monotonic()

    def polled(self, delivered: Sequence[Delivered]) -> None:
        """Trace and count the records that a poll returns. Those of an interrupted poll come again, and count once."""
        fresh = [part for part in delivered if part.trace is None]
        for part in fresh:
            part.trace = DeliveryTrace()
            if not part.was_renewed:
                self.consumed(part.topic, part.records)
        topics = list(dict.fromkeys(part.topic for part in delivered))
        topic = topics[0] if len(topics) == 1 else None
        self.took("poll", "receive", topic, time.monotonic() - self._polled_s)
        if self.spans is None:
            return
        partitions = {part.id_partition for part in delivered}
        partition = delivered[0].id_partition.partition if len(partitions) == 1 else None
        count = sum(part.records for part in delivered)
        attributes = self.attributes("poll", "receive", topic, partition, count)
        span = self.spans.polled(span_name("poll", topics), attributes, self._polled_ns)
        if span.is_recording():
            for part in delivered:
                if part.trace is not None:
                    part.trace.poll = span.get_span_context()
            if partition is not None and count == 1:
                span.set_attribute("messaging.kafka.offset", delivered[0].span[0])
            for context in islice((one for part in delivered for one in _contexts(part, None)), LINKS_MAX):
                span.add_link(context)
        span.end()

    def settling(self, acks: Iterable[PendingAck]) -> None:
        """Begin the spans of acknowledgements: one for each type in a delivery."""
        for ack in acks:
            found: list[Settling] = []
            traceparent = ""
            for kind in sorted(set[int]().union(*(batch.types for batch in ack.batches)) - {ACK_GAP}):
                span = None
                if self.spans is not None:
                    span = self._settle_span(self.spans, ack.delivered, kind, offsets_with(ack.batches, kind))
                found.append(Settling(_NAMES[kind], span))
                if span is not None and (context := span.get_span_context()).trace_flags.sampled:
                    traceparent = traceparent or traceparent_of(context)
            if found:
                ack.trace = AckTrace(found, traceparent)

    def _settle_span(self, spans: Spans, part: Delivered, kind: int, ranges: _Ranges) -> Span | None:
        """Begin one span: the child of the job's span if it is for a single job, else of the poll's, linked to the jobs
        or to what the records carry. None if neither a job nor the poll is sampled, so that the sampler is not asked
        once more."""
        count = sum(last - first + 1 for first, last in ranges)
        trace = part.trace or _UNTRACED
        known = list(islice(_jobs(trace.jobs, ranges), LINKS_MAX)) if trace.jobs else []
        alone = known[0] if count == 1 and known else None
        if trace.poll is None and not known:
            return None
        attributes = self._settle_attributes(part, kind, ranges, count)
        above = alone or trace.poll
        span = spans.settled(f"{_NAMES[kind]} {part.topic}", attributes, above, () if alone else known)
        if span.is_recording() and not known:
            for context in islice(_contexts(part, ranges), LINKS_MAX):
                span.add_link(context)
        return span

    def _settle_attributes(self, part: Delivered, kind: int, ranges: _Ranges, count: int) -> Attributes:
        found = self.attributes(_NAMES[kind], "settle", part.topic, part.id_partition.partition, count)
        found["sharegroups.acknowledge_type"] = ACK_NAMES[kind]
        if count == 1:
            found["messaging.kafka.offset"] = ranges[0][0]
        return found

    def settled(self, ack: PendingAck, error: KafkaError | None) -> None:
        """End the spans of acknowledgements, which have their outcome."""
        trace, ack.trace = ack.trace, None
        if trace is None:
            return
        seconds = time.monotonic() - trace.began_s
        for one in trace.settling:
            self.took(one.operation, "settle", ack.delivered.topic, seconds, error)
            if one.span is not None:
                end(one.span, error)


def _jobs(jobs: Mapping[int, SpanContext], ranges: _Ranges) -> Iterator[SpanContext]:
    """Return the spans of these offsets' jobs."""
    for first, last in ranges:
        for offset in range(first, last + 1):
            if (job := jobs.get(offset)) is not None:
                yield job


def _contexts(part: Delivered, ranges: _Ranges | None) -> Iterator[SpanContext]:
    """Return the contexts that a delivery's records carry, only of these offsets if given, each once: those of a batch
    are often the same."""
    seen: set[int] = set()
    for number, start, stop, _ in part.slices:
        batch = part.batches[number]
        if batch.error is not None:
            continue
        base, records = batch.base_offset, batch.records
        for first, last in ((base + start, base + stop - 1),) if ranges is None else ranges:
            for index in range(max(first - base, start), min(last + 1 - base, stop)):
                headers = records[index].headers
                found = context_in((header.key, header.value) for header in headers) if headers else None
                if found is not None and found.span_id not in seen:
                    seen.add(found.span_id)
                    yield found
