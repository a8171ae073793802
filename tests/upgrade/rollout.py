"""A cluster in which some processes run the code of an earlier commit, and the rest run the current code."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import ClassVar, Final

from tests.chaos.deployment import Topology
from tests.chaos.drivers.children import ROOT, Child
from tests.chaos.drivers.local import MASTER
from tests.chaos.drivers.processes import ProcessesDeployment

#: The last commit whose writes did not list the records that they archive.
OLD_COMMIT: Final = "6eeb7e4827936dcc6ad5534bd70b9df37f1dc6ed"
SOURCES: Final = ("protos", "client", "services")
BOUND_S: Final = 120


class NoHistoryError(Exception):
    """This clone does not have the commit; the message names it and how to fetch it."""


def check_out(commit: str, folder: Path) -> Path:
    """Write the sources of a commit, with generated modules, below `folder`. Raises NoHistoryError without the
    commit."""
    git = shutil.which("git")
    if git is None:
        raise NoHistoryError("git is not installed")
    done = subprocess.run(
        [git, "archive", "--format=tar", commit, *SOURCES, "hatch_build.py"],
        cwd=ROOT,
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )
    if done.returncode != 0:
        raise NoHistoryError(f"commit {commit[:12]} is not in this clone; try: git fetch --unshallow")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 has none
        archive.extractall(folder)
    subprocess.run([sys.executable, "hatch_build.py"], cwd=folder, capture_output=True, timeout=BOUND_S, check=True)
    return folder


def environment_of(old: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a process finds the old code before the installed one."""
    return {**environment, "PYTHONPATH": ":".join(str(old / source) for source in SOURCES)}


class RolloutDeployment(ProcessesDeployment):
    """Every service runs the old code until `renew`."""

    driver: ClassVar[str] = "rollout"

    def __init__(self, folder: Path, topology: Topology, settings: Mapping[str, str], old: Path) -> None:
        super().__init__(folder, topology, settings)
        self.renewed: set[str] = set()
        self._old = old

    @property
    def store_url(self) -> str:
        """Return the URL of the store."""
        return self._url(MASTER)

    def renew(self, name: str, *, back: bool = False) -> None:
        """Run the current code on a stopped node from its next start on; with `back`, the old code again."""
        assert not self._nodes[name].running, f"{name} runs: stop it first"
        (self.renewed.discard if back else self.renewed.add)(name)
        self._nodes[name] = self._service_child(name)

    def _service_child(self, name: str) -> Child:
        child = super()._service_child(name)
        if name not in self.renewed:
            child._environment = environment_of(self._old, self.run.environment)
        return child
