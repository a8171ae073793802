"""Replays runs of plain writes of a share-partition in columns, many at once (PM-32). Pure.

A write is plain if it is an update that neither lowers the start offset nor concerns records that are listed as failed
or near their limit. For such writes the result of the combine function at each offset is a running maximum: the highest
(delivery count, delivery state, instant) so far (SC-104, SC-111). All other writes, and runs that are too short to be
worth it, go through `Replay.apply` one by one; both ways count the same.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from share_metrics.replay.append_times import StepColumns, took_columns
from share_metrics.replay.columns import carried, one, spread
from share_metrics.replay.replay import HISTOGRAM_MAX, Replay, Tally, Waiting
from share_metrics.replay.write_columns import UPDATE, Writes

#: A run of fewer writes is replayed one by one, which is faster.
RUN_MIN: Final = 24
#: The maximum number of writes that are replayed at once.
RUN_MAX: Final = 4_096
#: The maximum number of pieces per batch and write; a run that would need more is replayed one by one.
_PIECES_MAX: Final = 64
_UNTIL_BITS: Final = 44
_COUNT_MAX: Final = 1 << 16
_OFFSET_MAX: Final = 1 << 60
_NONE: Final = StateBatch(-1, -2, 0, 0)
#: Upper bounds of a batch's fields, exclusive, so that count, state and instant fit into one number.
_BOUNDS: Final = (_OFFSET_MAX, _OFFSET_MAX, STATE_ARCHIVED + 1, _COUNT_MAX, 1 << _UNTIL_BITS)


class Pieces(NamedTuple):
    """The states that writes give to offsets, split at all relevant edges, in the order of offsets and then of writes.

    `edges` are offsets; piece `at[i]` extends from `edges[at[i]]` to before the next edge. `write[i]`: the write that
    gave the state; −1 for the state before the run. `rank[i]`: the highest delivery count and state of the piece up to
    this write. `was[i]`: the same before this write. `full[i]`: as `rank[i]`, with the instant too. `keys[i]`: the sort
    key of piece and write. `reach[w + 1]`: the index after the last piece of the writes up to `w`.
    """

    edges: Any
    at: Any
    write: Any
    was: Any
    rank: Any
    full: Any
    keys: Any
    reach: Any

    def said(self, pieces: Any, write: Any) -> tuple[Any, Any]:
        """For each of `pieces`, the index of its last state up to a write, and whether it has any."""
        if not len(self.at):
            return pieces, np.zeros(len(pieces), dtype=bool)
        found = np.searchsorted(self.keys, pieces * len(self.reach) + (write + 1), side="right") - 1
        return found, (found >= 0) & (self.at[found] == pieces)


class ColumnReplay(Replay):
    """A replay that also takes many writes at once."""

    def take(self, writes: Writes) -> None:
        """Take the next writes of this share-partition in id order."""
        begin = 0
        for end in (*np.flatnonzero(self._not_plain(writes)).tolist(), len(writes)):
            while begin < end:
                begin += self._plain(writes[begin : min(end, begin + RUN_MAX)])
            if end < len(writes):
                self.apply(writes.event(end))
            begin = end + 1

    def _plain(self, writes: Writes) -> int:
        """Take some or all of these writes, which are plain unless they concern listed records. Returns how many."""
        count = min(self._before_listed(writes), self._appended.room(*writes.column("hwm")))
        enough = self._known and count >= max(RUN_MIN, len(self._batches) // 16)
        if enough and self._losses == writes.losses[0] and self._run(writes[:count]):
            return count
        count = count if enough else min(len(writes), RUN_MIN)
        for event in writes[:count].events():
            self.apply(event)
        return count

    def _not_plain(self, writes: Writes) -> Any:
        """Mark the writes that are not plain, apart from those that concern records already listed."""
        start, start_known = writes.column("start_offset")
        limit, limit_known = writes.column("delivery_limit")
        starts = carried(start, start_known, self._start)
        limits = carried(limit, limit_known & (limit != 0), self._suspects.limit)
        odd = (writes.kind != UPDATE) | (start_known & (start < 0))
        odd |= np.isin(writes.place, np.fromiter(writes.archived, np.int64)) if writes.archived else False
        odd[1:] |= (starts[1:] < starts[:-1]) | (writes.losses[1:] != writes.losses[:-1])
        odd |= np.diff(limits, prepend=self._suspects.limit) != 0
        of = writes.of_batch
        first, last, state, count, until_ms = writes.batches
        silent, limit = ~writes.column("write_id")[1][of], limits[of]
        listed = ((state == STATE_AVAILABLE) & (count >= limit - 1)) | ((state == STATE_ARCHIVING) & silent)
        listed |= (state != STATE_AVAILABLE) & (state != STATE_ACKNOWLEDGED) & (count >= limit) & silent
        strange = (state < 0) | (state > STATE_ARCHIVED) | (count < 0) | (count >= _COUNT_MAX)
        strange |= (first < 0) | (last >= _OFFSET_MAX) | (until_ms < 0) | (until_ms >= 1 << _UNTIL_BITS)
        odd[of[listed | strange]] = True
        return odd

    def _before_listed(self, writes: Writes) -> int:
        """How many writes there are before the first one that concerns a listed record."""
        near, every = self._suspects.listed
        if not every:
            return len(writes)
        first, last, *_ = writes.batches
        touched = np.searchsorted(every, first) != np.searchsorted(every, last, side="right")
        found = writes.of_batch[touched].tolist()
        if near:
            passing = carried(*writes.column("start_offset"), self._start) > near[0]
            found += np.flatnonzero(passing & writes.column("write_id")[1])[:1].tolist()
        return int(min(found, default=len(writes)))

    def _run(self, writes: Writes) -> bool:
        """Take plain writes at once. Returns False, and changes nothing, if it cannot or if that would be slower."""
        starts = carried(*writes.column("start_offset"), self._start)
        pieces = self._pieces(writes, starts) if (np.diff(starts, prepend=self._start) >= 0).all() else None
        if pieces is None:
            return False
        steps = self._appended.run(writes.time_us, *writes.column("hwm"))
        tallies = _Tallies(self, writes.time_us)
        changed = np.flatnonzero((pieces.rank > pieces.was) & (pieces.write >= 0))
        at, write, rank = pieces.at[changed], pieces.write[changed], pieces.rank[changed]
        size = pieces.edges[at + 1] - pieces.edges[at]
        state, before = rank & 7, pieces.was[changed] & 7
        released = state == STATE_AVAILABLE
        final = _is_final(state) & (state != before)
        tallies.add("released_lb", write[released], size[released])
        for name, into in (("accepted_lb", STATE_ACKNOWLEDGED), ("archived_lb", STATE_ARCHIVED)):
            tallies.add(name, write[final & (state == into)], size[final & (state == into)])
        tallies.add_counts(write[final], rank[final] >> 3, size[final])
        passed, passing, open_ = self._passed(pieces, starts)
        ended = final & ~_is_final(before)
        took_at = np.concatenate([passed[open_], at[ended]])
        took_by = np.concatenate([passing[open_], write[ended]])
        tallies.add_ends(took_columns(steps, pieces.edges[took_at], pieces.edges[took_at + 1] - 1, took_by), steps)
        finals = (np.concatenate([at[final], passed]), np.concatenate([write[final], passing]))
        self._wait_for(pieces, (at[released], write[released]), finals, tallies)
        tallies.note_states(pieces, starts)
        self._start = int(starts[-1])
        self._appended.ran(steps, self._start)
        self._suspects.heard(bool(writes.column("write_id")[1][-1]))
        self._batches = _batches_at(pieces, len(writes) - 1, self._start)
        return True

    def _pieces(self, writes: Writes, starts: Any) -> Pieces | None:
        """The pieces of the writes and of the state before them. None if there are too many or values are too large."""
        of = writes.of_batch
        live = writes.batches.copy()
        live[0] = np.maximum(live[0], starts[of])
        kept = live[0] <= live[1]
        old = np.array(self._batches or [_NONE], dtype=np.int64)[: len(self._batches)]
        if (old >= _BOUNDS).any():
            return None
        first, last, state, count, until = np.concatenate([old.T, live[:, kept]], axis=1)
        end = last + 1
        write = np.concatenate([np.full(len(old), -1), of[kept]])
        ends = [offset for span in self._waiting for offset in (span.first, span.last + 1)]
        edges = np.unique(np.concatenate([first, end, starts, np.array([self._start, *ends], dtype=np.int64)]))
        low, high = np.searchsorted(edges, first), np.searchsorted(edges, end)
        if (high - low).sum() > _PIECES_MAX * (len(first) + len(writes)):
            return None
        source, at = spread(low, high)
        writes_and_one = len(writes) + 1
        keys = at * writes_and_one + write[source] + 1
        full = (((count << 3) | state) << _UNTIL_BITS) | until
        order = np.lexsort((full[source], keys)) if _repeats(writes) else np.argsort(keys, kind="stable")
        keys = keys[order]
        last_of = np.append(keys[1:] != keys[:-1], one(keys))  # the highest state of each write and piece
        order, keys = order[last_of], keys[last_of]
        source, at = source[order], at[order]
        levels, level = np.unique(full[source], return_inverse=True)
        full = levels[np.maximum.accumulate((at << 32) | level) & 0xFFFFFFFF] if len(at) else full[source]
        rank = full >> _UNTIL_BITS
        was = np.zeros_like(rank)
        was[1:] = np.where(at[1:] == at[:-1], rank[:-1], 0)
        reach = np.zeros(writes_and_one, dtype=np.int64)
        np.maximum.at(reach, write + 1, high)
        return Pieces(edges, at, write[source], was, rank, full, keys, np.maximum.accumulate(reach))

    def _passed(self, pieces: Pieces, starts: Any) -> tuple[Any, Any, Any]:
        """The pieces that the start offset passes, the write at which it does, and whether they had not yet ended."""
        low, high = np.searchsorted(pieces.edges, [self._start, starts[-1]])
        passed = np.arange(low, high)
        index, there = pieces.said(passed, len(starts) - 1)
        open_ = ~there
        open_[there] = ~_is_final(pieces.rank[index[there]] & 7)
        return passed, np.searchsorted(starts, pieces.edges[passed], side="right"), open_

    def _wait_for(self, pieces: Pieces, releases: tuple[Any, Any], finals: tuple[Any, Any], tallies: _Tallies) -> None:
        """Track released records from their first release until they are final."""
        edges, times = pieces.edges, tallies.time_us
        old = np.array([(span.first, span.last + 1, span.since_us) for span in self._waiting] or [(0, 0, 0)], np.int64)
        of, waiting = spread(np.searchsorted(edges, old[:, 0]), np.searchsorted(edges, old[:, 1]))
        at = np.concatenate([waiting, releases[0], finals[0]])
        write = np.concatenate([np.full(len(waiting), -1), releases[1], finals[1]])
        since = np.concatenate([old[of, 2], times[releases[1]], times[finals[1]]])
        final = np.concatenate([np.zeros(len(waiting) + len(releases[0]), bool), np.ones(len(finals[0]), bool)])
        order = np.argsort(at * len(pieces.reach) + write + 1, kind="stable")
        at, write, since, final = at[order], write[order], since[order], final[order]
        other = at[1:] != at[:-1]
        begins = np.append(one(at), other | final[:-1])
        begun = np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0))
        done = np.flatnonzero(final & ~begins)
        size = edges[at[done] + 1] - edges[at[done]]
        tallies.add_latencies(write[done], (since[done] - since[begun[done]]) // 1000, size)
        left = np.flatnonzero(np.append(other, one(at)) & ~final)
        self._waiting = [
            Waiting(first, end - 1, at_us)
            for first, end, at_us in zip(
                edges[at[left]].tolist(), edges[at[left] + 1].tolist(), since[begun[left]].tolist(), strict=True
            )
        ]

    def tally_of(self, window: int) -> Tally:
        """Make a window the current one, and return its tally."""
        if window != self._window:
            self._close()
            self._window = window
            self._tally = self._windows.setdefault(window * self._window_us, Tally())
        return self._tally

    @property
    def window_us(self) -> int:
        """The length of a window, µs."""
        return self._window_us


class _Tallies:
    """The tallies of the windows of a run."""

    def __init__(self, replay: ColumnReplay, time_us: Any) -> None:
        self.time_us = time_us
        self._window_us = replay.window_us
        windows = time_us // replay.window_us
        begins = np.append([True], windows[1:] != windows[:-1])
        self._of_write = np.cumsum(begins) - 1
        self._last = np.append(np.flatnonzero(begins)[1:], len(time_us)) - 1
        self._windows = windows[self._last].tolist()
        self._tallies = [replay.tally_of(window) for window in self._windows]

    def _sums(self, write: Any, values: Any, columns: int = 1, column: Any = 0) -> Any:
        found = np.zeros(len(self._tallies) * columns, dtype=np.int64)
        np.add.at(found, self._of_write[write] * columns + column, values)
        return found.reshape(-1, columns)

    def add(self, name: str, write: Any, sizes: Any) -> None:
        """Add to the count `name` of the windows that contain these writes."""
        for tally, (value,) in zip(self._tallies, self._sums(write, sizes).tolist(), strict=True):
            setattr(tally, name, getattr(tally, name) + value)

    def add_counts(self, write: Any, counts: Any, sizes: Any) -> None:
        """Add to the histogram of delivery counts."""
        found = self._sums(write, sizes, HISTOGRAM_MAX, np.clip(counts, 1, HISTOGRAM_MAX) - 1)
        for tally, values in zip(self._tallies, found.tolist(), strict=True):
            tally.histogram = [before + more for before, more in zip(tally.histogram, values, strict=True)]

    def add_latencies(self, write: Any, ms: Any, sizes: Any) -> None:
        """Add how long records took from their first release."""
        order = np.argsort(self._of_write[write], kind="stable")
        edges = np.searchsorted(self._of_write[write][order], np.arange(len(self._tallies) + 1)).tolist()
        found = list(zip(ms[order].tolist(), sizes[order].tolist(), strict=True))
        for tally, begin, end in zip(self._tallies, edges, edges[1:], strict=False):
            tally.latencies_ms += found[begin:end]

    def add_ends(self, took: tuple[Any, Any, Any], steps: StepColumns) -> None:
        """Add how long records took from their append."""
        write, step, records = took
        unknown = step < 0
        for tally, (value,) in zip(self._tallies, self._sums(write[unknown], records[unknown]).tolist(), strict=True):
            tally.ends.unknown += value
        write, step, records = write[~unknown], step[~unknown], records[~unknown]
        now_us = self.time_us[write]
        for name, edge in (("least", steps.by_us), ("most", steps.after_us)):
            values, index = steps.rounded(name, now_us - edge[step])
            found = self._sums(write, records, len(values), index)
            for window, column in zip(*(part.tolist() for part in np.nonzero(found)), strict=True):
                getattr(self._tallies[window].ends, name)[values[column]] += int(found[window, column])

    def note_states(self, pieces: Pieces, starts: Any) -> None:
        """Note the state at the end of each window."""
        for tally, window, last in zip(self._tallies, self._windows, self._last.tolist(), strict=True):
            start = int(starts[last])
            at, full = _states_after(pieces, last, start)
            begins = _begins(at, full)
            tally.in_flight_batches = int(begins.sum())
            tally.in_flight_width_lb = int(pieces.edges[at[-1] + 1]) - start if len(at) else 0
            until_us = (full & ((1 << _UNTIL_BITS) - 1)) * 1000
            waits: dict[int, int] = {}
            for piece in np.flatnonzero(until_us > (window + 1) * self._window_us).tolist():
                until = -(-int(until_us[piece]) // self._window_us) * self._window_us
                waits[until] = waits.get(until, 0) + int(pieces.edges[at[piece] + 1] - pieces.edges[at[piece]])
            tally.waits = tuple(sorted(waits.items()))


def _states_after(pieces: Pieces, write: int, start: int) -> tuple[Any, Any]:
    """The pieces that have a state after a write, and their values of `full`."""
    at = np.arange(np.searchsorted(pieces.edges, start), pieces.reach[write + 1])
    index, there = pieces.said(at, write)
    return at[there], pieces.full[index[there]]


def _begins(at: Any, full: Any) -> Any:
    """Mark the pieces that start a batch: adjacent pieces of equal rank form one batch (SC-108)."""
    return np.append(one(at), (np.diff(at) != 1) | (full[1:] != full[:-1]))


def _batches_at(pieces: Pieces, write: int, start: int) -> list[StateBatch]:
    at, full = _states_after(pieces, write, start)
    first = _begins(at, full)
    begins, ends = np.flatnonzero(first), np.flatnonzero(np.append(first[1:], one(at)))
    rank = full[begins]
    until = rank & ((1 << _UNTIL_BITS) - 1)
    state, count = (rank >> _UNTIL_BITS) & 7, rank >> (_UNTIL_BITS + 3)
    columns = (pieces.edges[at[begins]], pieces.edges[at[ends] + 1] - 1, state, count, until)
    return list(map(StateBatch, *(column.tolist() for column in columns)))


def _repeats(writes: Writes) -> bool:
    """Return whether batches of one write may overlap."""
    of, (first, last, *_) = writes.of_batch, writes.batches
    return bool(((of[1:] == of[:-1]) & (first[1:] <= last[:-1])).any() or (last < first).any())


def _is_final(state: Any) -> Any:
    return (state == STATE_ACKNOWLEDGED) | (state == STATE_ARCHIVED)
