"""Two nodes with every role under random faults: kills, stops, lost and late store replies, broken streams, fail-overs.

A failing seed is run again by its number; `Run.log` then says what was done to the cluster, and when.
"""

from __future__ import annotations

import pytest

from tests.unit.adversarial.runs import trial

RULES = pytest.mark.rule("INV-1", "INV-2", "INV-4", "INV-5", "INV-6", "INV-7", "INV-11", "INV-12", "CM-12", "CM-43")


@RULES
@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_delivered_behind_its_accept_on_a_single_store(seed: int) -> None:
    faults, done = trial(seed)
    assert not faults, "\n".join([f"seed {seed}", *done.log, *faults])
    assert len(done.books.confirmed) > 100


@RULES
@pytest.mark.parametrize("seed", range(100, 108))
def test_nothing_is_lost_or_delivered_behind_its_accept_across_fail_overs(seed: int) -> None:
    faults, done = trial(seed, replicas=2)
    assert not faults, "\n".join([f"seed {seed}", *done.log, *faults])
    assert len(done.books.confirmed) > 100
