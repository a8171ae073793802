"""Checkers: each reads a finished run and reports violations of its rules. They share nothing but the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from tests.simulation.final import Final
from tests.simulation.history import Event, History


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its id, what was observed, and the events that show it (the story prints them with their
    context)."""

    rule: str
    sentence: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


class Checker(Protocol):
    """Judges one run."""

    #: The ids of the rules that it checks.
    rules: tuple[str, ...]

    def check(self, history: History, final: Final) -> Iterable[Violation]:
        """Return all violations of its rules in this run."""
        ...
