"""OpenTelemetry set up for one test, as a program would set it up, with what it collects in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import _internal as metrics_state
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import SpanContext
from opentelemetry.util._once import Once

from shard_runtime.tracing import tracing


class _Open(SpanProcessor):
    """The recorded spans that have begun and not ended."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.begun = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.begun += 1
        self.names[_number(span)] = span.name

    def on_end(self, span: ReadableSpan) -> None:
        del self.names[_number(span)]


def _number(span: ReadableSpan) -> int:
    return context(span).span_id


class Collected:
    """The spans and metrics that ended so far."""

    def __init__(self, sampler: Sampler) -> None:
        self._spans = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.open = _Open()
        self.provider.add_span_processor(self.open)
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def set_up(self, *, spans: bool = True) -> None:
        if spans:
            trace.set_tracer_provider(self.provider)
        metrics.set_meter_provider(self.meters)

    def tracer(self) -> trace.Tracer:
        return self.provider.get_tracer("program")

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if not name or span.name == name]

    def unended(self) -> list[str]:
        """Return the names of the spans that have begun and not ended; those that ended did so once."""
        assert self.open.begun == len(self._spans.get_finished_spans()) + len(self.open.names)
        return sorted(self.open.names.values())

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def points(self, name: str) -> list[Any]:
        """Return a metric's data points."""
        data = self._reader.get_metrics_data()
        scopes = [] if data is None else [scope for one in data.resource_metrics for scope in one.scope_metrics]
        found = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
        return [point for metric in found for point in metric.data.data_points]


@contextmanager
def telemetry(sampler: Sampler = ALWAYS_ON, *, set_up: bool = True) -> Iterator[Collected]:
    """Inside the block, OpenTelemetry is set up, or can be with `set_up`. Afterwards the process has no provider."""
    found = Collected(sampler)
    if set_up:
        found.set_up()
    try:
        yield found
    finally:  # the API lets a process set its providers once
        trace._TRACER_PROVIDER, trace._TRACER_PROVIDER_SET_ONCE = None, Once()
        metrics_state._METER_PROVIDER, metrics_state._METER_PROVIDER_SET_ONCE = None, Once()
        metrics_state._PROXY_METER_PROVIDER = metrics_state._ProxyMeterProvider()
        found.provider.shutdown()
        found.meters.shutdown()


@contextmanager
def node_telemetry() -> Iterator[Collected]:
    """As `telemetry`, and this process's services record spans."""
    with telemetry() as found:
        tracing.refresh()
        yield found
    tracing.refresh()


def context(span: ReadableSpan) -> SpanContext:
    """Return a span's context, which every ended span has."""
    found = span.get_span_context()
    assert found is not None
    return found


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def linked(span: ReadableSpan) -> set[int]:
    """Return the ids of the spans that a span is linked to."""
    return {link.context.span_id for link in span.links}
