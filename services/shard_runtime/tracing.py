"""Spans of a node's work for requests that a sampled span has sent (CM-216).

A node's work is passed on between tasks, and one flush serves many requests, so what belongs to a request is never the
surrounding task or timer. A caller marks the span of its request as `current` for one call without a wait; what is
queued in that call remembers `current`. Off, `current` is always None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kip932.telemetry import context_of, tracer

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

T = TypeVar("T")

_NAME: Final = "sharegroups.node"
#: The SDK's own limit for the links of a span.
_LINKS_MAX: Final = 128


class Tracing:
    """The tracing of one process. `on`: whether OpenTelemetry is set up; `refresh` looks again."""

    __slots__ = ("_tracer", "current", "on")

    def __init__(self) -> None:
        self._tracer: Tracer | None = None
        self.on = False
        #: The span of the request for which the running call works.
        self.current: Span | None = None

    def refresh(self) -> None:
        """Look whether OpenTelemetry is set up; called as a node starts."""
        self._tracer = tracer(_NAME)
        self.on = self._tracer is not None

    def begin(self, traceparent: str, method: str) -> Span | None:
        """Begin the span of a request for `package.Service/Method`; None unless a sampled span has sent it."""
        if self._tracer is None:
            return None
        sender = context_of(traceparent)
        if sender is None or not sender.trace_flags.sampled:
            return None
        from opentelemetry.context import Context  # noqa: PLC0415 - see kip932.telemetry
        from opentelemetry.trace import NonRecordingSpan, SpanKind, set_span_in_context  # noqa: PLC0415

        return self._tracer.start_span(
            method,
            set_span_in_context(NonRecordingSpan(sender), Context()),
            kind=SpanKind.SERVER,
            attributes={"rpc.system.name": "grpc", "rpc.method": method},
        )

    def within(self, span: Span | None, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, which must not wait, with this span as the current one."""
        before, self.current = self.current, span
        try:
            return function(*arguments)
        finally:
            self.current = before

    @contextmanager
    def step(self, name: str, parent: Span) -> Iterator[Span]:
        """A span for a part of a request's work, inside the block. It is not made the current one."""
        assert self._tracer is not None, "there is a span"
        from opentelemetry.context import Context  # noqa: PLC0415 - see kip932.telemetry
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

        span = self._tracer.start_span(name, set_span_in_context(parent, Context()))
        try:
            yield span
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()

    @contextmanager
    def append(self, spans: Iterable[Span | None], shard: str, entries: int) -> Iterator[None]:
        """A span for an append to the store, inside the block, if one of the requests that it serves is traced."""
        parents = dict.fromkeys(span for span in spans if span is not None) if self.on else {}
        if not parents:
            yield
            return
        attributes: dict[str, str | int] = {
            "db.system.name": "redis",
            "db.operation.name": "XADD",
            "db.operation.batch.size": entries,
            "sharegroups.shard": shard,
        }
        with self._shared("append", "CLIENT", [span.get_span_context() for span in parents], attributes):
            yield

    @contextmanager
    def letters(
        self, contexts: Sequence[SpanContext | None], topic: str, partition: int, group: str
    ) -> Iterator[Span | None]:
        """A span for the writing of dead letters, inside the block, if one of their records has a sampled context.
        `contexts`: that of each record, None for one without."""
        known = [one for one in contexts if one is not None and one.trace_flags.sampled]
        sampled = {(one.trace_id, one.span_id): one for one in known}
        if not sampled:
            yield None
            return
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
            "messaging.consumer.group.name": group,
        }
        if len(contexts) != 1:
            attributes["messaging.batch.message_count"] = len(contexts)
        with self._shared(f"send {topic}", "PRODUCER", list(sampled.values()), attributes) as span:
            yield span

    @contextmanager
    def _shared(
        self, name: str, kind: str, above: Sequence[SpanContext], attributes: Mapping[str, str | int]
    ) -> Iterator[Span]:
        """A span for work that several spans have caused: the child of the first, linked to the others."""
        assert self._tracer is not None, "there is a span"
        from opentelemetry.context import Context  # noqa: PLC0415 - see kip932.telemetry
        from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, set_span_in_context  # noqa: PLC0415

        span = self._tracer.start_span(
            name,
            set_span_in_context(NonRecordingSpan(above[0]), Context()),
            kind=SpanKind[kind],
            attributes=attributes,
            links=[Link(other) for other in above[1 : _LINKS_MAX + 1]],
        )
        try:
            yield span
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()

    def ids(self) -> dict[str, str]:
        """Return the ids of the current span, for a log line: the node's, else one that other code made current."""
        if not self.on:
            return {}
        from opentelemetry.trace import get_current_span  # noqa: PLC0415 - see kip932.telemetry

        context = (self.current or get_current_span()).get_span_context()
        if not context.is_valid:
            return {}
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def failed(span: Span, error: BaseException) -> None:
    """Say in a span that its work failed."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - see kip932.telemetry

    span.set_attribute("error.type", getattr(error, "name", "") or type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def abandoned(span: Span) -> None:
    """End the span of a request whose stream ended before it had an outcome. Its work may go on."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - see kip932.telemetry

    span.set_attribute("error.type", "CANCELLED")
    span.set_status(Status(StatusCode.ERROR, "its stream ended before it was answered"))
    span.end()


#: The tracing of this process.
tracing: Final = Tracing()
