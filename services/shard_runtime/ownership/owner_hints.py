"""Publishes which shards this process owns, for lookups, and corrects wrong entries (CM-14).

A hint is written without comparing it with the stored one: after a fail-over of the store, epochs may go back, so they
do not show which of two hints is newer. A hint can thus become wrong and stay wrong: a process that was suspended
overwrites its successor's hint, or a fail-over loses the newer one. The current owner therefore checks its hints once
per lease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final

import structlog

from shard_runtime.clock import Clock
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.cluster_store import ClusterStore
from shard_runtime.record_log.protocol import LogError, ShardId, ShardKind

log = structlog.get_logger(__name__)

_NEVER_MS: Final = -(2**62)
#: The number of hints that are compared, in about 2 ms, before other tasks get a turn: a process may own all partitions
#: of a large cluster, and its renewals and callers must not wait for the comparison.
_AT_ONCE: Final = 1_000

_Hints = dict[ShardKind, dict[str, tuple[int, int]]]


class OwnHints:
    """Publishes the hints of one process. `held(shards)` returns the leases to publish among these shards; `held(None)`
    returns all held leases, cheaply. A lease that is not valid is not published.

    `tick` returns the work due now, if any. Only one runs at a time, so this process never writes an older hint after a
    newer one. Hints that could not be written follow at a later tick.
    """

    def __init__(
        self,
        store: ClusterStore,
        clock: Clock,
        node_id: int,
        held: Callable[[Collection[ShardId] | None], Iterable[Lease]],
        every_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._node_id = node_id
        self._held = held
        self._every_ms = every_ms
        self._checked_ms = _NEVER_MS
        self._new: set[ShardId] = set()
        self._running = False

    def gained(self, shard: ShardId) -> None:
        """Publish the hint of a newly claimed shard at the next tick."""
        self._new.add(shard)

    def tick(self) -> Coroutine[Any, Any, None] | None:
        """Return the work due now, or None. The caller must run or close it."""
        if self._running or not (self._new or self._check_due()):
            return None
        self._running = True
        return self._run()

    def _check_due(self) -> bool:
        return self._clock.now_ms() - self._checked_ms >= self._every_ms and any(True for _ in self._held(None))

    async def _run(self) -> None:
        try:
            while self._new or self._check_due():
                await (self._write_new() if self._new else self._check())
        except LogError as error:
            self._checked_ms = self._clock.now_ms() - self._every_ms  # check all: some hints may not have been written
            log.warning("owner_hints_write_failed", cause=str(error), effect="the next tick writes them")
        finally:
            self._running = False

    async def _write_new(self) -> None:
        new, self._new = self._new, set()
        for kind, hints in self._own(new).items():
            await self._store.put_hints(kind, hints)

    async def _check(self) -> None:
        """Compare the stored hints with the held leases. Hints of new claims are written in between."""
        held = [lease.shard for lease in self._held(None)]
        for first in range(0, len(held), _AT_ONCE):
            for kind, hints in self._own(held[first : first + _AT_ONCE]).items():
                if self._new:
                    await self._write_new()
                await self.expected(kind, list(hints.items()))
        self._checked_ms = self._clock.now_ms()

    async def expected(self, kind: ShardKind, said: list[tuple[str, tuple[int, int]]]) -> None:
        """Correct the stored hints that differ. Their leases are read again after the wait, since they may have
        changed."""
        found = await self._store.hints_of(kind, [name for name, _ in said])
        wrong = {ShardId(kind, name) for name, hint in said if found.get(name) != hint}
        if wrong and (hints := self._own(wrong)):
            await self._store.put_hints(kind, hints[kind])

    def _own(self, among: Collection[ShardId] | None = None) -> _Hints:
        hints: defaultdict[ShardKind, dict[str, tuple[int, int]]] = defaultdict(dict)
        for lease in self._held(among):
            shard = lease.shard
            if lease.valid():
                hints[shard.kind][shard.name] = (self._node_id, lease.epoch)
        return hints
