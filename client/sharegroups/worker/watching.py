"""What happens around a handler besides running it: hooks, and the span and the metric of the job (CL-174, CL-177).

A `JobWatch` is pickled for handler processes: hooks and spans are made where the handler runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from kip932.telemetry import context_in, context_of, traceparent_of
from sharegroups.tracing.instruments import Attributes, Instruments, error_type
from sharegroups.worker.core.policy import DONE, JobNote, Kind, Verdict
from sharegroups.worker.hooks import Hooks, JobInterrupted

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span


class WatchedRecord(Protocol):
    """The job that hooks get, a JobInfo; what a span says of it."""

    topic: str
    partition: int
    offset: int
    delivery_count: int
    headers: list[tuple[str, bytes | None]]


class JobWatch:
    """The hooks and the tracing of a worker's jobs.

    `continues`: whether a job's span is the child of the span that sent its record, and not only linked to it.
    """

    def __init__(self, hooks: Hooks, enabled: bool, client_id: str, group_id: str, continues: bool) -> None:
        self.hooks = hooks
        self._arguments = enabled, client_id, group_id
        self._continues = continues
        self._instruments = Instruments(*self._arguments)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks, self._arguments, self._continues

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.hooks, self._arguments, self._continues = state
        self._instruments = Instruments(*self._arguments)

    @property
    def is_needed(self) -> bool:
        """Whether there is a hook, or OpenTelemetry is set up in this process."""
        return bool(self.hooks) or self._instruments.on

    # Where the handler runs.

    def begin(self, info: WatchedRecord) -> WatchedJob:
        """Begin the job of this thread or task, before its handler is called. Its end must be noted in the same one."""
        instruments = self._instruments
        instruments.refresh()
        job = WatchedJob(self, info)
        if instruments.tracer is not None:
            from opentelemetry.context import Context, attach  # noqa: PLC0415 - see kip932.telemetry
            from opentelemetry.trace import (  # noqa: PLC0415
                Link,
                NonRecordingSpan,
                SpanKind,
                set_span_in_context,
            )

            sent = context_in(info.headers) if info.headers else None
            parent = Context()  # a job belongs to no caller of this process
            if sent is not None and self._continues:
                parent = set_span_in_context(NonRecordingSpan(sent), parent)
            job.span = instruments.tracer.start_span(
                f"process {info.topic}",
                parent,
                kind=SpanKind.CONSUMER,
                attributes=self._attributes(info),
                links=[Link(sent)] if sent is not None and not self._continues else (),
            )
            job.token = attach(set_span_in_context(job.span, parent))
        self.hooks.run("before", info)
        return job

    def _attributes(self, info: WatchedRecord) -> Attributes:
        found = self._instruments.attributes("process", "process", info.topic, info.partition)
        found["messaging.kafka.offset"] = info.offset
        found["sharegroups.delivery_count"] = info.delivery_count
        return found

    # In the worker's own process.

    def ended(self, info: WatchedRecord, verdict: Verdict, seconds: float) -> None:
        """Note a job that has ended, wherever its handler ran."""
        note = verdict.note
        failed = verdict.kind in (Kind.FAILED, Kind.REJECTED)
        if failed and (note is None or not note.is_reported) and self.hooks:
            self.hooks.run("failed", info, JobInterrupted(verdict.why))
        if self._instruments.on:
            kind = note.error_type if note is not None and note.error_type else JobInterrupted.__name__
            self._instruments.processed(info.topic, seconds, kind if failed else "")

    @contextmanager
    def span_of(self, verdict: Verdict) -> Iterator[None]:
        """Make the job's span the current one, so that log lines about the job have its ids."""
        context = None
        if verdict.note is not None and verdict.note.traceparent and self._instruments.tracer is not None:
            context = context_of(verdict.note.traceparent)
        if context is None:
            yield
            return
        from opentelemetry.trace import NonRecordingSpan, use_span  # noqa: PLC0415 - see kip932.telemetry

        with use_span(NonRecordingSpan(context)):
            yield


class WatchedJob:
    """One job while its handler runs. Call `done` or `failed` once."""

    __slots__ = ("_info", "_watch", "span", "token")

    def __init__(self, watch: JobWatch, info: WatchedRecord) -> None:
        self._watch = watch
        self._info = info
        self.span: Span | None = None
        self.token: Token[Context] | None = None

    def done(self) -> Verdict:
        """Note that the handler returned."""
        return self._over(DONE, None, is_reported=False)

    def failed(self, verdict: Verdict, error: BaseException) -> Verdict:
        """Note that it raised. Returns the verdict with a note about it. Not every exception is a failure, and a
        cancellation is one only if the worker takes it so."""
        cancelled = type(error).__name__ == "CancelledError"
        fails = verdict.kind in (Kind.FAILED, Kind.REJECTED)
        if fails and not cancelled:
            self._watch.hooks.run("failed", self._info, error.__cause__ if verdict.is_undecodable else error)
        return self._over(verdict, error if fails else None, is_reported=fails and not cancelled)

    def _over(self, verdict: Verdict, error: BaseException | None, *, is_reported: bool) -> Verdict:
        self._watch.hooks.run("after", self._info)
        traceparent = ""
        if self.span is not None and self.token is not None:
            from opentelemetry.context import detach  # noqa: PLC0415 - see kip932.telemetry

            detach(self.token)
            if self.span.is_recording():
                traceparent = traceparent_of(self.span.get_span_context())
                if error is not None:
                    _describe(self.span, verdict, error)
            self.span.end()
        kind = "" if error is None else error_type(error)
        if not traceparent and not kind and not is_reported:
            return verdict
        return replace(verdict, note=JobNote(is_reported, traceparent, kind))


#: Jobs without hooks and without tracing.
UNWATCHED: Final = JobWatch(Hooks(), False, "", "", False)


def _describe(span: Span, verdict: Verdict, error: BaseException) -> None:
    """Say in a job's span why it failed. The exception's own methods may raise."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - see kip932.telemetry

    span.set_attribute("error.type", error_type(error))
    span.set_status(Status(StatusCode.ERROR, verdict.why))
    try:
        span.record_exception(error)
    except BaseException as problem:
        span.add_event("exception", {"exception.type": error_type(error), "exception.message": error_type(problem)})
