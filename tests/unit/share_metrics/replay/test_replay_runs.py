"""Runs of writes replayed at once, compared with a replay record by record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932.state_batches import ArchivedRange, StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import decode, gap_row, to_batch
from share_metrics.replay import append_times, replay_runs, write_columns
from share_metrics.replay.measuring import Part, measured
from share_metrics.replay.replay import Replay, Tally, Waiting
from share_metrics.replay.write_columns import Blocks, by_stream
from tests.support.pipeline_entries import STREAM, UNHURRIED, snapshot, state_entry, update

MINUTE = 60_000_000
NEEDED = Part.REPLAY.needed


@contextmanager
def cut(block_rows: int, run_min: int, steps_max: int = append_times.STEPS_MAX) -> Iterator[None]:
    """Use small blocks and short runs, so that even short histories have many of both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_columns, "BLOCK_ROWS", block_rows)
        patch.setattr(replay_runs, "RUN_MIN", run_min)
        patch.setattr(append_times, "STEPS_MAX", steps_max)
        yield


def story(seed: int, length: int) -> list[dict[str, Any]]:
    """Records of a share-partition: mostly the usual writes of a leader, sometimes anything else that a log may
    contain."""
    rng = random.Random(seed)
    odd, wide, delays = rng.choice([0.0, 0.02, 0.2]), rng.choice([1, 4, 40]), rng.random() < 0.4
    reported, limits = rng.random() < 0.8, rng.choice([(5,), (2, 5), (None,)])
    start, hwm, at_ms, rows = 0, rng.randrange(5), 1_000_000, []
    stated: list[StateBatch] = []
    epoch = 1
    for seq in range(1, length + 1):
        at_ms += rng.choice([0, 1, 700, 21_000])
        start += rng.choice([0, 0, 0, 1, 2, wide])
        hwm += rng.choice([0, 1, 3]) if rng.random() < 0.9 else -1
        batches = [batch_of(rng, start, wide, at_ms if delays else 0) for _ in range(rng.randrange(4))]
        if rng.random() < 0.5:
            batches = sorted(batches)
        named = ArchivedRange(start, start + rng.randrange(3), 5, rng.choice([1, 2]))
        stats = WriteStats(
            1, hwm=max(hwm, 0) if rng.random() < 0.9 else None, write_id=seq if reported else None,
            delivery_limit=rng.choice(limits), archived=(named,) if rng.random() < odd else (),
        )  # fmt: skip
        what = rng.choice(["snapshot", "snapshot", "gap", "back", "epoch"]) if rng.random() < odd / 2 else "update"
        at = EntryId(1, seq)
        made: ShareRecord = update(start if rng.random() < 0.8 else -1, batches=batches, stats=stats)
        if what == "gap":
            rows.append(gap_row(Gap(STREAM, EntryId(1, seq - 1), at, 1, "trimmed")))
            continue
        if what == "back":
            start = max(0, start - rng.randrange(10))
            made = update(start, batches=batches, stats=stats)
        if what in {"snapshot", "epoch"} or seq == 1:
            epoch += what == "epoch"
            made = snapshot(start, batches=stated or batches, stats=stats, state_epoch=epoch)
        stated = batches
        rows.append(decode(Kind.SHARE_STATE, state_entry(at, made, at_ms)))
    return rows


def batch_of(rng: random.Random, start: int, wide: int, at_ms: int) -> StateBatch:
    first = max(0, start + rng.randrange(-2, 12))
    state = rng.choice([0, 0, 2, 2, 2, 4, 3])
    count = rng.choice([0, 1, 1, 1, 1, 2, 2, 3, 12])
    until_ms = at_ms + 100_000 if at_ms and not state and rng.random() < 0.3 else 0
    return StateBatch(first, first + rng.choice([-1, 0, 0, 1, 2, wide]), state, count, until_ms)


def one_by_one(rows: list[dict[str, Any]]) -> Replay:
    made = Replay(MINUTE)
    for _, blocks in by_stream([to_batch(Kind.SHARE_STATE, rows).select(NEEDED)]):
        stream = Blocks(whole=True)
        for block in blocks:
            for _, writes in stream.of(block):
                for number in range(len(writes)):
                    made.apply(writes.event(number))
    return made


def by_offset(tally: Tally) -> Tally:
    tally.latencies_ms = sorted((ms, 1) for ms, offsets in tally.latencies_ms for _ in range(offsets))
    return tally


def waiting(replay: Replay) -> list[tuple[int, int]]:
    found: list[Waiting] = replay._waiting
    return [(offset, one.since_us) for one in found for offset in range(one.first, one.last + 1)]


def same(made: Replay, expected: Replay) -> None:
    assert {at: by_offset(one) for at, one in made.windows.items()} == {
        at: by_offset(one) for at, one in expected.windows.items()
    }
    assert made.poison() == expected.poison()
    assert (made._batches, made._start, made._known) == (expected._batches, expected._start, expected._known)
    assert waiting(made) == waiting(expected)
    for name in ("_hwm", "_begin", "_at_us", "_steps"):
        assert getattr(made._appended, name) == getattr(expected._appended, name), name


@pytest.mark.rule("PM-32")
@settings(UNHURRIED, max_examples=120)
@given(st.integers(0, 1 << 60), st.integers(1, 120), st.sampled_from([1, 7, 1_000]), st.sampled_from([1, 2, 9]))
def test_what_is_replayed_at_once_counts_as_one_by_one(seed: int, length: int, block_rows: int, run_min: int) -> None:
    rows = story(seed, length)
    with cut(block_rows, run_min):
        whole = to_batch(Kind.SHARE_STATE, rows).select(NEEDED)
        pieces = [whole.slice(at, block_rows) for at in range(0, len(rows), block_rows)]
        (found,) = measured(pieces, MINUTE, parts=Part.REPLAY)
    for made in found.replays.values():
        same(made, one_by_one(rows))
