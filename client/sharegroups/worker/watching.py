"""What happens around a handler besides running it: hooks, and the span and the metric of the job (CL-174, CL-177).

A `JobWatch` is pickled for handler processes: hooks and spans are made where the handler runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from kip932.telemetry import context_in, own_context_of, traceparent_of
from sharegroups.tracing.instruments import Attributes, Instruments, error_type
from sharegroups.worker.core.policy import DONE, JobNote, Kind, Verdict
from sharegroups.worker.hooks import Hooks, JobInterrupted

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from sharegroups.tracing.spans import Spans


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
    `is_needed`: whether there is a hook, or OpenTelemetry is set up in this process. It is checked for each job; while
    it is False, nothing else here is called.
    """

    def __init__(self, hooks: Hooks, enabled: bool, client_id: str, group_id: str, continues: bool) -> None:
        self.hooks = hooks
        self._arguments = enabled, client_id, group_id
        self._continues = continues
        self._begin()

    def _begin(self) -> None:
        self._instruments = Instruments(*self._arguments)
        self._measured = WatchedJob(self, None)
        self._has_hooks = any(self.hooks.has(event) for event in ("before", "failed", "after"))
        self.is_needed = self._has_hooks or self._instruments.on

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks, self._arguments, self._continues

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.hooks, self._arguments, self._continues = state
        self._begin()

    def refresh(self) -> None:
        """Take up the providers that the program has set by now; called once per poll, in a process of handlers once
        per job."""
        self._instruments.refresh()
        self.is_needed = self._has_hooks or self._instruments.on

    # Where the handler runs.

    def begin(self, info: Callable[[], WatchedRecord]) -> WatchedJob:
        """Begin the job of this thread or task, before its handler is called. The job's end must be noted in the same
        thread or task. `info` is called only for a hook or a span."""
        spans = self._instruments.spans
        if spans is None and not self._has_hooks:
            return self._measured
        job = WatchedJob(self, info())
        if spans is not None:
            job.begin_span(spans, continues=self._continues)
        if self._has_hooks:
            self.hooks.run("before", job.info)
        return job

    def attributes_of(self, info: WatchedRecord) -> Attributes:
        """Return the attributes of a job's span."""
        found = self._instruments.attributes("process", "process", info.topic, info.partition)
        found["messaging.kafka.offset"] = info.offset
        found["sharegroups.delivery_count"] = info.delivery_count
        return found

    # In the worker's own process.

    def ended(self, topic: str, verdict: Verdict, seconds: float) -> None:
        """Measure a job that has ended, wherever its handler ran."""
        kind = ""
        if verdict.kind is Kind.FAILED or verdict.kind is Kind.REJECTED:
            note = verdict.note
            kind = note.error_type if note is not None and note.error_type else JobInterrupted.__name__
        self._instruments.processed(topic, seconds, kind)

    def failed_elsewhere(self, info: Callable[[], WatchedRecord], verdict: Verdict) -> None:
        """Run the `failed` hooks for a job that failed, unless they have got its exception. `info` is called only for
        a hook."""
        is_reported = verdict.note is not None and verdict.note.is_reported
        if self._has_hooks and not is_reported and verdict.kind in (Kind.FAILED, Kind.REJECTED):
            self.hooks.run("failed", info(), JobInterrupted(verdict.why))

    @contextmanager
    def span_of(self, verdict: Verdict) -> Iterator[None]:
        """Make the job's span the current one, so that log lines about the job have its ids."""
        spans = self._instruments.spans
        if spans is None or verdict.note is None or not verdict.note.traceparent:
            yield
            return
        with spans.beside(own_context_of(verdict.note.traceparent)):
            yield


class WatchedJob:
    """One job while its handler runs. Call `done` or `failed` once.

    `info` is None for a job that is only measured: with neither hooks nor a span there is nothing to keep of it.
    """

    __slots__ = ("_span", "_spans", "_token", "_watch", "info")

    def __init__(self, watch: JobWatch, info: WatchedRecord | None) -> None:
        self._watch = watch
        self.info = info
        self._spans: Spans | None = None
        self._span: Span | None = None
        self._token: Token[Context] | None = None

    def begin_span(self, spans: Spans, *, continues: bool) -> None:
        """Begin the job's span and make it the current one."""
        info = self.info
        assert info is not None
        sent = context_in(info.headers) if info.headers else None
        attributes = self._watch.attributes_of(info)
        self._spans = spans
        self._span, self._token = spans.job(f"process {info.topic}", attributes, sent, continues=continues)

    def done(self) -> Verdict:
        """Note that the handler returned."""
        return DONE if self.info is None else self._over(DONE, None, is_reported=False)

    def failed(self, verdict: Verdict, error: BaseException) -> Verdict:
        """Note that it raised. Returns the verdict with a note about it. Not every exception is a failure, and a
        cancellation is one only if the worker takes it so."""
        cancelled = type(error).__name__ == "CancelledError"
        fails = verdict.kind in (Kind.FAILED, Kind.REJECTED)
        if fails and not cancelled:
            self._run("failed", error.__cause__ if verdict.is_undecodable else error)
        return self._over(verdict, error if fails else None, is_reported=fails and not cancelled)

    def _over(self, verdict: Verdict, error: BaseException | None, *, is_reported: bool) -> Verdict:
        self._run("after")
        traceparent = ""
        if self._span is not None and self._spans is not None and self._token is not None:
            self._spans.leave(self._token)
            if self._span.is_recording():
                traceparent = traceparent_of(self._span.get_span_context())
                if error is not None:
                    _describe(self._span, verdict, error)
            self._span.end()
        kind = "" if error is None else error_type(error)
        if not traceparent and not kind and not is_reported:
            return verdict
        note = JobNote(is_reported, traceparent, kind)
        return Verdict(Kind.DONE, note=note) if verdict is DONE else replace(verdict, note=note)

    def _run(self, event: str, *arguments: object) -> None:
        if self.info is not None:
            self._watch.hooks.run(event, self.info, *arguments)


#: Jobs without hooks and without tracing.
UNWATCHED: Final = JobWatch(Hooks(), False, "", "", False)


def _describe(span: Span, verdict: Verdict, error: BaseException) -> None:
    """Say in a job's span why it failed. The exception's own methods may raise."""
    from sharegroups.tracing.spans import fail  # noqa: PLC0415 - see Instruments.refresh

    fail(span, error_type(error), verdict.why)
    try:
        span.record_exception(error)
    except BaseException as problem:
        span.add_event("exception", {"exception.type": error_type(error), "exception.message": error_type(problem)})
