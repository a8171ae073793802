"""Computes the progress of share-partitions from columns of their records: steps, and sums by window. Pure.

`metrics.progress` explains the sums (PM-40…PM-46, PM-52, PM-53, PM-59, PM-60).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from share_metrics.reader.schemas import WRITE_COUNTS
from share_metrics.replay.columns import begins, carried
from share_metrics.replay.write_columns import SNAPSHOT, TOMBSTONE, UPDATE, Writes

#: Bit of `cause` that marks a cold copy: it repeats state that was written before, and is not an event (CM-18).
COLD: Final = 64
#: Bit of `cause` that marks a write which finishes records after their dead letters were written.
LETTERS: Final = 8
#: The columns that identify one write of a leader among all writes of its share-partition (PM-20 X8).
WRITE: Final = ("leader_epoch", "generation", "write_id")
#: The sums of a window that are never null …
COUNTS: Final = (
    "spso_delta", "finished_count", "writes", "updates", "snapshots", "cold_snapshots", "entries", "snapshot_batches",
    "update_batches", "state_epoch_resets", "leader_epoch_changes", "falls", "tombstones",
)  # fmt: skip
#: … and those that are null where no record has them.
NULLABLE: Final = (
    "bytes", *(count.summed for count in WRITE_COUNTS.values()), "finished_known", "redelivered_lb", "reset_jump",
)  # fmt: skip
#: The newest values of the newest state. For `done` and `hwm` also the time at which they were written.
NEWEST: Final = ("spso", "done", "hwm", "speo", "state_epoch")
#: How long, in seconds, the end of a log counts as current after it was last seen: a default trigger, and what one
#: takes on a busy machine (PM-42).
FRESH_S: Final = 90
#: How long, in seconds, a share-partition with members may finish nothing before it counts as stalled (PM-61).
STALL_AFTER_S: Final = 300
#: Null, in columns of numbers without a mask.
_NONE: Final = np.iinfo(np.int64).min


class Value(NamedTuple):
    """A value, and the era and time (µs) in which it was written."""

    value: int
    era: int
    time_us: int


@dataclass(slots=True)
class Window:
    """One window of a share-partition. `sums`: of COUNTS and NULLABLE. `present`: counts of known NULLABLE values."""

    sums: Any
    present: Any
    newest: dict[str, Value] = field(default_factory=dict)
    #: The era of the newest record that is not a tombstone.
    era: int | None = None
    #: True if the newest record is a tombstone.
    gone: bool = False

    def row(self) -> dict[str, int | bool | None]:
        """The columns of the window. Values of an earlier life or state epoch are left out."""
        there = (self.present > 0).tolist()
        sums = dict(zip((*COUNTS, *NULLABLE), self.sums.tolist(), strict=True))
        found: dict[str, int | bool | None] = {name: sums[name] for name in COUNTS}
        found |= {name: sums[name] if known else None for name, known in zip(NULLABLE, there, strict=True)}
        for name in NEWEST:
            one = self.newest.get(name)
            shown = one if one is not None and one.era == self.era else None
            found[name] = shown.value if shown else None
            if name in {"done", "hwm"}:
                found[f"{name}_at"] = shown.time_us if shown else None
        return found | {"gone": self.gone}


class _Era(NamedTuple):
    """One life and state epoch of a share-partition so far; numbers may be _NONE."""

    number: int
    start: int = _NONE
    spso: int = _NONE
    done: int = _NONE


class _Steps(NamedTuple):
    """Columns of one life: values with gaps filled in, and steps between records."""

    epoch: Any
    era: Any
    spso: Any
    done: Any
    spso_step: Any
    done_step: Any


class Progress:
    """The progress of one share-partition. Call `take` for its records in id order."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._eras_begun = 0
        self._ended = True
        self.windows: dict[int, Window] = {}

    def take(self, writes: Writes) -> None:
        """Take the next records."""
        ends = (np.flatnonzero(writes.kind == TOMBSTONE) + 1).tolist()
        for begin, end in zip([0, *ends], [*ends, len(writes)], strict=True):
            if begin < end:
                if self._ended:
                    self._begin_life()
                self._take(writes[begin:end])
                self._ended = bool(writes.kind[end - 1] == TOMBSTONE)

    def rows(self) -> Iterator[dict[str, int | bool | None]]:
        """One row for each window, in order; `window` is its start in µs."""
        for at, window in sorted(self.windows.items()):
            yield {"window": at, **window.row()}

    def _begin_life(self) -> None:
        """Reset the state, since nothing is carried across a tombstone."""
        self._eras: dict[int, _Era] = {}
        self._epoch = self._spso = self._led = _NONE
        self._write = (_NONE, _NONE, _NONE)

    def _take(self, writes: Writes) -> None:
        """Take records of one life."""
        live = writes.kind != TOMBSTONE
        steps = self._steps(writes, live)
        reset, jump = self._resets(steps)
        leader, led = writes.column("leader_epoch")
        leaders = carried(leader, led, self._led)
        before = np.append([self._led], leaders[:-1])
        new_leader = led & (before != _NONE) & (leader > before)
        self._led = int(leaders[-1])
        again = self._repeated(writes)
        cold = live & _is_cold(writes)
        nullable, known = _nullable(writes, ~again, ~cold)
        nullable["reset_jump"], known["reset_jump"] = np.where(jump == _NONE, 0, jump), jump != _NONE
        update, snapshot = writes.kind == UPDATE, writes.kind == SNAPSHOT
        batches = np.diff(writes.offsets)
        counts = {
            "spso_delta": np.where(steps.spso_step == _NONE, 0, steps.spso_step),
            "finished_count": np.where(steps.done_step == _NONE, 0, steps.done_step),
            "writes": live & ~cold & ~again,
            "updates": update & ~cold,
            "snapshots": snapshot & ~cold,
            "cold_snapshots": snapshot & cold,
            "entries": np.ones(len(writes), dtype=np.int64),
            "snapshot_batches": np.where(snapshot, batches, 0),
            "update_batches": np.where(update, batches, 0),
            "state_epoch_resets": reset,
            "leader_epoch_changes": new_leader,
            "falls": (steps.done_step < 0) & (steps.done_step != _NONE),
            "tombstones": ~live,
        }
        sums = np.stack([*(counts[name].astype(np.int64) for name in COUNTS), *(nullable[name] for name in NULLABLE)])
        self._add(writes, steps, sums, np.stack([known[name] for name in NULLABLE]).astype(np.int64))

    def _steps(self, writes: Writes, live: Any) -> _Steps:
        """Fill in absent state epochs and start offsets from earlier records, and compute the steps of each era."""
        size = len(writes)
        epoch = carried(*writes.column("state_epoch"), self._epoch)
        start, start_known = writes.column("start_offset")
        complete = np.maximum(writes.column("delivery_complete_count")[0], 0)
        era, spso, done, spso_step, done_step = (np.full(size, _NONE) for _ in range(5))
        epochs = [int(epoch[0])] if (epoch == epoch[0]).all() else dict.fromkeys(epoch.tolist())
        for one in epochs:
            at = np.flatnonzero(epoch == one)
            if one not in self._eras:
                self._eras[one] = _Era(self._eras_begun)
                self._eras_begun += 1
            before = self._eras[one]
            filled = carried(start[at], start_known[at], before.start)
            spso[at] = np.where(live[at], filled, _NONE)
            done[at] = np.where(spso[at] == _NONE, _NONE, spso[at] + complete[at])
            era[at] = before.number
            spso_step[at] = _step(spso[at], before.spso)
            done_step[at] = _step(done[at], before.done)
            self._eras[one] = _Era(before.number, int(filled[-1]), int(spso[at[-1]]), int(done[at[-1]]))
        return _Steps(epoch, era, spso, done, spso_step, done_step)

    def _resets(self, steps: _Steps) -> tuple[Any, Any]:
        """The records whose state epoch differs from that of the previous record, and the jumps of the start offset."""
        before = np.append([self._epoch], steps.epoch[:-1])
        reset = (before != steps.epoch) & (before != _NONE) & (steps.epoch != _NONE)
        jump = np.where(reset, _step(steps.spso, self._spso), _NONE)
        self._epoch, self._spso = int(steps.epoch[-1]), int(steps.spso[-1])
        return reset, jump

    def _repeated(self, writes: Writes) -> Any:
        """Mark the records that hold the same write as the last numbered record before them (PM-34)."""
        numbered = np.flatnonzero(writes.column("write_id")[1])
        again = np.zeros(len(writes), dtype=bool)
        if len(numbered):
            columns = (np.where(known, values, _NONE)[numbered] for values, known in map(writes.column, WRITE))
            write = np.stack([*columns])
            before = np.concatenate([np.array(self._write)[:, None], write[:, :-1]], axis=1)
            again[numbered] = (write == before).all(axis=0)
            self._write = (int(write[0, -1]), int(write[1, -1]), int(write[2, -1]))
        return again

    def _add(self, writes: Writes, steps: _Steps, sums: Any, present: Any) -> None:
        """Add to the windows. Records before the first event time are in no window."""
        low = int(np.argmax(writes.timed)) if writes.timed.any() else len(writes)
        window = writes.time_us[low:] // self._window_us
        first = begins(window)
        if not len(first):
            return
        sums = np.add.reduceat(sums[:, low:], first, axis=1).T
        present = np.add.reduceat(present[:, low:], first, axis=1).T
        last = np.append(first[1:], len(window)) + low - 1
        newest = {name: self._newest(name, _last(there, last), writes, steps) for name, there in
                  self._there(writes, steps).items()}  # fmt: skip
        live = writes.kind != TOMBSTONE
        lives = _last(live, last)
        eras, lives, gone = steps.era[lives].tolist(), lives.tolist(), (~live[last]).tolist()
        begins_at = (first + low).tolist()
        for number, at in enumerate(window[first].tolist()):
            known = self.windows.setdefault(at * self._window_us, Window(0, 0))
            known.sums, known.present = known.sums + sums[number], known.present + present[number]
            begin = begins_at[number]
            known.gone = gone[number]
            if lives[number] >= begin:
                known.era = eras[number]
            for name, (rows, values) in newest.items():
                if rows[number] >= begin:
                    known.newest[name] = values[number]

    @staticmethod
    def _newest(name: str, rows: Any, writes: Writes, steps: _Steps) -> tuple[list[int], list[Value]]:
        """These rows, as a list, and the values of a name in them; −1 is a row whose value is not used."""
        values = getattr(steps, _OF_STEPS[name]) if name in _OF_STEPS else writes.column(name)[0]
        columns = (values[rows], steps.era[rows], writes.time_us[rows])
        return rows.tolist(), list(map(Value, *(column.tolist() for column in columns)))

    @staticmethod
    def _there(writes: Writes, steps: _Steps) -> dict[str, Any]:
        """For each name of NEWEST, which records have a value."""
        return {
            "spso": steps.spso != _NONE,
            "done": steps.done != _NONE,
            "hwm": writes.column("hwm")[1],
            "speo": writes.column("speo")[1],
            "state_epoch": steps.epoch != _NONE,
        }


_OF_STEPS: Final = {"spso": "spso", "done": "done", "state_epoch": "epoch"}


def _step(values: Any, before: int) -> Any:
    """The difference from the previous row; _NONE where one of the two is _NONE."""
    earlier = np.append([before], values[:-1])
    with np.errstate(over="ignore"):
        return np.where((values == _NONE) | (earlier == _NONE), _NONE, values - earlier)


def _last(there: Any, ends: Any) -> Any:
    """For each end, the index of the last row up to it for which `there` is true; −1 without any."""
    return np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))[ends]


def _is_cold(writes: Writes) -> Any:
    """Mark the records that are cold copies, by the cause (X2) or by the times (PM-43)."""
    created, has_created = writes.column("create_ts")
    written, has_written = writes.column("write_ts")
    return ((writes.column("cause")[0] & COLD) != 0) | (has_created & has_written & (created != written))


def _nullable(writes: Writes, first: Any, warm: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records' values by the names of NULLABLE, 0 where absent, and masks of where they are present.

    `first`: which records do not repeat a write. `warm`: which are not cold copies.
    """
    values: dict[str, Any] = {"bytes": writes.column("bytes")[0]}
    known: dict[str, Any] = {"bytes": writes.column("bytes")[1]}
    counters = {}
    for name, count in WRITE_COUNTS.items():
        number, there = writes.column(name)
        there = there & first
        counters[name] = (np.where(there, number, 0), there)
        known[count.summed] = there & warm
        values[count.summed] = np.where(known[count.summed], number, 0)
    kinds = [counters[name] for name, count in WRITE_COUNTS.items() if count.finishes]
    finished = sum(number for number, _ in kinds)
    known["finished_known"] = np.logical_or.reduce([there for _, there in kinds]) & warm
    values["finished_known"] = np.where(known["finished_known"], finished, 0)
    known["redelivered_lb"] = warm
    values["redelivered_lb"] = np.where(known["finished_known"], _redelivered(writes, first, finished), 0)
    return values, known


def _redelivered(writes: Writes, first: Any, finished: Any) -> Any:
    """How many records of a write were delivered more than once, by X4: exact up to 2 deliveries, else a lower bound.

    A record with a dead letter is in n_reject or n_limit of one write and in sum_dc of a later one, after its dead
    letter was written. So the later write is not counted, and the earlier one seems to have had fewer deliveries.
    """
    most, most_known = writes.column("max_dc")
    total, total_known = writes.column("sum_dc")
    letters = (writes.column("cause")[0] & LETTERS) != 0
    known = most_known & total_known & first & (most > 1) & ~letters
    extra = np.where(known, total - finished, 0) / np.where(known, most - 1, 1)
    return np.maximum(np.ceil(extra), 0).astype(np.int64)
