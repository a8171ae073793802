"""Plays one seed in a worker of the pool."""

from __future__ import annotations

import time

from tests.simulation.pool import Played
from tests.simulation.simulate import simulate
from tests.simulation.story import story


def play(seed: int) -> Played:
    """Simulate a seed; the result includes its story if a rule was broken."""
    began = time.perf_counter()
    outcome = simulate(seed)
    return Played(
        seed,
        outcome.operations,
        tuple(map(str, outcome.violations)),
        outcome.rules,
        time.perf_counter() - began,
        story(outcome) if outcome.violations else "",
    )
