"""Plans the ranges of streams to read next, and finds entries that are already lost (PM-9…PM-11).

Pure, except that it reads a few ids through `StreamQueries`; planning never transfers an entry's payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from share_metrics.reader.offsets import NO_STREAM, START, EntryId, Gap, Position, Range, Tip


class StreamQueries(Protocol):
    """The queries to the store that planning needs."""

    @property
    def consecutive(self) -> bool:
        """True if the sequence numbers of the streams have no gaps within an epoch (SR-7)."""
        ...

    def runs(self, stream: str, after: EntryId, through: EntryId, limit: int | None) -> Iterable[Range]:
        """Ranges that together hold the first `limit` entries (None: all) with `after` < id ≤ `through`, in order."""
        ...


class StreamPlan(NamedTuple):
    """The ranges of a stream to read, the position after them, and the gaps that are known before reading."""

    end: Position
    ranges: list[Range]
    gaps: list[Gap]


class Goal(NamedTuple):
    """Where reading ends.

    `through`: the last id; None for the tip. `n`: entries ever added up to it; None if unknown.
    """

    through: EntryId | None = None
    n: int | None = None


TO_THE_TIP = Goal()


def plan_stream(
    stream: str,
    start: Position,
    tip: Tip | None,
    queries: StreamQueries,
    *,
    goal: Goal = TO_THE_TIP,
    limit: int | None = None,
) -> StreamPlan:
    """Plan one stream from `start` on, at most `limit` entries (None: no limit).

    A missing stream counts as empty. Entries that were trimmed, or lost by the store, since `start` become a gap
    (PM-11). After a lost tail, reading continues with the stored entries, by the store's own count. If the store has
    lost the entry of a goal that has a count, the plan that starts at that goal will report the whole lost tail, so
    this plan does not.
    """
    tip = tip or NO_STREAM
    if goal.through is not None and goal.through <= start.id:
        return _passed(stream, start, goal, queries)
    through = tip.last if goal.through is None else min(goal.through, tip.last)
    known = tip.added if goal.n is None and through == tip.last else goal.n
    n, gaps = _before(stream, start, tip, through, known, queries)
    ranges = list(queries.runs(stream, start.id, through, limit)) if through > start.id else []
    planned = _count(ranges)
    if limit is not None and ranges and ranges[-1].through < through:
        return StreamPlan(Position(ranges[-1].through, n + planned), ranges, gaps)
    end_id = max(start.id, through)
    if known is None or n + planned == known:
        return StreamPlan(Position(end_id, n + planned), ranges, gaps)
    if goal.through is not None and goal.n is not None:
        added_by_goal = _added_up_to(stream, goal.through, tip, queries)
        if added_by_goal < goal.n:
            gaps = [gap for gap in gaps if gap.reason != "tail"]
            if n + planned < added_by_goal:
                gaps.append(Gap(stream, start.id, end_id, added_by_goal - n - planned, "missing"))
            return StreamPlan(Position(goal.through, goal.n), ranges, gaps)
    if n + planned > known:
        gaps += _tail(stream, start.id, n + planned - known, start.id, queries)
    else:
        gaps.append(Gap(stream, start.id, end_id, known - n - planned, "missing"))
    return StreamPlan(Position(end_id, known), ranges, gaps)


def _passed(stream: str, start: Position, goal: Goal, queries: StreamQueries) -> StreamPlan:
    """The plan for a goal that `start` has reached. If the goal's count is another one, see `_recounted`."""
    if goal.through == start.id and goal.n is not None and goal.n != start.n:
        gaps = _recounted(stream, start, goal.n, start.id, queries)
        return StreamPlan(Position(start.id, goal.n), [], gaps)
    return StreamPlan(start, [], [])


def _recounted(stream: str, start: Position, n: int, last: EntryId, queries: StreamQueries) -> list[Gap]:
    """The gaps when the store now counts `n` entries up to a position, `last` being its newest one there.

    If they are fewer, a tail was lost, or the store was restored and counts again. If they are more, entries were
    written afterwards under ids that were already read, as to a store that was restored from an old copy. They are
    never read.
    """
    if n > start.n:
        return [Gap(stream, min(start.id, last), start.id, n - start.n, "missing")]
    return _tail(stream, start.id, start.n - n, min(start.id, last), queries)


def _tail(stream: str, at: EntryId, fewer: int, from_id: EntryId, queries: StreamQueries) -> list[Gap]:
    """The gap of a tail that was lost up to the id `at`, where the store counts `fewer` entries than before.

    A store that was restored from a backup does not count what had been trimmed before the backup, which is no loss.
    So the loss is what the ids show, if that is less: nothing if the entry `at` is stored.
    """
    by_ids = _lost_by_ids(stream, at, queries) if fewer else None
    lost = fewer if by_ids is None else min(fewer, by_ids)
    return [Gap(stream, from_id, at, lost, "tail")] if lost else []


def _lost_by_ids(stream: str, at: EntryId, queries: StreamQueries) -> int | None:
    """How many entries up to the id `at` are no longer in the stream, counted from its newest one up to `at`.

    None if the stream has no entry of that epoch up to there. Where ids are not consecutive, only 0 can be known.
    """
    after = EntryId(at.epoch, 0).before if queries.consecutive else at.before
    newest = [piece.through for piece in queries.runs(stream, after, at, None)]
    return at.seq - newest[-1].seq if newest else None


def _before(  # noqa: PLR0917 - the inputs of a plan
    stream: str, start: Position, tip: Tip, through: EntryId, known: int | None, queries: StreamQueries
) -> tuple[int, list[Gap]]:
    """Entries added up to `start`, or up to the first stored one if that is later; and the gaps before it."""
    fewer = tip.added < start.n or tip.last < start.id
    if fewer or _may_have_lost(stream, start.id, tip, queries):
        n = _added_up_to(stream, start.id, tip, queries)
        if fewer or n <= start.n:
            # Without a gap the loss was already reported: the position stays until newer entries arrive.
            return n, _recounted(stream, start, n, tip.last, queries)
    gone = tip.trimmed if known is None else min(tip.trimmed, known)
    if gone <= start.n:
        return start.n, []
    first = tip.first if tip.length else tip.last
    return gone, [Gap(stream, start.id, min(first, through), gone - start.n, "trimmed")]


def _may_have_lost(stream: str, at: EntryId, tip: Tip, queries: StreamQueries) -> bool:
    """Return whether the stream may have lost a tail up to the id `at`, although it has as many entries again.

    After a loss only a new owner writes, in a new epoch (SR-4). To count is cheap only where ids are consecutive; else
    the entry `at` is asked for.
    """
    if at == START or at.epoch >= tip.last.epoch:
        return False
    return queries.consecutive or (tip.first <= at and _lost_by_ids(stream, at, queries) is None)


def _added_up_to(stream: str, at: EntryId, tip: Tip, queries: StreamQueries) -> int:
    """How many entries were added up to an id: the store's count less the entries stored after the id."""
    return tip.added - (_count(queries.runs(stream, at, tip.last, None)) if tip.last > at else 0)


def share_out(lags: Mapping[str, int], budget: int) -> dict[str, int]:
    """Split `budget` entries over streams in proportion to their lag, at least 1 each, never more in total (PM-9).

    If there are more streams than `budget`, those with the largest lag get the shares.
    """
    lagging = sorted(((lag, stream) for stream, lag in lags.items() if lag > 0), key=lambda item: (-item[0], item[1]))
    total = sum(lag for lag, _ in lagging)
    if total <= budget:
        return {stream: lag for lag, stream in lagging}
    shares: dict[str, int] = {}
    for index, (lag, stream) in enumerate(lagging):
        if budget <= 0:
            break
        others = len(lagging) - index - 1
        share = max(1, min(lag, budget * lag // total, budget - others))
        shares[stream] = share
        budget -= share
        total -= lag
    return shares


def split(ranges: Iterable[Range], entries_max: int) -> list[Range]:
    """Split ranges that are longer than `entries_max`; their ids must be consecutive (PM-10)."""
    pieces: list[Range] = []
    for piece in ranges:
        first = piece.through.seq - piece.entries + 1
        after = piece.after
        for begin in range(0, piece.entries, entries_max):
            count = min(entries_max, piece.entries - begin)
            through = EntryId(piece.through.epoch, first + begin + count - 1)
            pieces.append(Range(piece.stream, after, through, count))
            after = through
    return pieces


def pack(ranges: Iterable[Range], bins: int) -> list[list[Range]]:
    """Spread ranges over at most `bins` tasks so that all have about the same number of entries; no task is empty
    (PM-5)."""
    ordered = sorted(ranges, key=lambda piece: (-piece.entries, piece))
    tasks: list[list[Range]] = [[] for _ in range(min(bins, len(ordered)))]
    loads = [0] * len(tasks)
    for piece in ordered:
        lightest = loads.index(min(loads))
        tasks[lightest].append(piece)
        loads[lightest] += piece.entries
    return [sorted(task) for task in tasks]


def _count(ranges: Iterable[Range]) -> int:
    return sum(piece.entries for piece in ranges)
