"""Shrinks a failing plan as far as possible: fewer faults, then fewer workloads, then less time. Depends on plans
only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.plan import Plan

#: A shorter run shows nothing.
WORK_MS_MIN = 500


class Shrinker:
    """Tries shorter plans and keeps those that `broken` accepts, which still break the same rule; makes at most
    `tries_max` runs.

    Removing a part leaves all others unchanged, since every part has its own random source.
    """

    def __init__(self, broken: Callable[[Plan], bool], tries_max: int = 150) -> None:
        self._broken = broken
        self._tries_max = tries_max
        self.tries = 0

    def shrink(self, plan: Plan, crew: Sequence[str] = ()) -> Plan:
        """Return the shortest plan found; `plan` itself if nothing can be removed."""
        before = None
        while plan != before and not self._tired():
            before = plan
            plan = self._fewer_faults(plan)
            plan = self._fewer_workloads(plan, crew)
            plan = self._shorter(plan)
        return plan

    def _tired(self) -> bool:
        return self.tries >= self._tries_max

    def _try(self, candidate: Plan) -> bool:
        if self._tired():
            return False
        self.tries += 1
        return self._broken(candidate)

    def _fewer_faults(self, plan: Plan) -> Plan:
        if len(plan.steps) > 1 and self._try(bare := replace(plan, steps=())):
            return bare
        size = max(1, len(plan.steps) // 2)
        while size:
            at = 0
            while at < len(plan.steps):
                candidate = replace(plan, steps=plan.steps[:at] + plan.steps[at + size :])
                if self._try(candidate):
                    plan = candidate
                else:
                    at += size
            size //= 2
        return plan

    def _fewer_workloads(self, plan: Plan, crew: Sequence[str]) -> Plan:
        for name in crew:
            if name not in plan.without and self._try(fewer := replace(plan, without=(*plan.without, name))):
                plan = fewer
        return plan

    def _shorter(self, plan: Plan) -> Plan:
        low, high = WORK_MS_MIN, plan.work_ms
        while high - low >= WORK_MS_MIN and not self._tired():
            middle = (low + high) // 2
            if self._try(candidate := plan.cut(middle)):
                plan, high = candidate, middle
            else:
                low = middle
        return plan
