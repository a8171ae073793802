"""The interface through which an experiment uses a store under test: its URL, its nodes, its fail-overs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.chaos.stores.node import ValkeyNode


class StoreUnderTest(Protocol):
    """A store of some shape, not yet started. Everything it starts ends with `close`, which may be called twice."""

    @property
    def url(self) -> str:
        """`store.url` of the services."""

    @property
    def access(self) -> Mapping[str, str]:
        """The settings by which the services reach it, besides `store.url`; paths of files, and no password."""

    @property
    def replicas(self) -> int:
        """The value of `store.replicas`: the replicas of each master."""

    @property
    def fsync_always(self) -> bool:
        """The value of `store.fsync.always`: true for a single server that syncs every write."""

    @property
    def nodes(self) -> Sequence[ValkeyNode]:
        """All servers that keep data; Sentinels are not among them."""

    def start(self) -> None:
        """Start it empty, and wait until every replica is in sync."""

    def master_of(self, key: str) -> ValkeyNode:
        """Return the key's master, as named by whatever chooses masters. Waits until there is one; raises
        AssertionError."""

    def replicas_of(self, master: ValkeyNode) -> list[ValkeyNode]:
        """Return the running servers that follow a master, in sync or not."""

    def lag(self, replica: ValkeyNode) -> None:
        """Cut a replica off from its master from now on; it keeps trying to connect."""

    def cut_off(self, master: ValkeyNode) -> None:
        """Cut a master off from every other node of the store; its clients still reach it."""

    def hide(self, master: ValkeyNode) -> None:
        """Hide a master from whatever replaces masters; its replicas and clients still reach it."""

    def heal(self) -> None:
        """Undo every such fault, start what has ended, and wait until the store is whole and in sync."""

    def promoted(self, old: ValkeyNode, key: str) -> ValkeyNode:
        """Wait until a node other than `old` serves a key, and return it; raises AssertionError."""

    def close(self) -> None:
        """End everything."""
