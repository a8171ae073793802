"""The hosts of all group shards, with the interface that the edge uses (`ports.Shards`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from group_coordinator.core.commands import Command
from group_coordinator.core.records import Record
from group_coordinator.core.shard import GroupShard
from kip932.errors import CoordinatorNotAvailableError
from shard_runtime.hosting.shard_host import ShardHost

GroupHost = ShardHost[Command, Record]
Effects = Callable[[Sequence[object]], None]
MakeHost = Callable[[int, Effects, Callable[[], None]], GroupHost]


class GroupShards:
    """Holds one host per shard of the group log. Hosts are made once; ownership loads and drops their shards."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.hosts: tuple[GroupHost, ...] = ()

    def build(
        self, make_host: MakeHost, run: Callable[[int, Sequence[object]], None], drop: Callable[[int], None]
    ) -> None:
        """Make the hosts. `run` is called with a shard's durable effects, `drop` when the shard is lost."""
        self.hosts = tuple(self._host(index, make_host, run, drop) for index in range(self.count))

    async def submit(self, shard: int, command: Command) -> object:
        """See `ports.Shards`. Before `build` it raises COORDINATOR_NOT_AVAILABLE (GC-6)."""
        if not self.hosts:
            raise CoordinatorNotAvailableError("the group coordinator has not started yet")
        return await self.hosts[shard].submit(command)

    def serving(self) -> Sequence[tuple[int, GroupShard]]:
        """See `ports.Shards`."""
        return [(index, shard) for index, host in enumerate(self.hosts) if isinstance(shard := host.shard, GroupShard)]

    @staticmethod
    def _host(
        index: int,
        make_host: MakeHost,
        run: Callable[[int, Sequence[object]], None],
        drop: Callable[[int], None],
    ) -> GroupHost:
        return make_host(index, lambda effects: run(index, effects), lambda: drop(index))
