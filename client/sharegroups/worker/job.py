"""A job: what was registered for a topic, and one record of it that a handler works on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kip932.printable import printable
from sharegroups.worker.core.policy import DONE, Kind, Outcome, Retry, Verdict, class_name, described, verdict_of

if TYPE_CHECKING:
    from sharegroups.aio.keeping import Kept
    from sharegroups.messages import Message

#: Exit status of a process for handlers whose module calls `Worker.run` when it is imported.
RUN_AT_IMPORT_STATUS: Final = 79


@dataclass(frozen=True)
class JobSpec:
    """What `@worker.job` was told. `timeout` is in seconds. A process gets it by pickle."""

    topic: str
    handler: Callable[..., Any]
    value: Callable[[bytes], Any] | None
    timeout: float | None
    retry: Retry
    outcomes: Mapping[type[BaseException], Outcome]
    is_async: bool
    in_process: bool

    @property
    def name(self) -> str:
        """The handler's name, for messages."""
        return getattr(self.handler, "__qualname__", repr(self.handler))


class Undecodable(Exception):  # noqa: N818 - never raised to a user
    """The value of a record could not be decoded; its text says why."""


@dataclass(slots=True)
class JobInfo:
    """What `current_job()` returns inside a handler: where its record stands, and whether its lock still holds."""

    topic: str
    partition: int
    offset: int
    delivery_count: int
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    _job: Job | None = field(default=None, repr=False)

    @classmethod
    def of(cls, job: Job) -> JobInfo:
        """The info of a job, which knows whether its lock holds."""
        message = job.message
        place = (message.topic(), message.partition(), message.offset(), message.delivery_count())
        return cls(*place, message.key(), message.headers(), job)

    @property
    def lost(self) -> bool:
        """Whether the lock was lost: another worker runs this job by now, or will. Always False for a handler that
        runs in a process."""
        return self._job is not None and self._job.is_lost


class Job:
    """One record in this worker's hands. `waits_since` is when it came, `kept` what keeps its lock alive."""

    __slots__ = ("kept", "message", "spec", "waits_since")

    def __init__(self, spec: JobSpec, message: Message, kept: Kept, waits_since: float) -> None:
        self.spec = spec
        self.message = message
        self.kept = kept
        self.waits_since = waits_since

    def deliver(self, message: Message, kept: Kept) -> None:
        """The record was delivered again: from now on this delivery is what the job's end is about."""
        self.message = message
        self.kept = kept

    @property
    def is_lost(self) -> bool:
        """Whether its lock was lost, and it has not been delivered here again. May be asked in any thread."""
        return self.kept.is_lost(self.message)

    @property
    def place(self) -> str:
        """Topic, partition and offset, for messages."""
        return f"{self.message.topic()}-{self.message.partition()}@{self.message.offset()}"


_current: ContextVar[Callable[[], JobInfo]] = ContextVar("sharegroups_job")


def current_job() -> JobInfo:
    """Inside a handler: its job's topic, partition, offset, delivery count, key, headers, and whether its lock is lost.

    Raises LookupError outside of one.
    """
    try:
        make = _current.get()
    except LookupError:
        raise LookupError(
            "current_job() was called outside of a job's handler, or in a thread that one started"
        ) from None
    return make()


def enter(make: Callable[[], JobInfo]) -> None:
    """From now on this thread, or this task, works on that job. The info is made only if the handler asks for it."""
    _current.set(make)


def arguments_of(spec: JobSpec, value: bytes | None) -> Any:
    """The argument of the handler. Raises Undecodable."""
    if spec.value is None:
        return value
    if value is None:
        raise Undecodable("the record has no value (a tombstone)")
    try:
        return spec.value(value)
    except Exception as error:
        raise Undecodable(described(error)) from error


def run_blocking(spec: JobSpec, value: bytes | None) -> Verdict:
    """Decode and call a blocking handler; whatever it raises becomes a verdict."""
    try:
        spec.handler(arguments_of(spec, value))
    except BaseException as error:
        return failed(spec, error)
    return DONE


async def run_async(spec: JobSpec, value: bytes | None) -> Verdict:
    """As `run_blocking`, of an asyncio handler."""
    try:
        await spec.handler(arguments_of(spec, value))
    except BaseException as error:
        return failed(spec, error)
    return DONE


def failed(spec: JobSpec, error: BaseException) -> Verdict:
    """The verdict on what decoding or the handler raised. A value that cannot be decoded never can be: REJECTED.

    Never raises, whatever the exception's own methods do (CL-148).
    """
    try:
        return _verdict(spec, error)
    except BaseException as problem:
        return Verdict(Kind.FAILED, f"{class_name(error)}: (it cannot be described: {class_name(problem)})")


def _verdict(spec: JobSpec, error: BaseException) -> Verdict:
    if isinstance(error, Undecodable):
        decoder = getattr(spec.value, "__qualname__", repr(spec.value))
        return Verdict(Kind.REJECTED, f"the value cannot be decoded by {decoder}: {error}")
    return verdict_of(error, spec.outcomes, trace_of(error))


#: Of the frames of an exception those of the handler are shown, at most so many lines.
_TRACE_MAX: Final = 40


def trace_of(error: BaseException) -> str:
    """The traceback from the handler's own frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException as problem:
        text = f"{''.join(traceback.format_tb(trace))}(the rest cannot be formatted: {class_name(problem)})"
    lines = [printable(line) for line in text.rstrip().splitlines()]
    if len(lines) > _TRACE_MAX:
        lines = [*lines[: _TRACE_MAX // 2], "  …", *lines[-_TRACE_MAX // 2 :]]
    return "\n".join(lines)
