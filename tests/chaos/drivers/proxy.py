"""Driver `proxy`: nodes on loopback, with a TCP link in front of each service and one from every node to the store.

A service advertises the address of its link, so all its callers share that link: they cannot be distinguished, and
cutting one of them off is Unsupported. Between the store and every service and replica there is a separate link.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.chaos.deployment import REPLICA, SERVICES, STORE, Cut, Topology, Unsupported
from tests.chaos.drivers.local import MASTER, Place, known, role_of
from tests.chaos.drivers.machines import MachinesDeployment
from tests.chaos.drivers.processes import LOOPBACK
from tests.chaos.drivers.stores import Address
from tests.chaos.drivers.tcp_proxy import Link, Switchboard


class ProxyDeployment(MachinesDeployment):
    """A deployment whose nodes reach each other through links in this process."""

    driver: ClassVar[str] = "proxy"

    def __init__(self, folder: Path, topology: Topology, settings: Mapping[str, str]) -> None:
        super().__init__(folder, topology, settings)
        self._board: Switchboard | None = None
        self._front: dict[str, Link] = {}
        self._to_store: dict[str, Link] = {}

    def _open_network(self) -> None:
        self._board = self._stack.enter_context(Switchboard())

    def _place(self, name: str) -> Place:
        listen = Address(LOOPBACK, self.run.port())
        if role_of(name) in SERVICES:
            self._front[name] = self._link(listen)
            return Place(listen, self._front[name].listen)
        return Place(listen)

    def _way(self, one: str, other: str) -> Address:
        if one not in self._to_store:
            self._to_store[one] = self._link(self._places[other].listen)
        return self._to_store[one].listen

    def _link(self, target: Address) -> Link:
        assert self._board is not None, "start first"
        return self._board.link(Address(LOOPBACK, self.run.port()), target)

    # ---- faults

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """Cut a node from the store in any way, or make a service unreachable for all (GONE)."""
        known([*self._nodes, *self._workers], one, other)
        if MASTER in (one, other) and (link := self._to_store.get(other if one == MASTER else one)) is not None:
            _cut(link, kind, there=other == MASTER)
        elif kind is Cut.GONE and other in self._front:
            self._front[other].refuse()
        else:
            raise Unsupported(_shared(one, other))

    def slow(self, name: str, delay_ms: int) -> None:
        """Delay what goes to a service, or from every node to the store. Raises Unsupported for others."""
        known(self._nodes, name)
        links = list(self._to_store.values()) if name == MASTER else [self._front[name]] if name in self._front else []
        if not links:
            raise Unsupported(f"nothing goes to {name} through a link of the driver proxy")
        for link in links:
            link.delay(delay_ms)

    def lose_reply(self, one: str, word: bytes = b"") -> threading.Event:
        """Arrange that the next request from `one` to the store that contains `word` is carried out, but its reply lost
        and the connection reset. Returns an event that is set when this has happened."""
        known(self._to_store, one)
        return self._to_store[one].lose_reply(word)

    def heal(self) -> None:
        """Remove every cut and delay."""
        for link in [*self._front.values(), *self._to_store.values()]:
            link.heal()


def _cut(link: Link, kind: Cut, *, there: bool) -> None:
    if kind is Cut.GONE:
        link.refuse()
    else:
        link.hold(there=there or kind is Cut.SILENT, back=not there or kind is Cut.SILENT)


def _shared(one: str, other: str) -> str:
    if role_of(one) in (STORE, REPLICA) or role_of(other) in (STORE, REPLICA):
        return f"the driver proxy has no link between {one} and {other}"
    return f"the driver proxy has one link to {other} for all that call it, so it cannot cut {one} alone from it"


def deploy(folder: Path, topology: Topology, settings: Mapping[str, str]) -> ProxyDeployment:
    """Return the deployment, not yet started. Raises Unsupported for Sentinels, since they give nodes the master's own
    address."""
    if topology.sentinels:
        raise Unsupported("the driver proxy cannot stand between a node and a store that Sentinels name to it")
    return ProxyDeployment(folder, topology, settings)
