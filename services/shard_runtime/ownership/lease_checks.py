"""Checks the shards held here against the record log: which are lost, and whether their store node is available."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from shard_runtime.clock import Clock
from shard_runtime.ownership.lease import Lease
from shard_runtime.ownership.shard_owner import OwnershipOptions
from shard_runtime.record_log.protocol import LogError, RecordLog, ShardId


class LeaseLook:
    """Checks each of `leases`: calls `lost` for a shard that the log found lost, and counts an interruption when a
    store node becomes unavailable and again when it is back.

    With at most `looks_max` leases, all are checked at each tick. With more, they are checked once per `tick_ms`, in
    slices of `looks_max`; other tasks run between the slices (CM-88).
    """

    def __init__(
        self,
        record_log: RecordLog,
        clock: Clock,
        leases: Mapping[ShardId, Lease],
        lost: Callable[[ShardId, LogError], None],
        options: OwnershipOptions,
    ) -> None:
        self._log = record_log
        self._clock = clock
        self._leases = leases
        self._lost = lost
        self._options = options
        self._away: set[ShardId] = set()
        self._began_ms = 0
        self._running = False

    def tick(self) -> Coroutine[Any, Any, None] | None:
        """Check the leases. With very many, returns a coroutine that does so, for the caller to run."""
        now_ms, options = self._clock.now_ms(), self._options
        if len(self._leases) <= options.looks_max:
            self._look(list(self._leases))
        elif not self._running and now_ms - self._began_ms >= options.tick_ms * 9 // 10:
            self._running, self._began_ms = True, now_ms
            return self._look_at_many(list(self._leases))
        return None

    def ended(self, shard: ShardId) -> None:
        """Forget a shard whose lease has ended."""
        self._away.discard(shard)

    async def _look_at_many(self, shards: Sequence[ShardId]) -> None:
        try:
            for first in range(0, len(shards), self._options.looks_max):
                self._look(shards[first : first + self._options.looks_max])
                await asyncio.sleep(0)
        finally:
            self._running = False

    def _look(self, shards: Sequence[ShardId]) -> None:
        available: dict[str, bool] = {}  # at this moment, by store node; its history names the node
        for shard in shards:
            lease = self._leases.get(shard)
            if lease is None:
                continue
            failure = self._log.lost(shard)
            if failure is not None:
                self._lost(shard, failure)
                continue
            node = self._log.history_of(shard)
            if node not in available:
                available[node] = self._log.available_for(shard)
            if available[node] == (shard in self._away):
                lease.paused()
                self._away ^= {shard}
