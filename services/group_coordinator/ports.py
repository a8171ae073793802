"""The interfaces that a node passes to the coordinator's edge: shards, access, callers. Protocols only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from group_coordinator.core.commands import Command
from group_coordinator.core.shard import GroupShard

# Kafka's numbers of the operations and resources that groups need (GC-128, GC-139).
READ: Final = 3
DELETE: Final = 6
DESCRIBE: Final = 8
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
CLUSTER_NAME: Final = "kafka-cluster"


class Caller(Protocol):
    """The caller of an RPC; `shard_runtime.rpc.binding.CallContext` is one."""

    @property
    def peer(self) -> str:
        """The host that the call comes from."""
        ...

    @property
    def principal(self) -> str | None:
        """The authenticated caller; None without authentication (CM-60)."""
        ...


class Access(Protocol):
    """Decides what callers may do (CM-61). The implementation logs refusals."""

    def allowed(self, caller: Caller, operation: int, resource_type: int, name: str) -> bool:
        """Return whether `caller` may do `operation` on the resource. When False, respond with the matching
        authorisation error, or leave the resource out of the response."""
        ...


class AllowAll:
    """For a node without an authorizer: everything is allowed (GC-148)."""

    def allowed(self, caller: Caller, operation: int, resource_type: int, name: str) -> bool:
        """Return True."""
        del caller, operation, resource_type, name
        return True


class Shards(Protocol):
    """All shards of the group log, as this node sees them."""

    @property
    def count(self) -> int:
        """The number of shards: N of GC-1."""
        ...

    async def submit(self, shard: int, command: Command) -> object:
        """Run a command; return its reply once everything that the reply depends on is durable.

        The command is decided before this first suspends. Raises KafkaError: put it into the response; with
        NOT_COORDINATOR add the owner as a hint (CM-14).
        """
        ...

    def serving(self) -> Sequence[tuple[int, GroupShard]]:
        """Return (index, shard) of the shards that are loaded and owned here now. Do not keep a shard: each load makes
        a new object."""
        ...
