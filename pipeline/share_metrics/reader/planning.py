"""Plans the ranges of streams to read next, and finds entries that are already lost (PM-9…PM-11).

Pure, except that it reads a few ids through `StreamQueries`; planning never transfers an entry's payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from share_metrics.reader.offsets import NO_STREAM, EntryId, Gap, Position, Range, Tip


class StreamQueries(Protocol):
    """The queries to the store that planning needs."""

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
        return _passed(stream, start, goal)
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
        gaps.append(Gap(stream, start.id, start.id, n + planned - known, "tail"))
    else:
        gaps.append(Gap(stream, start.id, end_id, known - n - planned, "missing"))
    return StreamPlan(Position(end_id, known), ranges, gaps)


def _passed(stream: str, start: Position, goal: Goal) -> StreamPlan:
    """The plan for a goal that `start` has reached. If the goal's count is another one, see `_recounted`."""
    if goal.through == start.id and goal.n is not None and goal.n != start.n:
        return StreamPlan(Position(start.id, goal.n), [], _recounted(stream, start, goal.n, start.id))
    return StreamPlan(start, [], [])


def _recounted(stream: str, start: Position, n: int, last: EntryId) -> list[Gap]:
    """The gaps when the store now counts `n` entries up to a position, `last` being its newest one there.

    If they are fewer, a tail was lost. If they are more, entries were written afterwards under ids that were already
    read, as to a store that was restored from an old copy. They are never read.
    """
    lost, reason = (start.n - n, "tail") if n < start.n else (n - start.n, "missing")
    return [Gap(stream, min(start.id, last), start.id, lost, reason)] if lost else []


def _before(  # noqa: PLR0917 - the inputs of a plan
    stream: str, start: Position, tip: Tip, through: EntryId, known: int | None, queries: StreamQueries
) -> tuple[int, list[Gap]]:
    """Entries added up to `start`, or up to the first stored one if that is later; and the gaps before it."""
    if tip.added < start.n or tip.last < start.id:
        n = _added_up_to(stream, start.id, tip, queries)
        # Without a gap the loss was already reported: the position stays until newer entries arrive.
        return n, _recounted(stream, start, n, tip.last)
    gone = tip.trimmed if known is None else min(tip.trimmed, known)
    if gone <= start.n:
        return start.n, []
    first = tip.first if tip.length else tip.last
    return gone, [Gap(stream, start.id, min(first, through), gone - start.n, "trimmed")]


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
