"""A worker that gets a signal under load: the other workers get its records, and nothing is lost.

All combinations, with figures: `python -m tests.integration.worker.plays ends`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker.ends import Cell, Said, Seen, judged, play, standing_s
from tests.support.node import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.mark.rule("CL-127", "INV-1")
@pytest.mark.parametrize(("is_program", "status"), [(False, 143), (True, 0)])
def test_after_a_sigterm_under_load_nothing_is_lost_and_nothing_runs_twice(
    cluster: Cluster, tmp_path: Path, is_program: bool, status: int
) -> None:
    cell = Cell(signal.SIGTERM, "simple", 2, before_s=0.5, after_s=2.0, heartbeat_ms=500, is_program=is_program)
    seen = play(cluster, tmp_path, cell)
    assert seen.status == status
    assert (seen.lost, seen.twice) == (0, 0)
    assert seen.had


@pytest.mark.rule("INV-1")
def test_after_a_sigkill_under_load_only_what_was_in_hand_runs_twice(cluster: Cluster, tmp_path: Path) -> None:
    cell = Cell(signal.SIGKILL, "simple", 2, before_s=0.5, after_s=3.0, heartbeat_ms=500)
    seen = play(cluster, tmp_path, cell)
    assert seen.status == -signal.SIGKILL
    assert (seen.lost, seen.twice_elsewhere) == (0, 0)
    assert seen.had


def test_what_is_counted_of_a_killed_worker() -> None:
    lines = [
        (0, "begun", 0, 0, 1.0), (0, "ended", 0, 0, 1.1), (0, "begun", 0, 1, 1.2), (0, "begun", 0, 2, 1.3),
        (1, "begun", 1, 0, 1.4), (1, "ended", 1, 0, 1.5), (1, "begun", 0, 0, 3.5), (1, "ended", 0, 0, 3.6),
        (1, "begun", 0, 1, 3.7), (1, "ended", 0, 1, 3.8), (1, "begun", 1, 0, 3.9),
    ]  # fmt: skip
    said = [Said(*line) for line in lines]
    assert standing_s(said, 0, 1.35, 5.0) == pytest.approx(2.15)
    assert standing_s(said, 1, 1.35, 4.0) == pytest.approx(2.5)
    assert standing_s(said, 1, 4.0, 9.0) == pytest.approx(5.0)
    sent = {(0, 0), (0, 1), (0, 2), (1, 0)}
    assert judged(said, sent, (0,), -9, 2.15) == Seen(-9, (0,), 4, 2.15, 1, 3, 1, 1)
