"""A single server without replicas: what it guarantees depends on its `appendfsync`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.chaos.drivers.runs import Run
from tests.chaos.stores.node import ValkeyNode, server_lines, store_url


class SingleServer:
    """A `StoreUnderTest` with one server."""

    replicas = 0

    def __init__(self, run: Run, folder: Path, fsync: str) -> None:
        self.fsync_always = fsync == "always"
        self._node = ValkeyNode(run, folder, "store-0", server_lines("store-0", ["store-0"], fsync))
        self.nodes = [self._node]

    @property
    def access(self) -> Mapping[str, str]:
        """The settings by which services reach it, besides `store.url`."""
        return {}

    @property
    def url(self) -> str:
        """`store.url` with its address."""
        return store_url("redis", self.nodes)

    def start(self) -> None:
        """Start the server."""
        self._node.start()

    def master_of(self, key: str) -> ValkeyNode:
        """Return the only server."""
        return self._node

    def replicas_of(self, master: ValkeyNode) -> list[ValkeyNode]:
        """Return []."""
        return []

    def lag(self, replica: ValkeyNode) -> None:
        """Raises AssertionError: there is no replica."""
        raise AssertionError("a single server has no replica")

    def cut_off(self, master: ValkeyNode) -> None:
        """Raises AssertionError: there is no other node."""
        raise AssertionError("a single server has no other node to lose")

    def hide(self, master: ValkeyNode) -> None:
        """Raises AssertionError: no other process watches it."""
        raise AssertionError("a single server is watched by no sentinel")

    def heal(self) -> None:
        """Start it unless it is running."""
        self._node.start()

    def promoted(self, old: ValkeyNode, key: str) -> ValkeyNode:
        """Raises AssertionError: there is no replica to promote."""
        raise AssertionError("a single server has no replica to promote")

    def close(self) -> None:
        """End it."""
        self._node.kill()
