"""The outcome of one experiment on one driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.chaos.verdict import Recovered, Stall, Verdict

GOOD: Final = "good"
BAD: Final = "BAD"
SKIPPED: Final = "skipped"
OUTCOME_FILE: Final = "outcome.json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`reason`: why it was skipped, or what failed while it ran. A skipped experiment has no verdict.

    `allowed_…`: losses that are not in the verdict, from times for which docs/guarantees.md says "can be lost".
    """

    name: str
    driver: str
    sentence: str
    shows: tuple[str, ...]
    seed: int
    result: str
    reason: str = ""
    seconds: float = 0.0
    verdict: Verdict | None = None
    allowed_lost: int = 0
    allowed_accepted_twice: int = 0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Outcome:
        """Build an outcome from its JSON."""
        found = dict(fields)
        if (verdict := found.get("verdict")) is not None:
            recovered = tuple(Recovered(**one) for one in verdict["recovered"])
            stall = Stall(**verdict["stall"])
            violations = tuple(verdict["violations"])
            found["verdict"] = Verdict(**{**verdict, "recovered": recovered, "stall": stall, "violations": violations})
        return cls(**{**found, "shows": tuple(found["shows"])})

    def with_verdict(self, verdict: Verdict, result: str, allowed_lost: int, allowed_accepted_twice: int) -> Outcome:
        """Return the same experiment's outcome with a verdict."""
        return replace(
            self,
            verdict=verdict,
            result=result,
            allowed_lost=allowed_lost,
            allowed_accepted_twice=allowed_accepted_twice,
        )

    def line(self) -> str:
        """The line printed during a run."""
        head = f"{self.name:<34}{self.result:<9}"
        if self.verdict is None:
            return f"{head}{self.reason}"
        found = self.verdict
        text = (
            f"{head}{self.seconds:>6.1f} s  records={found.records} lost={found.lost} "
            f"accepted_twice={found.accepted_twice} faults={found.faults}{self.allowed()}"
        )
        return "\n".join([text, *(f"    {problem}" for problem in self.problems()[:10])])

    def allowed(self) -> str:
        """Describe the allowed losses; "" if there are none."""
        if not self.allowed_lost and not self.allowed_accepted_twice:
            return ""
        return f" (in cells 'can be lost': lost={self.allowed_lost} accepted_twice={self.allowed_accepted_twice})"

    def problems(self) -> list[str]:
        """Return what went wrong."""
        violations = self.verdict.violations if self.verdict is not None else ()
        reason = [self.reason] if self.reason and self.result != SKIPPED else []
        return [*reason, *violations]


def write_outcome(out: Path, outcome: Outcome) -> None:
    """Write it next to its histories."""
    (out / outcome.name / OUTCOME_FILE).write_text(json.dumps(asdict(outcome), indent=1) + "\n")


def read_outcome(path: Path) -> Outcome:
    """Read what `write_outcome` wrote."""
    return Outcome.of(json.loads(path.read_text()))
