"""The response to ExplainRecord: the fates of the records, with sentences and the effect of transactions, and the
group's position (PL-820, PL-821).

A share-partition that is not ACTIVE holds no record, so it is explained as one that is not loaded (PL-825).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kip932.errors import InvalidRequestError
from kip932.ids import EXPLAINED_OFFSETS_MAX, STATE_ACQUIRED
from kip932.state_values import StateSummary
from partition_leader.explain.core.backlog import held_records
from partition_leader.explain.core.explanation import (
    Fate,
    Obstacle,
    Question,
    RecordState,
    cut,
    fate_at,
    fates_loaded,
    fates_stored,
    front,
    joined,
)
from partition_leader.explain.core.explanation_words import Place, held, span_of_time, words
from partition_leader.share_partition.core.partition_state import PartitionState
from partition_leader.share_partition.core.room import delayed_full
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.core.transitions import DELAYED, PENDING
from partition_leader.share_partition.core.visibility import TransactionKind, TransactionPart

_LAST: Final = attrgetter("last")
_HELD_OBSTACLES: Final = frozenset({Obstacle.HELD, Obstacle.WRITE_PENDING})


class Explanation(NamedTuple):
    """An explanation. `start_offset`: −1 if none is set. `end_offset`: the first offset never fetched.
    `window_offsets`: the number of offsets from the start offset to the last one fetched (PL-130). `held`: the number
    of records that members hold (PL-827)."""

    loaded: bool
    state_epoch: int
    start_offset: int
    end_offset: int
    window_offsets: int
    held: int
    records: tuple[tuple[Fate, str], ...]


def check_offsets(first: int, last: int) -> None:
    """Check the requested offsets (PL-826). Raises InvalidRequestError."""
    if first < 0:
        raise InvalidRequestError(f"offset {first} is negative; expected an offset of the log, from 0 on")
    if last < first:
        raise InvalidRequestError(f"last offset {last} is before the first, {first}; expected it at or after that")
    if last - first >= EXPLAINED_OFFSETS_MAX:
        raise InvalidRequestError(
            f"offsets {first}-{last} are {last - first + 1}; at most {EXPLAINED_OFFSETS_MAX} go into one request"
        )


def explain_loaded(partition: SharePartition, asked: Question) -> Explanation | None:
    """Explain records from the window of a share-partition (PL-820); None while it is not ACTIVE."""
    state = partition.state
    if state.status is not Status.ACTIVE:
        return None
    window = state.window
    full = state.dead_letters.is_full(window, asked.settings)
    start, end = window.start_offset, window.next_offset
    place = Place(
        True,
        start,
        end,
        window.in_flight,
        partition.next_fetch_offset(),
        _front(state, asked),
        full,
        delayed_full(window, asked.settings),
        window.delayed,
    )
    return _answer(fates_loaded(state, asked), asked, place, state.state_epoch, held_records(window))


def explain_stored(stored: StateSummary, asked: Question) -> Explanation:
    """Explain records from the stored state of a share-partition that is not in memory; no member holds them
    (PL-825)."""
    start = stored.start_offset
    only_rejects = stored.archived_by_limit == 0 and stored.archived_by_reject > 0
    place = Place(False, start, start, 0, start, only_rejects=only_rejects)
    return _answer(fates_stored(stored, asked), asked, place, stored.state_epoch, 0)


def _answer(fates: list[Fate], asked: Question, place: Place, state_epoch: int, held_now: int) -> Explanation:
    records = tuple((fate, words(fate, asked, place)) for fate in _with_roles(fates, asked))
    return Explanation(place.loaded, state_epoch, place.start, place.end, place.in_flight, held_now, records)


def _front(state: PartitionState, asked: Question) -> str:
    """Describe what holds the start offset back; empty when nothing is cached."""
    found = front(state)
    if found is None:
        return ""
    offset, batch = found
    code, _, _, deadline = batch.lock_at(offset)
    if code == STATE_ACQUIRED:
        return f"at offset {offset}, {held(fate_at(state, asked, offset), asked)}"
    if code & PENDING:
        return f"the acknowledgement of offset {offset} is being written"
    if code == DELAYED:
        return f"offset {offset} waits until its delay ends, in {span_of_time(max(0, deadline - asked.now_ms))}"
    return f"offset {offset} waits to be delivered" if not code else f"offset {offset} is finished, and moves it soon"


def _with_roles(fates: list[Fate], asked: Question) -> list[Fate]:
    """Return the fates with the transaction roles that matter to the group, split where the role changes (PL-821).

    Markers are not records; a group that reads committed records skips those of aborted transactions, and waits for
    those of open ones.
    """
    parts = [part for part in asked.log.parts if asked.read_committed or part.role.kind is TransactionKind.MARKER]
    return joined(each for fate in fates for each in _cut_at_roles(fate, asked, parts)) if parts else fates


def _cut_at_roles(fate: Fate, asked: Question, parts: Sequence[TransactionPart]) -> Iterator[Fate]:
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
    """Return the fate of a record that has this role; None if the role makes no difference."""
    if fate.state is RecordState.FINISHED:
        return fate if fate.role.kind is not TransactionKind.OPEN else None
    if fate.role.kind is TransactionKind.MARKER and fate.obstacle not in _HELD_OBSTACLES:
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
    """Return when the first record of a piece was appended; None if that is not known."""
    if fate.append_time_ms is None or first == fate.first:
        return fate.append_time_ms
    batches = asked.log.batches
    at = bisect_left(batches, first, key=_LAST)
    return batches[at].append_time_ms if at < len(batches) else None
