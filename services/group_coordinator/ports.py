"""What the coordinator's edge is given by the node that runs it: shards, owners, access, callers. Protocols only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from group_coordinator.core.commands import Command
from group_coordinator.core.shard import GroupShard

# Kafka's operation and resource numbers, as far as groups need them (GC-128, GC-139).
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
    """Who calls; `shard_runtime.rpc.binding.CallContext` is one."""

    @property
    def peer(self) -> str:
        """The host that the call comes from."""
        ...

    @property
    def principal(self) -> str | None:
        """Who the caller is, None when nobody was authenticated (CM-60)."""
        ...


class Access(Protocol):
    """Whether a caller may do something (CM-61). Refusals are logged by the implementation."""

    def allowed(self, caller: Caller, operation: int, resource_type: int, name: str) -> bool:
        """Whether `caller` may `operation` on the resource."""
        ...


class AllowAll:
    """No authorizer is configured: everything is allowed (GC-148)."""

    def allowed(self, caller: Caller, operation: int, resource_type: int, name: str) -> bool:
        """Always."""
        del caller, operation, resource_type, name
        return True


class Shards(Protocol):
    """All shards of the group log, as this node sees them."""

    @property
    def count(self) -> int:
        """N of GC-1."""
        ...

    async def submit(self, shard: int, command: Command) -> object:
        """Run a command and answer once everything that its reply rests on is durable. Raises KafkaError.

        The command is decided before the first suspension.
        """
        ...

    def serving(self) -> Sequence[tuple[int, GroupShard]]:
        """The shards that are loaded and owned here now; the object is another one after every load."""
        ...
