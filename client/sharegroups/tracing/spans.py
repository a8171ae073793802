"""Begins spans with OpenTelemetry's API. It imports that API, so `Instruments` imports it only once the program has set
a provider (CL-171); what runs for each record then imports nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import Token

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
    use_span,
)

_Attributes = Mapping[str, str | int]
#: The parent of what belongs to no caller of this process.
_NO_CALLER = Context()


class Spans:
    """The spans of one client, each begun with its kind and its place in a trace."""

    def __init__(self, tracer: Tracer) -> None:
        self._start = tracer.start_span

    # Begin one.

    def sent_one(self, name: str, attributes: _Attributes, linked: SpanContext | None = None) -> Span:
        """Begin the span of one record that is produced: the child of the current span."""
        links = [] if linked is None else [Link(linked)]
        return self._start(name, kind=SpanKind.PRODUCER, attributes=attributes, links=links)

    def sent_batch(self, name: str, attributes: _Attributes, contexts: Iterable[SpanContext], *, is_call: bool) -> Span:
        """Begin the span of a batch, which has no parent. `is_call`: its records have contexts of their own."""
        kind = SpanKind.CLIENT if is_call else SpanKind.PRODUCER
        return self._start(name, _NO_CALLER, kind=kind, attributes=attributes, links=[Link(one) for one in contexts])

    def polled(self, name: str, attributes: _Attributes, began_ns: int) -> Span:
        """Begin the span of a poll, which started earlier: the child of the current span."""
        return self._start(name, kind=SpanKind.CLIENT, attributes=attributes, start_time=began_ns)

    def settled(
        self, name: str, attributes: _Attributes, above: SpanContext | None, contexts: Iterable[SpanContext]
    ) -> Span:
        """Begin the span of acknowledgements. `above`: its parent."""
        parent = _NO_CALLER if above is None else _under(above)
        links = [Link(one) for one in contexts]
        return self._start(name, parent, kind=SpanKind.CLIENT, attributes=attributes, links=links)

    def job(
        self, name: str, attributes: _Attributes, sent: SpanContext | None, *, continues: bool
    ) -> tuple[Span, Token[Context]]:
        """Begin the span of a job and make it the current one. `sent`: what its record carries: the span's parent if it
        `continues` that trace, else a link. Returns the span, and what `leave` needs."""
        parent = _under(sent) if sent is not None and continues else _NO_CALLER
        links = [Link(sent)] if sent is not None and not continues else ()
        span = self._start(name, parent, kind=SpanKind.CONSUMER, attributes=attributes, links=links)
        return span, attach(set_span_in_context(span, parent))

    # What is current in this thread or task.

    #: Make what was current before a job's span the current one again.
    leave = staticmethod(detach)
    #: Return all that is current, empty for nothing.
    current = staticmethod(get_current)

    @staticmethod
    def current_span() -> SpanContext:
        """Return the current span's context; an invalid one if there is no span."""
        return get_current_span().get_span_context()

    @staticmethod
    def within(span: Span) -> AbstractContextManager[Span]:
        """Make a span the current one inside the block, whose exceptions are not noted in it."""
        return use_span(span, record_exception=False, set_status_on_exception=False)

    @staticmethod
    def beside(context: SpanContext) -> AbstractContextManager[Span]:
        """Make a span that has ended, or runs elsewhere, the current one inside the block."""
        return use_span(NonRecordingSpan(context))


def fail(span: Span, error_type: str, why: str) -> None:
    """Note in a span that it has failed."""
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR, why))


def _under(above: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(above), _NO_CALLER)
