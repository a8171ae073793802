"""Driver `namespaces`: every node and worker has its own network namespace, on a bridge; cuts are iptables rules.

Any two can be cut off from each other: silently, in one direction only, or with connections refused. It needs root,
iproute2 and iptables; without them `deploy` raises Unsupported, "needs network namespaces: …".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from tests.chaos.deployment import Cut, Topology, Unsupported
from tests.chaos.drivers.local import Place, known
from tests.chaos.drivers.machines import MachinesDeployment
from tests.chaos.drivers.network import Network, why_no_delay, why_not
from tests.chaos.drivers.stores import Address

_PORT: Final = 7_932


class NamespacesDeployment(MachinesDeployment):
    """Nodes with their own addresses, all of which listen on the same port."""

    driver: ClassVar[str] = "namespaces"

    def __init__(self, folder: Path, topology: Topology, settings: Mapping[str, str]) -> None:
        super().__init__(folder, topology, settings)
        self._network: Network | None = None

    @property
    def network(self) -> Network:
        """The namespaces; exist only once started."""
        assert self._network is not None, "start first"
        return self._network

    def _open_network(self) -> None:
        self._network = self._stack.enter_context(Network(self.run))

    def _place(self, name: str) -> Place:
        return Place(Address(self.network.add(name), _PORT), enter=self._place_worker(name))

    def _place_worker(self, name: str) -> Sequence[str]:
        self.network.add(name)
        return self.network.enter(name)

    # ---- faults

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """Cut any two nodes or workers off from each other."""
        known([*self._nodes, *self._workers], one, other)
        self.network.cut(one, other, kind)

    def slow(self, name: str, delay_ms: int) -> None:
        """Delay what goes to a node or worker. Raises Unsupported if the kernel cannot hand packets to a process."""
        known([*self._nodes, *self._workers], name)
        if reason := _why_no_delay():
            raise Unsupported(reason)
        self.network.delay(name, delay_ms)

    def lose(self, name: str, percent: int) -> None:
        """Lose packets of a node or worker, both ways."""
        known([*self._nodes, *self._workers], name)
        self.network.lose(name, percent)

    def heal(self) -> None:
        """Remove every cut, loss and delay."""
        if self._network is not None:
            self._network.heal()


_why_not = cache(why_not)
_why_no_delay = cache(why_no_delay)


def require_namespaces() -> None:
    """Raises Unsupported if this process cannot create namespaces and rules in them."""
    if reason := _why_not():
        raise Unsupported(f"needs network namespaces: {reason}")


def deploy(folder: Path, topology: Topology, settings: Mapping[str, str]) -> NamespacesDeployment:
    """Return the deployment, not yet started. Raises Unsupported if this process cannot use namespaces."""
    require_namespaces()
    return NamespacesDeployment(folder, topology, settings)
