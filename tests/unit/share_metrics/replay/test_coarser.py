"""Windows of an hour that are merged from those of a minute are those of a pass over the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from share_metrics.archive.page_rows import NO_END, PageFiles
from share_metrics.replay.coarser import coarser_tallies, coarser_windows
from share_metrics.replay.measuring import EVERY, Measured, measured
from share_metrics.replay.tally_rows import tally_row
from tests.support.kept_history import History

_HOUR_US = 3_600_000_000


def found(data: Path, history: History, window_us: int) -> list[Measured]:
    (rows,) = PageFiles(data, history.at(0), NO_END).states()
    return list(measured(rows.select(list(EVERY.needed)).to_batches(), window_us))


@pytest.mark.rule("PM-114")
@pytest.mark.parametrize(("seed", "window_us"), [(1, 60_000_000), (2, 60_000_000), (3, 10_000_000)])
def test_merged_windows_are_those_of_a_pass_with_larger_windows(tmp_path: Path, seed: int, window_us: int) -> None:
    history = History(seed)
    data = history.store(tmp_path)
    merged = 0
    for small, large in zip(found(data, history, window_us), found(data, history, _HOUR_US), strict=True):
        for key, progress in small.progress.items():
            windows = coarser_windows(progress.windows, _HOUR_US)
            expected = large.progress[key].windows
            assert {at: one.row() for at, one in windows.items()} == {at: one.row() for at, one in expected.items()}
            assert {at: one.era for at, one in windows.items()} == {at: one.era for at, one in expected.items()}
            merged += len(progress.windows) - len(windows)
        for key, replay in small.replays.items():
            tallies = coarser_tallies(replay.windows, _HOUR_US)
            expected_rows = {at: tally_row(one) for at, one in large.replays[key].windows.items()}
            assert {at: tally_row(one) for at, one in tallies.items()} == expected_rows
    assert merged > 50
