"""What a cluster keeps in its store beside the shards' logs; `redis/cluster_store.py` implements this protocol.

Nodes, the metadata log, hints of owners, constants and the wake channel (CM-1…4, CM-14, CM-20). Nothing here decides;
the logs and owner records of shards are `protocol`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from shard_runtime.record_log.protocol import ShardKind

NO_ENTRY: Final = ""
"""The digest before the first entry of the metadata log."""


def metadata_digest(payload: bytes) -> str:
    """Which entry of the metadata log this is, as the store's functions tell it too: SHA-1 in hexadecimal (CM-20)."""
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


class StoredMetadata(NamedTuple):
    """An entry of the metadata log as it lies in the store; `damage` as in `protocol.Entry`."""

    version: int
    data: bytes
    damage: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A live node of the node list (CM-2). `address` is for clients, `internal_address` for other nodes (CM-80); that
    of a build from before there was one is empty."""

    node_id: int
    incarnation: int
    name: str
    address: str
    roles: frozenset[str]
    rack: str
    state: str  # "live" | "leaving"
    internal_address: str = ""

    @property
    def peer_address(self) -> str:
        """Where other nodes call it: an older build serves everything at its only address."""
        return self.internal_address or self.address


class LiveNodes(NamedTuple):
    """The live nodes, and in how many milliseconds the first of the others is overdue; 0 when there are no others."""

    nodes: tuple[NodeRecord, ...]
    overdue_ms: int


class ClusterStore(Protocol):
    """The store's cluster-wide keys: nodes, metadata log, hints, constants, wake channel (CM-1…4, CM-14, CM-20)."""

    @property
    def connected_replicas(self) -> int | None:
        """Replicas of the store as last counted, about once a second; None while that is not known."""
        ...

    async def cluster_id(self) -> str | None:
        """The cluster id, None while the store is not initialised."""
        ...

    async def init_cluster(self, cluster_id: str) -> str:
        """Set the cluster id unless there is one; the id in force."""
        ...

    async def constant(self, key: str, value: str) -> str:
        """Set `key` unless it is set; the value in force (SR-2, GC-1)."""
        ...

    async def register_node(
        self, name: str, incarnation: int, dead: frozenset[int], record: NodeRecord, ttl_ms: int
    ) -> NodeRecord:
        """Give `name` its stable node id and enter it. Raises LogError when another incarnation holds the name."""
        ...

    async def renew_node(self, record: NodeRecord, ttl_ms: int) -> LiveNodes:
        """Renew the entry (entered again if it lapsed) and answer the live nodes, by the store's clock."""
        ...

    async def remove_node(self, record: NodeRecord) -> None:
        """Take the entry out, if it is still this incarnation's."""
        ...

    async def append_metadata(self, version: int, payload: bytes, before: str) -> bool:
        """Append entry `1-<version>` to the metadata log right behind the entry whose `metadata_digest` is `before`.

        False when the log does not end with that one (CM-20). Durable on True."""
        ...

    async def read_metadata(self, after_version: int, count: int) -> list[StoredMetadata]:
        """Entries above a version, in order, damaged ones included."""
        ...

    async def skipped_metadata(self) -> frozenset[int]:
        """Versions whose entries an operator told every node to go on without (CM-103)."""
        ...

    async def skip_metadata(self, version: int) -> None:
        """Let every node go on without an entry that is damaged, and so without its change."""
        ...

    async def confirm_metadata(self, version: int, payload: bytes) -> bool:
        """Whether the log holds this entry, on enough replicas: what was read may still be lost (CM-20). Raises
        StoreUnavailableError when that cannot be told now."""
        ...

    async def trim_metadata(self, below_version: int) -> None:
        """Drop entries below a version (they are folded into a snapshot entry at it)."""
        ...

    async def put_hints(self, kind: ShardKind, hints: Mapping[str, tuple[int, int]]) -> None:
        """Remember shard name → (node id, epoch) for look-ups (CM-14)."""
        ...

    async def remove_hints(self, kind: ShardKind, names: Sequence[str]) -> None:
        """Take back the hints of shards that are no more (CM-21)."""
        ...

    async def hints(self, kind: ShardKind) -> dict[str, tuple[int, int]]:
        """All hints of a kind."""
        ...

    async def hints_of(self, kind: ShardKind, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The hints of these shards; those of which there is none are left out."""
        ...

    async def wake(self, reason: str) -> None:
        """PUBLISH on the wake channel: a shard was released, or metadata changed."""
        ...

    def wakes(self) -> AsyncIterator[str]:
        """Reasons published on the wake channel, on a connection of its own; ends only when closed."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
