"""The state stored by the share coordinator: the product's state batches, and a model with one rank per offset (SC-104,
PL-706).

After each write a new leader is created from both, so that loading the stored state is compared, too.
"""

from __future__ import annotations

from typing import Final

from kip932.failures import Failure, merge_failures
from kip932.state_batches import StateBatch, merge_into
from tests.model.pair import DifferenceError, Pair, reasons_of
from tests.model.records import Rank, Reason, Rules, alike

#: A write: generation, start offset, delivery complete count, offset → (count, state, end of its delay), SPEO, offset →
#: reason.
Write = tuple[int, int, int, dict[int, Rank], int, dict[int, Reason]]
RULES: Final = Rules(lock_ms=1_000, limit=5, locks_max=100, renew=True, dlq=False, letters_max=5_000)


class Store:
    """The stored state. `generation`: the highest one that wrote or read; lower ones are fenced (PL-602)."""

    def __init__(self, start: int) -> None:
        self.generation = 0
        self.start = start
        self.complete = 0
        self.ranks: dict[int, Rank] = {}
        self.batches: list[StateBatch] = []
        self.reasons: dict[int, Reason] = {}
        self.failures: tuple[Failure, ...] = ()

    def write(self, write: Write) -> bool:
        """Accept a write, unless it is fenced; return True if it was accepted."""
        generation, start, complete, states, _, reasons = write
        if generation < self.generation:
            return False
        self.generation = generation
        if start >= self.start:
            self.complete = max(self.complete, complete) if start == self.start else complete
        self.start = max(self.start, start)
        batches = [StateBatch(first, last, state, count, until) for first, last, (count, state, until) in alike(states)]
        self.batches = merge_into(self.batches, batches, self.start)
        for offset, rank in states.items():
            self.ranks[offset] = max(self.ranks.get(offset, (-1, -1, 0)), rank)
        self.ranks = {offset: rank for offset, rank in self.ranks.items() if offset >= self.start}
        failures = [Failure(first, last, *why) for first, last, why in alike(reasons)]
        self.failures = merge_failures(self.failures, failures, self.start)
        for offset, why in reasons.items():
            self.reasons[offset] = max(why, self.reasons.get(offset, why))
        self.reasons = {offset: why for offset, why in self.reasons.items() if offset >= self.start}
        self.compare()
        return True

    def read(self, generation: int) -> None:
        """Note that a leader has read the state; older generations are fenced from now on."""
        self.generation = max(self.generation, generation)

    def compare(self) -> None:
        """Check that both agree, and so do leaders created from them."""
        found = {
            offset: (count, state, until)
            for first, last, state, count, until in self.batches
            for offset in range(first, last + 1)
        }  # fmt: skip
        if found != self.ranks:
            raise DifferenceError(f"stored: product {found}, model {self.ranks}")
        if (said := reasons_of(self.failures)) != self.reasons:
            raise DifferenceError(f"stored reasons: product {said}, model {self.reasons}")
        Pair(1, RULES).load(self.start, self.batches, self.ranks, False, self.failures, self.reasons)
