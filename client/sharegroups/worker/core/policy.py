"""Decides what happens to a job: how its handler ends gives a verdict; the verdict and the delivery count give a
decision.

Rules CL-120 to CL-123, CL-165. Pure: a random number from 0 to 1 is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from kip932.failures import REASON_BYTES_MAX, cut
from kip932.printable import printable

#: The most characters of an exception's text that are logged in a job's line, and that are read for it.
_WHY_MAX: Final = 500
_READ_MAX: Final = 8_000
#: The maximum number of bytes of a reason's first line, an exception's class and message.
_FIRST_LINE_BYTES_MAX: Final = 500
_HOUR_S: Final = 3_600
#: A delay longer than this many seconds is logged in seconds as given, since it may be infinite.
_READABLE_MAX_S: Final = 1e9


class Accept(Exception):  # noqa: N818 - a word of the user's code: raise Accept
    """Raised by a handler, or in `outcomes`: the job counts as done."""


class Reject(Exception):  # noqa: N818 - as Accept
    """Raised by a handler, or in `outcomes`: the job can never be done, and its record is not delivered again.

    The text is logged and is the record's reason; the record goes to the group's dead-letter topic, if it has one.
    """


class Release(Exception):  # noqa: N818 - as Accept
    """Raised by a handler, or in `outcomes`: the job cannot be done now. Its record is delivered again.

    `delay`: the number of seconds until then; None: the delay of the group's back-off, or no delay if it has no
    back-off. The current delivery counts like any other.
    """

    def __init__(self, why: str = "", *, delay: float | None = None) -> None:
        super().__init__(why)
        if isinstance(delay, bool) or not isinstance(delay, int | float | None) or not (delay is None or delay >= 0):
            raise ValueError(f"Release: delay is {delay!r}; expected seconds of at least 0, or None")
        self.delay = delay


@dataclass(frozen=True, slots=True)
class Retry:
    """How a failed job is retried. Times are in seconds.

    `limit`: the number of deliveries after which a failure rejects the record; None: as many as the group allows,
    `share.delivery.count.limit`. The delay before the first retry is `backoff`; each later delay is `multiplier` times
    as long, up to `maximum`. Each is shortened by a random fraction, up to `jitter`.
    """

    limit: int | None = None
    backoff: float = 1.0
    maximum: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid argument, with its value and what was expected."""
        if self.limit is not None and (isinstance(self.limit, bool) or not isinstance(self.limit, int)):
            raise ValueError(f"Retry: limit is {self.limit!r}; expected a whole number of deliveries, or None")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"Retry: limit is {self.limit}; expected at least 1, the first delivery")
        for name, low, high in (("backoff", 0, None), ("maximum", 0, None), ("multiplier", 1, None), ("jitter", 0, 1)):
            value = getattr(self, name)
            fits = isinstance(value, int | float) and not isinstance(value, bool) and value >= low
            if not fits or (high is not None and value > high):
                bound = f"at least {low}" if high is None else f"from {low} to {high}"
                raise ValueError(f"Retry: {name} is {value!r}; expected a number {bound}")

    def delay_of(self, delivery_count: int, chance: float) -> float:
        """Return the delay, in seconds, after delivery number `delivery_count` failed. `chance`: a random number from 0
        to 1."""
        steps = min(max(0, delivery_count - 1), 1_000)
        try:
            delay = self.backoff * self.multiplier**steps
        except OverflowError:
            delay = self.maximum
        return min(delay, self.maximum) * (1 - self.jitter * chance)


class Kind(Enum):
    """How a run of a handler ended."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    RELEASED = "released"


class JobNote(NamedTuple):
    """What was noted about a job where its handler ran.

    `is_reported`: whether the `failed` hooks have got its exception. `traceparent`: the job's span; empty unless it is
    sampled. `error_type`: the class of the exception that it failed with.
    """

    is_reported: bool
    traceparent: str
    error_type: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one run of a handler. It does not contain the exception, so that a process can send it.

    `why`: one line about the failure. `trace`: its traceback. `delay`: the delay given in a Release. `retry`: a policy
    from `outcomes` that replaces the job's. `reason`: the exception as it is sent to the cluster; empty: `why` is sent.
    `place`: the file and line that raised it.
    `is_undecodable`: the handler was not called, since the value could not be decoded.
    """

    kind: Kind
    why: str = ""
    trace: str = ""
    delay: float | None = None
    retry: Retry | None = None
    reason: str = ""
    place: str = ""
    is_undecodable: bool = False
    note: JobNote | None = None

    @property
    def sent_reason(self) -> str:
        """Why the record is given up, for its acknowledgement (CL-165): as printable text, which is also in the log."""
        return printable(self.reason or self.why, keep="\n")


DONE: Final = Verdict(Kind.DONE)

#: A value in `outcomes`: one of the three classes, an instance of one, or a retry policy that replaces the job's.
Outcome = type[Accept] | type[Reject] | type[Release] | Accept | Reject | Release | Retry


class Step(Enum):
    """How the record is acknowledged."""

    ACCEPT = "accepted"
    RELEASE = "released"
    REJECT = "rejected"
    #: Released at the last delivery that the group allows (PL-1002), and therefore not delivered again either.
    ARCHIVE = "archived"

    @property
    def gives_up(self) -> bool:
        """True if the record is not delivered again although its job was not done."""
        return self in (Step.REJECT, Step.ARCHIVE)


@dataclass(frozen=True, slots=True)
class Decision:
    """How to acknowledge a record, and when it is delivered again.

    `delay`: the number of seconds until then; None: the delay of the group's back-off. `log_text`: what happens next,
    for the log. `reason`: why the record is released or rejected.
    """

    step: Step
    delay: float | None = None
    log_text: str = ""
    reason: str = ""

    def shortened(self, maximum: float) -> Decision:
        """Return the decision with `maximum`, the longest delay that the group allows, instead of its own delay."""
        log_text = (
            f"{_redelivery_text(maximum)}, not in {_readable(self.delay or 0)}: the group allows no longer delay "
            "(sharegroups.retry.delay.max.ms); ask for a shorter one, or raise that group config"
        )
        return replace(self, delay=maximum, log_text=log_text)


def _redelivery_text(delay: float | None) -> str:
    if delay is None:  # the leader decides, by the group's back-off at that moment (CL-123)
        return "it is redelivered at once, or after the group's back-off"
    return f"it is redelivered in {_readable(delay)}" if delay else "it is redelivered at once"


def archived(group_limit: int) -> str:
    """Return the log text for a record that is archived after the last delivery that the group allows."""
    return f"that was the last of {group_limit} deliveries that the group allows; it is archived"


def check_outcomes(outcomes: Mapping[type[BaseException], Outcome]) -> None:
    """Raise ValueError for an invalid entry."""
    for error, outcome in outcomes.items():
        if not isinstance(error, type) or not issubclass(error, BaseException):
            raise ValueError(f"outcomes: {error!r} is not an exception class; write outcomes={{SomeError: Reject}}")
        known = (Accept, Reject, Release)
        if not isinstance(outcome, (*known, Retry)) and outcome not in known:
            raise ValueError(
                f"outcomes: {error.__name__} is given {outcome!r}; expected Accept, Reject, Release, "
                "Release(delay=30) or a Retry(…)"
            )


def verdict_of(
    error: BaseException, outcomes: Mapping[type[BaseException], Outcome], trace: str = "", reason: str = ""
) -> Verdict:
    """Return the verdict on a handler's exception. An Accept, Reject or Release is used as it is. For any other
    exception, the first class in its MRO that has an entry in `outcomes` decides."""
    outcome: Any = error
    if not isinstance(error, Accept | Reject | Release):
        outcome = next((outcomes[kind] for kind in type(error).__mro__ if kind in outcomes), None)
    why = described(error)
    reason = "" if outcome is error else reason
    if outcome is Accept or isinstance(outcome, Accept):
        return Verdict(Kind.DONE, why)
    if outcome is Reject or isinstance(outcome, Reject):
        return Verdict(Kind.REJECTED, why, "" if outcome is error else trace, reason=reason)
    if outcome is Release or isinstance(outcome, Release):
        return Verdict(Kind.RELEASED, why, "", outcome.delay if isinstance(outcome, Release) else None, reason=reason)
    return Verdict(Kind.FAILED, why, trace, retry=outcome, reason=reason)


def reason_of(first_line: str, lines: Sequence[str]) -> str:
    """Return the reason for a record whose job raised an exception (CL-165): the exception's class and message, and
    below them the last of `lines`, as many as fit."""
    kept = [cut(printable(first_line[: _FIRST_LINE_BYTES_MAX + 1]), _FIRST_LINE_BYTES_MAX)]
    left = REASON_BYTES_MAX - len(kept[0].encode())
    for line in [printable(line[: REASON_BYTES_MAX + 1]) for line in reversed(lines)]:
        left -= len(line.encode()) + 1
        if left < 0:
            break
        kept.insert(1, line)
    return "\n".join(kept)


def described(error: BaseException) -> str:
    """Return an exception as one line of text. Its methods are user code, and may raise anything (CL-148)."""
    try:
        text = one_line(str(error))
    except BaseException as problem:
        text = f"(its text cannot be read: {class_name(problem)})"
    name = class_name(error)
    return f"{name}: {text}" if text else name


def one_line(text: str) -> str:
    """Return a text of any length as one line of at most 500 characters, which says how much of it is left out."""
    line = " ".join(text[:_READ_MAX].split())
    if len(text) <= _READ_MAX and len(line) <= _WHY_MAX:
        return line
    return shortened(line, _WHY_MAX, len(text) - len(text[:_READ_MAX]))


def shortened(text: str, limit: int, further: int = 0) -> str:
    """Return the first `limit` characters of the text, and how many were cut off, with the `further` ones that the
    caller has left out. A text that is not cut is returned as it is."""
    cut_off = max(0, len(text) - limit) + further
    return f"{text[:limit]}… ({cut_off:,} characters cut off)" if cut_off else text


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class, even if its metaclass overrides `__name__`."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def _readable(seconds: float) -> str:
    """Return a delay in readable form: 1.9 s, 2 h 5 min, 3 days 4 h."""
    if seconds < _HOUR_S:
        return f"{seconds:.1f} s"
    if seconds > _READABLE_MAX_S:
        return f"{seconds:.10g} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    days, hours = divmod(round(minutes / 60), 24)
    return f"{days} day{'s' * (days > 1)}" + (f" {hours} h" if hours else "")


def decide(verdict: Verdict, delivery_count: int, retry: Retry, group_limit: int, chance: float) -> Decision:
    """Decide what to do with the record. `group_limit`: the deliveries after which the leader archives it (PL-1002)."""
    policy = verdict.retry or retry
    if verdict.kind is Kind.DONE:
        return Decision(Step.ACCEPT)
    reason = verdict.sent_reason
    if verdict.kind is Kind.REJECTED:
        return Decision(Step.REJECT, log_text="it is rejected, and not delivered again", reason=reason)
    failed = verdict.kind is Kind.FAILED
    if failed and policy.limit is not None and delivery_count >= policy.limit:
        text = f"that was the last of {policy.limit} tries; it is rejected"
        return Decision(Step.REJECT, log_text=text, reason=reason)
    if delivery_count >= group_limit:  # a delay would only hold the record in this worker
        return Decision(Step.ARCHIVE, 0.0, archived(group_limit), reason)
    delay = policy.delay_of(delivery_count, chance) if failed else verdict.delay
    return Decision(Step.RELEASE, delay, _redelivery_text(delay), reason)
