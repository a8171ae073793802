"""Where this process's shards are owned, said for look-ups, and said again when it stands there wrong (CM-14).

A hint is written without a comparison: epochs of a store that failed over may go back, so that none tells which of two
hints is the newer. Hence one may be wrong for good: a process that stood still writes its own over its successor's, a
fail-over loses the newer. The owner of today is the one who knows, so it looks again once per lease.
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
#: So many are compared in one go, some 2 ms: a process may own all partitions of a large cluster, and its leases and
#: its callers do not wait while it reads what stands there.
_AT_ONCE: Final = 1_000

_Hints = dict[ShardKind, dict[str, tuple[int, int]]]


class OwnHints:
    """Hints of one process. `held`: the leases that are to be said, of the shards it is given; without any, all that
    are held, cheaply. One that is not valid is left out.

    `tick` gives what is to be done now, if anything; no two of them run at a time, so that an older hint of this
    process is never written behind its newer one. What could not be written follows at a later tick.
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
        """A claim succeeded: its hint is due at the next tick."""
        self._new.add(shard)

    def tick(self) -> Coroutine[Any, Any, None] | None:
        """What to do now. To be run, or closed."""
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
            self._checked_ms = self._clock.now_ms() - self._every_ms  # what is not written may be old or new
            log.warning("hints not written; they follow at the next tick", why=str(error))
        finally:
            self._running = False

    async def _write_new(self) -> None:
        new, self._new = self._new, set()
        for kind, hints in self._own(new).items():
            await self._store.put_hints(kind, hints)

    async def _check(self) -> None:
        """Compare what stands there with what is held. A claim meanwhile does not wait for the rest."""
        held = [lease.shard for lease in self._held(None)]
        for first in range(0, len(held), _AT_ONCE):
            for kind, hints in self._own(held[first : first + _AT_ONCE]).items():
                if self._new:
                    await self._write_new()
                await self._compare(kind, list(hints.items()))
        self._checked_ms = self._clock.now_ms()

    async def _compare(self, kind: ShardKind, said: list[tuple[str, tuple[int, int]]]) -> None:
        """Put right what stands there otherwise; the leases of those are looked at again behind the wait."""
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
