"""Decides how a new owner continues at the log's end (CM-40, CM-47): from the end found, by appending lost batches
again, or with a jump.

No offset is ever given to two records: the second would count as acknowledged already, and never be delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from partition_leader.topic_log.core.batch import LogBatch

JUMP_OFFSETS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TailMemory:
    """The log as this process knew it when it last owned it: its epoch, the confirmed end, the newest batches."""

    epoch: int
    log_end: int
    batches: tuple[LogBatch, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The log as found in the streams. `newest_epoch`: the epoch of the last claim before this owner's.
    `previous_epoch`: the epoch in the owner record."""

    log_end: int
    newest_epoch: int
    previous_epoch: int
    suspect: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """The decision: append the batches `again` from `log_end` on or, with `jump`, continue at `log_end` after a
    hole."""

    log_end: int
    again: tuple[LogBatch, ...] = ()
    jump: bool = False


def recover(found: Found, memory: TailMemory | None, jump_offsets: int = JUMP_OFFSETS) -> Recovery:
    """Decide how to continue. `found.suspect`: the claim was lossy, or the topic is older than the store's history and
    had no owner."""
    lost = memory is not None and memory.log_end > found.log_end
    if not found.suspect and not lost:
        return Recovery(found.log_end)
    if memory is not None and _no_other_owner(found, memory):
        again = tuple(batch for batch in memory.batches if batch.base_offset >= found.log_end)
        if _joins(found.log_end, again, memory.log_end):
            return Recovery(found.log_end, again)
    known = found.log_end if memory is None else max(found.log_end, memory.log_end)
    return Recovery(known + jump_offsets, jump=True)


def _no_other_owner(found: Found, memory: TailMemory) -> bool:
    """Return whether no other process has claimed the log since this memory was taken (CM-19)."""
    return max(found.newest_epoch, found.previous_epoch) <= memory.epoch


def _joins(log_end: int, again: tuple[LogBatch, ...], memory_end: int) -> bool:
    """Return whether the batches continue the surviving log up to the end in memory, without a hole."""
    if not again:
        return memory_end == log_end
    dense = all(one.end_offset == two.base_offset for one, two in pairwise(again))
    return dense and again[0].base_offset == log_end and again[-1].end_offset == memory_end
