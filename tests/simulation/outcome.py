"""The outcome of one simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation.checkers import Violation
from tests.simulation.final import Final
from tests.simulation.history import History
from tests.simulation.plan import Plan


@dataclass(frozen=True)
class Outcome:
    """A finished run: its plan, its history, and its violations.

    `crew` names the workloads that took part, `topics` maps every topic id that ever existed to its name.
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
        """Return the number of client operations in the run."""
        return self.history.operations

    @property
    def rules(self) -> tuple[str, ...]:
        """Return the broken rules, without duplicates."""
        return tuple(dict.fromkeys(violation.rule for violation in self.violations))
