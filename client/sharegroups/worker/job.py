"""Jobs: what `@worker.job` registers for a topic, and the individual records that its handler processes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kip932.printable import printable
from sharegroups.worker.core.policy import (
    DONE,
    Kind,
    Outcome,
    Retry,
    Verdict,
    class_name,
    described,
    reason_of,
    shortened,
    verdict_of,
)
from sharegroups.worker.watching import JobWatch

if TYPE_CHECKING:
    from sharegroups.consuming.lock_renewals import Kept
    from sharegroups.messages import Message

#: Exit status of a handler process if importing the program calls `Worker.run`.
RUN_AT_IMPORT_STATUS: Final = 79


@dataclass(frozen=True)
class JobSpec:
    """The arguments of `@worker.job`, and where its handler runs. `timeout` is in seconds. Pickled for handler
    processes."""

    topic: str
    handler: Callable[..., Any]
    value: Callable[[bytes], Any] | None
    timeout: float | None
    retry: Retry
    outcomes: Mapping[type[BaseException], Outcome]
    is_async: bool
    in_process: bool
    #: What happens around it besides, if that is needed; None for nothing.
    watch: JobWatch | None = None

    @property
    def name(self) -> str:
        """The handler's name, for messages."""
        return getattr(self.handler, "__qualname__", repr(self.handler))


class Undecodable(Exception):  # noqa: N818 - never raised to a user
    """The value of a record could not be decoded; its text says why."""


@dataclass(slots=True)
class JobInfo:
    """The job that a handler is working on: its record's position and headers, and whether its lock is lost."""

    topic: str
    partition: int
    offset: int
    delivery_count: int
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    _job: Job | None = field(default=None, repr=False)

    @classmethod
    def of(cls, job: Job) -> JobInfo:
        """Return the info of a job in this process, which knows whether its lock is lost."""
        message = job.message
        place = (message.topic(), message.partition(), message.offset(), job.delivery_count)
        return cls(*place, message.key(), message.headers(), job)

    @property
    def lost(self) -> bool:
        """True if the lock was lost: another worker runs this job, or soon will. Always False for a handler that
        runs in a separate process."""
        return self._job is not None and self._job.is_lost


class Job:
    """A record that this worker holds. `waits_since`: when it arrived; `kept`: keeps its lock alive;
    `delivery_count`: without the deliveries that came while it was running and were taken back (CL-126a)."""

    __slots__ = ("delivery_count", "kept", "message", "spec", "waits_since")

    def __init__(self, spec: JobSpec, message: Message, kept: Kept, waits_since: float) -> None:
        self.spec = spec
        self.message = message
        self.kept = kept
        self.waits_since = waits_since
        self.delivery_count = message.delivery_count()

    def deliver(self, message: Message, kept: Kept) -> None:
        """Replace the delivery that is acknowledged when the job ends, because the record was delivered again."""
        self.message = message
        self.kept = kept
        self.delivery_count = message.delivery_count()

    def continue_delivery(self, message: Message) -> None:
        """Note that the leader has taken this delivery back, because the job was running before it."""
        if self.message is message:
            self.delivery_count -= 1

    @property
    def is_lost(self) -> bool:
        """True if the record's lock was lost and the record has not been redelivered here since. May be called in any
        thread."""
        return self.kept.is_lost(self.message)

    @property
    def place(self) -> str:
        """Topic, partition and offset, for messages."""
        return f"{self.message.topic()}-{self.message.partition()}@{self.message.offset()}"


_current: ContextVar[Callable[[], JobInfo]] = ContextVar("sharegroups_job")


def current_job() -> JobInfo:
    """Return the current job's topic, partition, offset, delivery count, key, headers, and whether its lock is lost.

    Raises LookupError outside of a handler.
    """
    try:
        make = _current.get()
    except LookupError:
        raise LookupError(
            "current_job() was called outside of a job's handler, or in a thread that one started"
        ) from None
    return make()


def enter(make: Callable[[], JobInfo]) -> None:
    """Set the current job of this thread or task. `make` is called only when the handler asks for the info."""
    _current.set(make)


def arguments_of(spec: JobSpec, value: bytes | None) -> Any:
    """Return the handler's argument. Raises Undecodable."""
    if spec.value is None:
        return value
    if value is None:
        raise Undecodable("the record has no value (a tombstone)")
    try:
        return spec.value(value)
    except Exception as error:
        raise Undecodable(described(error)) from error


def run_blocking(spec: JobSpec, value: bytes | None) -> Verdict:
    """Decode the value and call a blocking handler; any exception becomes a verdict."""
    watch = spec.watch
    watched = None if watch is None or not watch.is_needed else watch.begin(current_job)
    try:
        spec.handler(arguments_of(spec, value))
    except BaseException as error:
        verdict = failed(spec, error)
        return verdict if watched is None else watched.failed(verdict, error)
    return DONE if watched is None else watched.done()


async def run_async(spec: JobSpec, value: bytes | None) -> Verdict:
    """Decode the value and call an asyncio handler; any exception becomes a verdict."""
    watch = spec.watch
    watched = None if watch is None or not watch.is_needed else watch.begin(current_job)
    try:
        await spec.handler(arguments_of(spec, value))
    except BaseException as error:
        verdict = failed(spec, error)
        return verdict if watched is None else watched.failed(verdict, error)
    return DONE if watched is None else watched.done()


def failed(spec: JobSpec, error: BaseException) -> Verdict:
    """Return the verdict on an error from decoding or from the handler. The verdict on an undecodable value is
    REJECTED.

    Never raises, even if the exception's own methods do (CL-148).
    """
    try:
        return _verdict(spec, error)
    except BaseException as problem:
        return Verdict(Kind.FAILED, f"{class_name(error)}: (it cannot be described: {class_name(problem)})")


def _verdict(spec: JobSpec, error: BaseException) -> Verdict:
    if isinstance(error, Undecodable):
        decoder = getattr(spec.value, "__qualname__", repr(spec.value))
        return Verdict(Kind.REJECTED, f"the value cannot be decoded by {decoder}: {error}", is_undecodable=True)
    trace, reason, place = _traced(error)
    return replace(verdict_of(error, spec.outcomes, trace, reason), place=place)


#: How many lines of a long traceback are shown: half from its start, half from its end.
_TRACE_MAX: Final = 40
#: The most characters that are logged of one line of a traceback, and that are read of a message for the reason.
_LINE_MAX: Final = 1_000
_READ_MAX: Final = 8_000


def _traced(error: BaseException) -> tuple[str, str, str]:
    """Return the traceback, starting at the handler's own frame, the exception as a reason (CL-165), and the line of
    the program that raised it. What is long is cut (CL-180)."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        found = traceback.TracebackException(type(error), error, trace, compact=True)
        text, own = "".join(found.format()), list(found.format_exception_only())
    except BaseException as problem:
        frames = "".join(traceback.format_tb(trace))
        text, own = f"{frames}(the rest cannot be formatted: {class_name(problem)})", [described(error)]
    # Class and message, and then the notes; the lines of the source that a SyntaxError has before them are indented.
    first = next((part for part in own if not part.startswith(" ")), own[0])
    rest = text.removesuffix("".join(own)) + "".join(part for part in own if part is not first)
    reason = reason_of(" ".join(first[:_READ_MAX].split()), rest.rstrip().rsplit("\n", _TRACE_MAX)[-_TRACE_MAX:])
    return _logged(text.rstrip()), reason, _raised_at(trace)


def _logged(text: str) -> str:
    """Return a traceback as it is logged. It may be of many millions of lines: those in the middle are not even
    split."""
    half, left_out = _TRACE_MAX // 2, text.count("\n") + 1 - _TRACE_MAX
    lines = text.split("\n") if left_out <= 0 else text.split("\n", half)[:half]
    if left_out > 0:
        lines = [*lines, f"  … ({left_out:,} lines left out)", *text.rsplit("\n", half)[-half:]]
    return "\n".join(printable(shortened(line, _LINE_MAX)) for line in lines)


def _raised_at(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
