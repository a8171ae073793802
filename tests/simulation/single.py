"""Plays one seed and prints its full story: with its own plan or a given one, and with the shortest that breaks the
same rule."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan
from tests.simulation.pool import Played, Summary
from tests.simulation.shrink import Shrinker
from tests.simulation.simulate import simulate
from tests.simulation.story import story

KEPT: Final = Path(__file__).parent / "kept"


@dataclass(frozen=True)
class Kept:
    """A scenario that once broke a rule: why it is kept, its seed, and the shortest plan that reproduced it."""

    why: str
    seed: int
    plan: Plan

    def text(self) -> str:
        """Return its text, as stored in `kept/`."""
        return json.dumps({"why": self.why, "seed": self.seed, "plan": self.plan.as_json()}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Kept:
        """Read a file in `kept/`. Raises ValueError or KeyError if it is malformed."""
        said = json.loads(path.read_text(encoding="utf-8"))
        return cls(said["why"], said["seed"], Plan.from_json(said["plan"]))


def kept_paths() -> list[Path]:
    """Return the paths of all kept scenarios, by name."""
    return sorted(KEPT.glob("*.json"))


def play_kept(number: int) -> Played:
    """Play the kept scenario with this number, in a worker of the pool."""
    kept = Kept.read(kept_paths()[number])
    outcome = simulate(kept.seed, kept.plan)
    as_story = story(outcome) if outcome.violations else ""
    return Played(number, outcome.operations, tuple(map(str, outcome.violations)), outcome.rules, story=as_story)


def plan_of(text: str) -> Plan | None:
    """Return the plan in a JSON text, in a file with such a text, or in a file in `kept/`; None for ""."""
    if not text:
        return None
    said: Any = json.loads(text if text.startswith("{") else Path(text).read_text(encoding="utf-8"))
    return Plan.from_json(said.get("plan", said))


def play_one(seed: int, plan: str = "", out: str = "", events: int = 40, shrink: bool = False) -> int:
    """Play a seed, print its story, and shrink its plan if requested; return the exit code."""
    summary = Summary()
    log_lines: list[str] | None = [] if out else None
    outcome = simulate(seed, plan_of(plan), log_lines)
    _count(summary, outcome)
    print(story(outcome, events))
    if out:
        write(Path(out), outcome, log_lines or [])
        print(f"everything: {out}")
    if shrink and outcome.violations:
        _shrink(outcome, summary, events)
    print(summary.line())
    return 1 if outcome.violations else 0


def write(path: Path, outcome: Outcome, log_lines: list[str]) -> None:
    """Write the whole run to a file: its story, every event, and what the services logged."""
    parts = [story(outcome), "-- every event", outcome.history.text(), "-- every log line", *log_lines]
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _count(summary: Summary, outcome: Outcome) -> None:
    summary.add(Played(outcome.seed, outcome.operations, tuple(map(str, outcome.violations))))


def _shrink(outcome: Outcome, summary: Summary, events: int) -> None:
    rule, began = outcome.rules[0], time.monotonic()
    shrinker = Shrinker(breaks(outcome.seed, rule))
    shortest = shrinker.shrink(outcome.plan, outcome.crew)
    again = simulate(outcome.seed, shortest)
    seconds = time.monotonic() - began
    print(f"\nshortest plan that breaks {rule}, after {shrinker.tries} runs in {seconds:.0f} s:\n")
    print(story(replace(again, violations=tuple(sorted(again.violations, key=lambda each: each.rule != rule))), events))
    kept = Kept(f"{rule}: say here what was wrong", outcome.seed, shortest)
    print(f"\nto keep it, as {KEPT.name}/<name>.json:\n{kept.text()}")


def breaks(seed: int, rule: str) -> Callable[[Plan], bool]:
    """Return a function that checks whether a plan breaks the rule."""
    return lambda plan: rule in simulate(seed, plan).rules
