"""What an experiment asks of a store under test: its URL, its nodes, its fail-overs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tests.chaos.stores.node import ValkeyNode


class StoreUnderTest(Protocol):
    """A store of some shape, not yet started. Everything it starts ends with `close`, which may be called twice."""

    @property
    def url(self) -> str:
        """`store.url` of the services."""

    @property
    def replicas(self) -> int:
        """`store.replicas`: of each master."""

    @property
    def fsync_always(self) -> bool:
        """`store.fsync.always`: a single server that syncs every write."""

    @property
    def nodes(self) -> Sequence[ValkeyNode]:
        """All servers that keep data; Sentinels are none."""

    def start(self) -> None:
        """Start it, empty, and wait until every replica is in step."""

    def master_of(self, key: str) -> ValkeyNode:
        """The server that answers for a key, by the word of those who decide that. Waits for one; AssertionError."""

    def replicas_of(self, master: ValkeyNode) -> list[ValkeyNode]:
        """Running servers that follow a master, in step or not."""

    def lag(self, replica: ValkeyNode) -> None:
        """From here on a replica gets nothing of its master, and asks in vain."""

    def cut_off(self, master: ValkeyNode) -> None:
        """A master loses every other node of the store; its clients reach it still."""

    def hide(self, master: ValkeyNode) -> None:
        """Those who replace masters miss it; its replicas and clients reach it still."""

    def heal(self) -> None:
        """Take every such fault away, start what is dead, and wait until the store is whole and in step."""

    def promoted(self, old: ValkeyNode, key: str) -> ValkeyNode:
        """Wait until another node than `old` answers for a key; AssertionError."""

    def close(self) -> None:
        """End everything."""
