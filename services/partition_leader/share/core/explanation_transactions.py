"""Adds the effect of transactions to explained records (PL-821). Markers are not records; a group that reads committed
records skips those of aborted transactions, and waits for those of open ones.

It changes nothing in the share-partition, and runs after `explanation`: it cuts fates where the role of their batches
changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from partition_leader.share.core.explanation import Fate, Obstacle, Question, RecordState, cut, joined
from partition_leader.share.core.visibility import TransactionKind, TransactionPart

_LAST: Final = attrgetter("last")
_HELD: Final = frozenset({Obstacle.HELD, Obstacle.WRITE_PENDING})


def with_roles(fates: list[Fate], asked: Question) -> list[Fate]:
    """Return the fates with the transaction roles that matter to the group."""
    parts = [part for part in asked.log.parts if asked.read_committed or part.role.kind is TransactionKind.MARKER]
    return joined(each for fate in fates for each in _parts(fate, asked, parts)) if parts else fates


def _parts(fate: Fate, asked: Question, parts: Sequence[TransactionPart]) -> Iterator[Fate]:
    at = bisect_left(parts, fate.first, key=_LAST)
    spans = [(part.first, part.last) for part in parts[at : at + fate.last - fate.first + 1]]
    for first, last, has_role in cut(fate.first, fate.last, spans):
        piece = fate._replace(first=first, last=last, append_time_ms=_appended(fate, asked, first))
        if not has_role:
            yield piece
            continue
        while parts[at].last < first:
            at += 1
        yield _with_role(piece._replace(role=parts[at].role)) or piece


def _with_role(fate: Fate) -> Fate | None:
    """Return the fate of a record with this role; None where the role makes no difference."""
    if fate.state is RecordState.FINISHED:
        return fate if fate.role.kind is not TransactionKind.OPEN else None
    if fate.role.kind is TransactionKind.MARKER and fate.obstacle not in _HELD:
        return Fate(
            fate.first,
            fate.last,
            RecordState.HOLE,
            Obstacle.NO_RECORD,
            append_time_ms=fate.append_time_ms,
            role=fate.role,
        )
    if fate.role.kind is TransactionKind.ABORTED and _passed_over(fate):
        return fate._replace(obstacle=Obstacle.NO_RECORD)
    if fate.role.kind is TransactionKind.OPEN and fate.obstacle is Obstacle.UNCOMMITTED:
        return fate
    return None


def _passed_over(fate: Fate) -> bool:
    if fate.state is RecordState.AVAILABLE:
        return fate.obstacle is not Obstacle.DELAYED
    return fate.state is RecordState.ARCHIVED


def _appended(fate: Fate, asked: Question, first: int) -> int | None:
    """Return when the first record of a piece was appended; None when the append time is not known."""
    if fate.append_time_ms is None or first == fate.first:
        return fate.append_time_ms
    batches = asked.log.batches
    at = bisect_left(batches, first, key=_LAST)
    return batches[at].append_time_ms if at < len(batches) else None
