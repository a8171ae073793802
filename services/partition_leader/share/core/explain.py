"""The answer to an ExplainRecord: the fates of the records, with sentences, and the group's position (PL-820).

A share-partition that is not ACTIVE holds no record, so it is explained as one that is not loaded (PL-825).
"""

from __future__ import annotations

from typing import NamedTuple

from kip932.errors import InvalidRequestError
from kip932.ids import EXPLAINED_OFFSETS_MAX, STATE_ACQUIRED
from kip932.state_values import StateSummary
from partition_leader.share.core.backlog import held_records
from partition_leader.share.core.explanation import Fate, Question, fates_loaded, fates_stored, front
from partition_leader.share.core.explanation_transactions import with_roles
from partition_leader.share.core.explanation_words import Place, held, span_of_time, words
from partition_leader.share.core.partition_state import PartitionState
from partition_leader.share.core.room import delayed_full
from partition_leader.share.core.transitions import DELAYED, PENDING


class Explanation(NamedTuple):
    """The answer. `start_offset`: −1 when none is set. `end_offset`: the first offset never fetched. `window_offsets`:
    how many offsets there are from the start offset to the last one fetched (PL-130). `held`: records that members hold
    (PL-827)."""

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
        raise InvalidRequestError(f"last offset {last} lies before the first, {first}; expected it at or after that")
    if last - first >= EXPLAINED_OFFSETS_MAX:
        raise InvalidRequestError(
            f"offsets {first}-{last} are {last - first + 1}; at most {EXPLAINED_OFFSETS_MAX} go into one request"
        )


def explain_loaded(state: PartitionState, asked: Question, next_fetch: int) -> Explanation:
    """Explain from the window of an ACTIVE share-partition. `next_fetch`: where its next fetch begins (PL-202)."""
    window = state.window
    full = state.dead_letters.is_full(window, asked.settings)
    start, end = window.start_offset, window.next_offset
    place = Place(
        True,
        start,
        end,
        window.in_flight,
        next_fetch,
        _front(state, asked),
        full,
        delayed_full(window, asked.settings),
        window.delayed,
    )
    return _answer(fates_loaded(state, asked), asked, place, state.state_epoch, held_records(window))


def explain_stored(stored: StateSummary, asked: Question) -> Explanation:
    """Explain from the stored state of a share-partition that is not in memory; no member holds its records
    (PL-825)."""
    start = stored.start_offset
    only_rejects = stored.archived_by_limit == 0 and stored.archived_by_reject > 0
    place = Place(False, start, start, 0, start, only_rejects=only_rejects)
    return _answer(fates_stored(stored, asked), asked, place, stored.state_epoch, 0)


def _answer(fates: list[Fate], asked: Question, place: Place, state_epoch: int, held_now: int) -> Explanation:
    records = tuple((fate, words(fate, asked, place)) for fate in with_roles(fates, asked))
    return Explanation(place.loaded, state_epoch, place.start, place.end, place.in_flight, held_now, records)


def _front(state: PartitionState, asked: Question) -> str:
    """Describe what holds the start offset back; empty when nothing is cached."""
    found = front(state)
    if found is None:
        return ""
    offset, batch = found
    code, count, member, deadline = batch.lock_at(offset)
    if code == STATE_ACQUIRED:
        return f"at offset {offset}, {held(member, count, max(0, deadline - asked.now_ms), asked)}"
    if code & PENDING:
        return f"the acknowledgement of offset {offset} is being written"
    if code == DELAYED:
        return f"offset {offset} waits until its delay ends, in {span_of_time(max(0, deadline - asked.now_ms))}"
    return f"offset {offset} waits to be delivered" if not code else f"offset {offset} is finished, and moves it soon"
