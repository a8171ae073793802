"""The seeds that CI plays: a fixed set and some that were never played before. A failure message names the seed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import pytest

from tests.simulation.pool import Played, run

RULES = pytest.mark.rule(
    "INV-1", "INV-2", "INV-3", "INV-4", "INV-5", "INV-6", "INV-7", "INV-8", "INV-9", "INV-10", "INV-11", "INV-12",
    "INV-13", "INV-14", "INV-15", "INV-16", "INV-17", "INV-19", "INV-20", "CM-12", "CM-43",
)  # fmt: skip
#: The first ones are played daily.
FIXED = (range(1, 21), range(21, 101))
#: How many seconds fresh seeds are played.
FRESH_S = 20.0
FRESH_MAX = 1_000
#: Greater than the default seeds of `make sim`.
FRESH_FROM = 2_000_000


def explained(failed: Sequence[Played]) -> str:
    """Return what each seed broke, with the first one's story."""
    lines = [f"seed {each.seed}: {'; '.join(each.violations)}\n  make sim SEED={each.seed}" for each in failed]
    return "\n".join([*lines, "", failed[0].story])


@RULES
def test_nothing_breaks_in_the_histories_of_the_first_seeds() -> None:
    play(FIXED[0])


@RULES
def test_nothing_breaks_in_the_histories_of_more_fixed_seeds() -> None:
    play(FIXED[1])


def play(seeds: range) -> None:
    summary = run(seeds)
    assert not summary.failed, explained(summary.failed)
    assert summary.histories == len(seeds)
    assert summary.operations > 200 * len(seeds)


@RULES
def test_nothing_breaks_in_the_histories_of_fresh_seeds() -> None:
    first = FRESH_FROM + time.time_ns() // 1_000_000 % 1_000_000_000
    print(f"fresh seeds from {first}", file=sys.stderr)
    summary = run(range(first, first + FRESH_MAX), seconds=FRESH_S)
    assert not summary.failed, explained(summary.failed)
    assert summary.histories
