"""Logs the jobs whose handlers did not simply return (CL-128), once per cause and minute, with a count (CL-179), and
those that take long (CL-186)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kip932.printable import printable
from sharegroups.worker.core.policy import Decision, Kind, Verdict
from sharegroups.worker.core.repeats import CAUSES_MAX, HeldBack, Repeats, shape_of
from sharegroups.worker.job import Job

log = logging.getLogger("sharegroups.worker")

#: A worker names a job that it has had for these times, in seconds, and then each hour. It checks this often.
_MARKS_S: Final = (60, 600)
_HOUR_S: Final = 3_600
_CHECK_S: Final = 5.0

_HOW: Final = {
    Kind.DONE: "counts as done",
    Kind.FAILED: "failed",
    Kind.REJECTED: "was rejected",
    Kind.RELEASED: "was released",
}


class _Line(NamedTuple):
    """One job's line, without its traceback, and its fields for a log in JSON."""

    level: int
    text: str
    fields: dict[str, Any]


class OutcomeLog:
    """The lines of one worker's jobs, on its event loop. `group_id`: its share group."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._repeats = Repeats[_Line]()
        self._checked_s = 0.0

    def job(self, job: Job, verdict: Verdict, decision: Decision, *, limit: int, letters_to: str, now_s: float) -> None:
        """Log how a job ended and what happens next, or count it. `limit`, `letters_to`: the group's delivery count
        limit and dead-letter topic."""
        level = logging.ERROR if decision.step.gives_up else logging.WARNING
        if verdict.kind is Kind.DONE:
            level = logging.INFO
        tail = f"; {decision.log_text}" if decision.log_text else ""
        if decision.step.gives_up and letters_to:
            tail += f"; it becomes a dead letter in {letters_to}"
        message, name = job.message, job.spec.name
        why = printable(verdict.why)  # it may contain foreign data
        count = job.delivery_count
        text = f"{job.place}: {name}, delivery {count} of {limit}, {_HOW[verdict.kind]}: {why}{tail}"
        fields = {
            "group": self._group_id,
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "delivery_count": count,
            "handler": name,
            "outcome": decision.step.value,
        }
        line = _Line(level, text, fields)
        cause = (message.topic(), verdict.kind, decision.step, verdict.place, shape_of(verdict.why))
        if self._repeats.admit(cause, level, line, now_s):
            trace = f"\n{verdict.trace}" if verdict.trace else ""
            log.log(level, "%s%s", text, trace, extra={"fields": fields})

    def long(self, jobs: Iterable[Job], now_s: float) -> None:
        """Log which of the worker's jobs have reached a time since the last call, one line for all."""
        if now_s < self._checked_s + _CHECK_S:
            return
        before_s, self._checked_s = self._checked_s, now_s
        found = [job for job in jobs if marks(now_s - job.waits_since) > marks(before_s - job.waits_since)]
        if not found:
            return
        job = min(found, key=lambda one: one.waits_since)
        seconds = round(now_s - job.waits_since)
        more = f" ({len(found) - 1} more after a shorter time)" if len(found) > 1 else ""
        how = "has no timeout: if the handler hangs, its record is held for ever"
        if job.spec.timeout is not None:
            how = f"ends after {job.spec.timeout:g} s"
        message = job.message
        log.warning(
            "%s: %s, delivery %d, is not finished after %d s%s; the job %s",
            job.place, job.spec.name, job.delivery_count, seconds, more, how,
            extra={"fields": {
                "group": self._group_id, "topic": message.topic(), "partition": message.partition(),
                "offset": message.offset(), "delivery_count": job.delivery_count, "handler": job.spec.name,
                "held_s": seconds, "jobs": len(found),
            }},
        )  # fmt: skip

    def write_due(self, now_s: float, *, at_end: bool = False) -> None:
        """Log the counts of the causes whose minute is over; of all causes if the worker ends."""
        for kept in self._repeats.due(now_s, at_end=at_end):
            self._log_held_back(kept, now_s)

    def _log_held_back(self, kept: HeldBack[_Line], now_s: float) -> None:
        line, seconds = kept.newest, now_s - kept.since_s
        alike = f"for other causes than the first {CAUSES_MAX}" if kept.various else "for the same cause"
        log.log(
            line.level,
            "%d more jobs ended %s within %.0f s; the last: %s",
            kept.count, alike, seconds, line.text,
            extra={"fields": {**line.fields, "held_back": kept.count, "within_s": round(seconds)}},
        )  # fmt: skip


def marks(age_s: float) -> int:
    """Return how many of the times at which a job is named a job of this age has passed."""
    return sum(age_s >= mark for mark in _MARKS_S) + max(0, int(age_s // _HOUR_S))
