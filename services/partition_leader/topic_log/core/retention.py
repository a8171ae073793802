"""Decides where a log should start, by the age and size of its batches (CM-45). Whole batches only, oldest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from partition_leader.topic_log.core.batch import LogBatch


@dataclass(frozen=True, slots=True)
class Retention:
    """The batches that may be deleted: those appended before `appended_before_ms` (None: none by age), and
    `excess_bytes` by size.

    Age is measured from the append, not from the producer's timestamps, so that a producer with a wrong clock can
    neither keep a log for ever nor empty it at once.
    """

    appended_before_ms: int | None
    excess_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """The result of checking some batches: the new log start, the excess bytes left, and whether to check more."""

    log_start: int
    excess_bytes: int
    exhausted: bool


def cut(log_start: int, batches: Iterable[LogBatch], retention: Retention) -> Cut:
    """Return the new log start after `batches`, the oldest ones from `log_start` on."""
    excess = retention.excess_bytes
    for batch in batches:
        old = retention.appended_before_ms is not None and batch.append_time_ms < retention.appended_before_ms
        if not old and (batch.size > excess or not excess):  # a transaction's marker has no bytes
            return Cut(log_start, excess, exhausted=False)
        log_start = max(log_start, batch.end_offset)
        excess = max(excess - batch.size, 0)
    return Cut(log_start, excess, exhausted=True)
