"""Driver `processes`: every node is a process on loopback that can be killed, stopped and paused. It cannot cut
links."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from tests.chaos.deployment import Topology
from tests.chaos.drivers.local import Place
from tests.chaos.drivers.machines import MachinesDeployment
from tests.chaos.drivers.stores import Address

LOOPBACK: Final = "127.0.0.1"


class ProcessesDeployment(MachinesDeployment):
    """A deployment whose nodes reach each other directly."""

    driver: ClassVar[str] = "processes"

    def _place(self, name: str) -> Place:
        return Place(Address(LOOPBACK, self.run.port()))


def deploy(folder: Path, topology: Topology, settings: Mapping[str, str]) -> ProcessesDeployment:
    """Return the deployment, not yet started."""
    return ProcessesDeployment(folder, topology, settings)
