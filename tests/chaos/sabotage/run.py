"""Runs a sabotage, or the same play with unmodified nodes, in a short experiment, and reports the judge's verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.deployment import Topology
from tests.chaos.drivers.local import role_of
from tests.chaos.drivers.processes import ProcessesDeployment
from tests.chaos.history import read_history
from tests.chaos.load import LoadOptions
from tests.chaos.runner import RUN_SETTINGS
from tests.chaos.sabotage.plays import CHECKS, PLAYS
from tests.chaos.sabotage.sabotages import Sabotage
from tests.chaos.trial import Trial
from tests.chaos.verdict import Verdict, judge_history

ONE_OF_EACH: Final = Topology(leaders=1, share_coordinators=1, group_coordinators=1, store_replicas=0)


class SabotagedDeployment(ProcessesDeployment):
    """A deployment in which all nodes of the sabotaged role have the bug."""

    def __init__(self, folder: Path, sabotage: Sabotage, honest: bool) -> None:
        super().__init__(folder, ONE_OF_EACH, RUN_SETTINGS)
        self._sabotage = sabotage
        self._honest = honest or not sabotage.edits

    def _role_words(self, name: str) -> list[str]:
        words = super()._role_words(name)
        if self._honest or role_of(name) != self._sabotage.role:
            return words
        return ["tests.chaos.sabotage.node", self._sabotage.name, *words[1:]]


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict, and the error that ended the experiment early, "" if there was none."""

    verdict: Verdict
    complaint: str

    def reason(self, sabotage: Sabotage) -> str:
        """Return the first of the judge's sentences that refuses this sabotage for what it does; "" if there is
        none."""
        return next((said for said in self.verdict.violations if said.startswith(sabotage.refused)), "")


def play(sabotage: Sabotage, folder: Path, seed: int, *, honest: bool = False) -> Judged:
    """Run one experiment. `honest`: with the unchanged product."""
    folder.mkdir(parents=True)
    load = LoadOptions(partitions=4, hold_ms=sabotage.hold_ms)
    complaint = ""
    try:
        with (
            SabotagedDeployment(folder / "cluster", sabotage, honest) as deployment,
            Trial(deployment, folder, seed, "sabotage", load) as trial,
        ):
            PLAYS[sabotage.play](trial)
            trial.finish()
    except AssertionError as error:  # a sabotaged node may leave anything undone: the histories decide
        complaint = str(error)
    events = read_history(sorted(folder.glob("*.jsonl")))
    return Judged(judge_history(events, CHECKS.get(sabotage.play, ())), complaint)
