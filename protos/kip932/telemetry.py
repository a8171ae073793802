"""The seam to OpenTelemetry's API: whether the program has configured it, and W3C trace contexts as bytes.

Nothing here imports OpenTelemetry until the program itself has. A program that sets a provider has imported the API, so
one look into `sys.modules` shows that there is none (CL-171).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import SpanContext, Tracer

#: The keys of record headers, and of call metadata, that have a context (W3C Trace Context).
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
#: Longer ones are ignored, each by itself: that of version 00 has 55 bytes, and W3C asks for 512 of the other.
_TRACEPARENT_BYTES_MAX: Final = 128
_TRACESTATE_BYTES_MAX: Final = 512
#: How many parsed contexts are kept: the records of a batch often carry the same one.
_PARSED_MAX: Final = 256
#: About what a traceparent takes in a stored record, in bytes.
CONTEXT_BYTES: Final = 80


def tracer(name: str) -> Tracer | None:
    """Return the tracer of that name; None unless the program has set a provider of spans."""
    api = sys.modules.get("opentelemetry.trace")
    get = getattr(api, "get_tracer_provider", None)
    provider = None if get is None else get()
    # The API's own providers, the proxy before one is set and the no-op, record nothing.
    if provider is None or type(provider).__module__.startswith("opentelemetry.trace"):
        return None
    found: Tracer = provider.get_tracer(name)
    return found


def meter(name: str) -> Meter | None:
    """Return the meter of that name; None unless the program has set a provider of metrics."""
    api = sys.modules.get("opentelemetry.metrics")
    get = getattr(api, "get_meter_provider", None)
    provider = None if get is None else get()
    if provider is None or type(provider).__module__.startswith("opentelemetry.metrics"):
        return None
    found: Meter = provider.get_meter(name)
    return found


def context_of(traceparent: bytes | str | None, tracestate: bytes | str | None = None) -> SpanContext | None:
    """Return the context that a traceparent names; None for a malformed one (CL-176).

    A malformed tracestate is dropped. Call it only once OpenTelemetry is set up.
    """
    parent = _text(traceparent, _TRACEPARENT_BYTES_MAX)
    return None if parent is None else _parsed(parent, _text(tracestate, _TRACESTATE_BYTES_MAX))


@lru_cache(_PARSED_MAX)
def _parsed(traceparent: str, tracestate: str | None) -> SpanContext | None:
    from opentelemetry.context import Context  # noqa: PLC0415 - see above
    from opentelemetry.trace import get_current_span  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    carrier = {TRACEPARENT: traceparent}
    if tracestate is not None:
        carrier[TRACESTATE] = tracestate
    found = get_current_span(TraceContextTextMapPropagator().extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


def context_in(headers: Iterable[tuple[str, bytes | None]]) -> SpanContext | None:
    """Return the context in a record's headers, of several the last one's; None without a well-formed one."""
    parent = state = None
    for name, value in headers:
        if name == TRACEPARENT:
            parent = value
        elif name == TRACESTATE:
            state = value
    return None if parent is None else context_of(parent, state)


def traceparent_of(context: SpanContext) -> str:
    """Return the traceparent that names a context."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def own_context_of(traceparent: str) -> SpanContext:
    """Return the context that `traceparent_of` has named in this process or one of its own."""
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415 - see above

    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def headers_of(context: SpanContext) -> list[tuple[str, bytes | None]]:
    """Return the headers that carry a context: traceparent, and tracestate if it has one."""
    found: list[tuple[str, bytes | None]] = [(TRACEPARENT, traceparent_of(context).encode())]
    if context.trace_state:
        found.append((TRACESTATE, context.trace_state.to_header().encode()))
    return found


def without_context(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return the headers but those of a context."""
    return [pair for pair in headers if pair[0] not in (TRACEPARENT, TRACESTATE)]


def _text(value: bytes | str | None, most: int) -> str | None:
    """Return a header's value as text; None if it is absent, longer than `most` or not ASCII."""
    if value is None or len(value) > most or not value.isascii():
        return None
    return value.decode() if isinstance(value, bytes) else value
