"""The protocol for a cluster's data in its store other than the shards' logs; `redis/cluster_store.py` implements it.

It covers nodes, the metadata log, owner hints, constants and the wake channel (CM-1…4, CM-14, CM-20). Nothing here
decides. For the logs and owner records of shards see `protocol`.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from shard_runtime.record_log.protocol import LogError, ShardKind
from shard_runtime.record_log.transaction_store import TransactionStore

NO_ENTRY: Final = ""
"""The value of `append_metadata`'s `before` while the metadata log is empty."""


class IncompleteRestoreError(LogError):
    """The store holds part of a backup: its restore has not ended, or was interrupted (CM-143)."""


def metadata_digest(payload: bytes) -> str:
    """The digest that names an entry of the metadata log, computed as the store's functions do: SHA-1, hex (CM-20)."""
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


class StoredMetadata(NamedTuple):
    """An entry of the metadata log as read from the store; `damage` as in `protocol.Entry`."""

    version: int
    data: bytes
    damage: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A live node of the node list (CM-2). Clients call `address`, other nodes call `internal_address` (CM-80).
    `access_control`: whether it decides by access control entries; None for a node of a version that does not say.
    `kafka_address`: where it serves Kafka's clients; "" if it does not. `external_address`, `kafka_external_address`:
    the same for clients from elsewhere (CM-237)."""

    node_id: int
    incarnation: int
    name: str
    address: str
    roles: frozenset[str]
    rack: str
    state: str  # "live" | "leaving"
    internal_address: str
    access_control: bool | None = None
    kafka_address: str = ""
    external_address: str = ""
    kafka_external_address: str = ""


class LiveNodes(NamedTuple):
    """The live nodes. `overdue_ms`: time until the first other node's entry lapses, in ms; 0 when there are no
    others."""

    nodes: tuple[NodeRecord, ...]
    overdue_ms: int


class ClusterStore(Protocol):
    """The store's cluster-wide keys: nodes, metadata log, hints, constants, wake channel (CM-1…4, CM-14, CM-20).

    Every call may raise StoreUnavailableError when no reply came in time; every call may then be repeated as it is.
    """

    @property
    def connected_replicas(self) -> int | None:
        """The store's connected replicas, counted about once a second; None while the number is not known."""
        ...

    @property
    def transactions(self) -> TransactionStore:
        """The records of transactional ids (CM-151)."""
        ...

    async def cluster_id(self) -> str | None:
        """Return the cluster id; None while the store is not initialised (run `init_cluster`). Raises
        IncompleteRestoreError."""
        ...

    async def init_cluster(self, cluster_id: str) -> str:
        """Set the cluster id unless there is one. Returns the id in force, which the caller must use: it may differ
        from the given one."""
        ...

    async def constant(self, key: str, value: str) -> str:
        """Set `key` unless it is set. Returns the value in force; the caller must use that one (SR-2, GC-1)."""
        ...

    async def register_node(
        self, name: str, incarnation: int, dead: frozenset[int], record: NodeRecord, ttl_ms: int
    ) -> NodeRecord:
        """Give `name` its stable node id and enter it in the node list for `ttl_ms`; returns the record with that id.

        `dead`: incarnations of this name known to have ended, which therefore do not hold it. Raises NameTakenError
        while another incarnation holds the name: wait until its entry lapses and try again, or start under another name
        (CM-1).
        """
        ...

    async def renew_node(self, record: NodeRecord, ttl_ms: int) -> LiveNodes:
        """Renew this node's entry (enter it again if it lapsed) and return the live nodes, by the store's clock.

        Raises LogError when another incarnation has the entry. If the store's history has changed since the
        registration, call `register_node` again; else this process must stop (CM-1).
        """
        ...

    async def remove_node(self, record: NodeRecord) -> None:
        """Remove this node's entry, if it is still this incarnation's."""
        ...

    async def append_metadata(self, version: int, payload: bytes, before: str) -> bool:
        """Append entry `1-<version>` to the metadata log right after the entry whose `metadata_digest` is `before`.

        Returns True when the entry is durable, and False when the log does not end with `before` (CM-20): then read the
        newer entries, compute the change again and append that.
        """
        ...

    async def read_metadata(self, after_version: int, count: int) -> list[StoredMetadata]:
        """Up to `count` entries above a version, in order, damaged ones included."""
        ...

    async def skipped_metadata(self) -> frozenset[int]:
        """Versions of damaged entries that every node skips, by an operator's decision (CM-103)."""
        ...

    async def skip_metadata(self, version: int) -> None:
        """Make every node skip a damaged entry; its change is lost (CM-103)."""
        ...

    async def confirm_metadata(self, version: int, payload: bytes) -> bool:
        """Return whether the log holds this entry on enough replicas. Call this before acting on an entry that was
        read: until enough replicas have it, a fail-over may lose it (CM-20). Raises StoreUnavailableError while that is
        unknown; call again."""
        ...

    async def trim_metadata(self, below_version: int) -> None:
        """Remove entries below a version. The caller must have appended a snapshot at that version, which contains
        them."""
        ...

    async def put_hints(self, kind: ShardKind, hints: Mapping[str, tuple[int, int]]) -> None:
        """Publish shard name → (node id, epoch) for look-ups (CM-14). A hint may be out of date; it fences nothing."""
        ...

    async def remove_hints(self, kind: ShardKind, names: Sequence[str]) -> None:
        """Remove the hints of shards that no longer exist (CM-21)."""
        ...

    async def hints(self, kind: ShardKind) -> dict[str, tuple[int, int]]:
        """All hints of a kind."""
        ...

    async def hints_of(self, kind: ShardKind, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The hints of these shards; a shard without a hint is left out."""
        ...

    async def wake(self, reason: str) -> None:
        """PUBLISH `reason` on the wake channel: a shard was released, or metadata changed."""
        ...

    def wakes(self) -> AsyncIterator[str]:
        """Yield reasons published on the wake channel, on a connection of its own. Ends only when the store is closed.

        After each "subscribed" the caller must check everything itself: earlier messages were not received.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
