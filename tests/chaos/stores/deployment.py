"""The services as processes on this machine, on a store that the experiment chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from tests.chaos.deployment import REPLICA, SENTINEL, STORE, Topology
from tests.chaos.drivers.children import Child
from tests.chaos.drivers.local import LocalDeployment, Place
from tests.chaos.drivers.runs import Run
from tests.chaos.drivers.stores import Address
from tests.chaos.stores.node import HOST, ValkeyNode
from tests.chaos.stores.store import StoreUnderTest

MakeStore = Callable[[Run, Path], StoreUnderTest]


class StoreDeployment(LocalDeployment):
    """A `Deployment` of driver `processes`; its store nodes all have the role `store`, whether master or replica.

    Faults of store nodes other than kill, pause and start are methods of `store`.
    """

    driver: ClassVar[str] = "processes"

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        settings: Mapping[str, str],
        make_store: MakeStore,
        min_insync_replicas: int = 1,
    ) -> None:
        settings = {**settings, "min.insync.replicas": str(min_insync_replicas)}
        super().__init__(folder, replace(topology, store_replicas=0, sentinels=0), settings)
        self.min_insync_replicas = min_insync_replicas
        self._make_store = make_store
        self._store: StoreUnderTest | None = None

    @property
    def store(self) -> StoreUnderTest:
        """The store; exists only once started."""
        assert self._store is not None, "start first"
        return self._store

    def _open_network(self) -> None:
        store = self._store = self._make_store(self.run, self.folder)
        self._stack.callback(store.close)
        self.topology = replace(self.topology, store_replicas=store.replicas)
        self._settings |= {
            "store.replicas": str(store.replicas),
            "store.fsync.always": str(store.fsync_always).lower(),
            **store.access,
        }

    def _start_stores(self) -> None:
        self.store.start()

    def _store_access(self) -> Mapping[str, str]:
        return self.store.access

    def _store_names(self) -> list[str]:
        return []  # the base class starts none

    def _place(self, name: str) -> Place:
        return Place(Address(HOST, self.run.port()))

    def _url(self, name: str) -> str:
        return self.store.url

    def names(self, role: str) -> list[str]:
        """Return the nodes of a role."""
        if role == STORE:
            return [node.name for node in self.store.nodes]
        return [] if role in {REPLICA, SENTINEL} else super().names(role)

    # ---- faults

    def kill(self, name: str) -> None:
        """SIGKILL a node; it has ended when this returns."""
        self._either(name).kill()

    def start(self, name: str) -> None:
        """Start a node that is down; a store node responds when this returns, but may not be in sync yet."""
        node = self._node(name)
        if node is None:
            super().start(name)
        else:
            node.start()

    def stop(self, name: str) -> bool:
        """SIGTERM, and a bounded wait. Returns whether it left cleanly."""
        return self._either(name).stop()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        node = self._node(name)
        if node is None:
            super().pause(name)
        else:
            node.pause()

    def resume(self, name: str) -> None:
        """SIGCONT."""
        node = self._node(name)
        if node is None:
            super().resume(name)
        else:
            node.resume()

    def heal(self) -> None:
        """Heal the store."""
        self.store.heal()

    def _node(self, name: str) -> ValkeyNode | None:
        return next((node for node in self.store.nodes if node.name == name), None)

    def _either(self, name: str) -> ValkeyNode | Child:
        return self._node(name) or self._child(name)

    def logs(self) -> dict[str, str]:
        """Return each node's output since its first start, including the store's."""
        said = {node.name: node.log.read_text(errors="replace") for node in self.store.nodes if node.log.exists()}
        return {**super().logs(), **said}
