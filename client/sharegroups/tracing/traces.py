"""What deliveries and acknowledgements carry for the tracing of their consumer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext


class DeliveryTrace:
    """That a delivery was counted, the span of the poll that returned it, if that is sampled, and the spans of its
    records' jobs, by offset."""

    __slots__ = ("jobs", "poll")

    def __init__(self) -> None:
        self.poll: SpanContext | None = None
        self.jobs: dict[int, SpanContext] = {}


class Settling(NamedTuple):
    """One operation on the records of a delivery, such as `ack`, and its span."""

    operation: str
    span: Span | None


class AckTrace:
    """What acknowledgements are traced with until their outcome. `traceparent`: what their request says of its sender;
    empty if nothing is sampled."""

    __slots__ = ("began_s", "settling", "traceparent")

    def __init__(self, settling: Sequence[Settling], traceparent: str) -> None:
        self.began_s = time.monotonic()
        self.settling = settling
        self.traceparent = traceparent
