"""What became of one experiment on one driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.chaos.verdict import Recovered, Stall, Verdict

GOOD: Final = "good"
BAD: Final = "BAD"
SKIPPED: Final = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`reason`: why it was skipped, or what went wrong while it ran. A skipped one has no verdict."""

    name: str
    driver: str
    sentence: str
    shows: tuple[str, ...]
    seed: int
    result: str
    reason: str = ""
    seconds: float = 0.0
    verdict: Verdict | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Outcome:
        """From its JSON."""
        found = dict(fields)
        if (verdict := found.get("verdict")) is not None:
            recovered = tuple(Recovered(**one) for one in verdict["recovered"])
            stall = Stall(**verdict["stall"])
            violations = tuple(verdict["violations"])
            found["verdict"] = Verdict(**{**verdict, "recovered": recovered, "stall": stall, "violations": violations})
        return cls(**{**found, "shows": tuple(found["shows"])})

    def line(self) -> str:
        """For a run that is under way."""
        head = f"{self.name:<34}{self.result:<9}"
        if self.verdict is None:
            return f"{head}{self.reason}"
        found = self.verdict
        text = (
            f"{head}{self.seconds:>6.1f} s  records={found.records} lost={found.lost} "
            f"accepted_twice={found.accepted_twice} faults={found.faults}"
        )
        return "\n".join([text, *(f"    {problem}" for problem in self.problems()[:10])])

    def problems(self) -> list[str]:
        """What went wrong."""
        violations = self.verdict.violations if self.verdict is not None else ()
        reason = [self.reason] if self.reason and self.result != SKIPPED else []
        return [*reason, *violations]
