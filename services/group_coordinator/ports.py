"""The interface that a node passes to the coordinator's edge: the shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from group_coordinator.core.commands import Command
from group_coordinator.core.shard import GroupShard


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
