"""What came of one simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation.checkers import Violation
from tests.simulation.final import Final
from tests.simulation.history import History
from tests.simulation.plan import Plan


@dataclass(frozen=True)
class Outcome:
    """A run that is over: what was planned, what happened, and what of it must not be.

    `crew` names the workloads that took part, `topics` gives every topic id that ever existed its name.
    """

    seed: int
    plan: Plan
    history: History
    final: Final
    violations: tuple[Violation, ...]
    crew: tuple[str, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def operations(self) -> int:
        """How many operations of clients the run had."""
        return self.history.operations

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that it broke, each once."""
        return tuple(dict.fromkeys(violation.rule for violation in self.violations))
