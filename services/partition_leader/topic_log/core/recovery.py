"""What a new owner does about the end of the log it found (CM-40, CM-47): go on, re-append what is lost, or jump.

No offset is used twice: re-used offsets would count as already acknowledged and never be delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from partition_leader.topic_log.core.batch import LogBatch

JUMP_OFFSETS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TailMemory:
    """What this process knew of the log before it claimed again: its epoch, the confirmed end, the newest batches."""

    epoch: int
    log_end: int
    batches: tuple[LogBatch, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What the streams say. `newest_epoch`: of the last claim below our own; `previous_epoch`: of the owner record."""

    log_end: int
    newest_epoch: int
    previous_epoch: int
    suspect: bool


@dataclass(frozen=True, slots=True)
class Recovery:
    """The decision: append `again` behind `log_end`; or, with `jump`, continue at `log_end` and leave a hole."""

    log_end: int
    again: tuple[LogBatch, ...] = ()
    jump: bool = False


def recover(found: Found, memory: TailMemory | None, jump_offsets: int = JUMP_OFFSETS) -> Recovery:
    """Decide. `found.suspect` is the claim's `lossy`, or a topic older than the store's history without an owner."""
    lost = memory is not None and memory.log_end > found.log_end
    if not found.suspect and not lost:
        return Recovery(found.log_end)
    if memory is not None and _nobody_else(found, memory):
        again = tuple(batch for batch in memory.batches if batch.base_offset >= found.log_end)
        if _joins(found.log_end, again, memory.log_end):
            return Recovery(found.log_end, again)
    known = found.log_end if memory is None else max(found.log_end, memory.log_end)
    return Recovery(known + jump_offsets, jump=True)


def _nobody_else(found: Found, memory: TailMemory) -> bool:
    """No claim that this memory has not applied (CM-19)."""
    return max(found.newest_epoch, found.previous_epoch) <= memory.epoch


def _joins(log_end: int, again: tuple[LogBatch, ...], memory_end: int) -> bool:
    """The batches continue the surviving log up to the end in memory, without a hole."""
    if not again:
        return memory_end == log_end
    dense = all(one.end_offset == two.base_offset for one, two in pairwise(again))
    return dense and again[0].base_offset == log_end and again[-1].end_offset == memory_end
