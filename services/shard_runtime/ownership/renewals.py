"""Renews the leases of all held shards, a bounded number per call (CM-3, CM-88).

`core` judges the answers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from shard_runtime.clock import Clock
from shard_runtime.ownership.core import OwnershipCore
from shard_runtime.ownership.lease_terms import RenewalOutcome
from shard_runtime.record_log.protocol import LogError, RecordLog, Renewal, ShardId

log = structlog.get_logger(__name__)


class Renewals:
    """Runs rounds of renewals. Each store node (named by its history) has a round of its own, so a node that does not
    answer costs no leases on other nodes. Within a round, calls are made one after the other, so that tens of thousands
    of leases do not occupy this process or the store for long."""

    def __init__(
        self,
        record_log: RecordLog,
        core: OwnershipCore,
        clock: Clock,
        *,
        renewed: Callable[[Renewal, RenewalOutcome], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        most: int,
    ) -> None:
        self._log = record_log
        self._core = core
        self._clock = clock
        self._renewed = renewed
        self._spawn = spawn
        self._most = most
        self._under_way: set[str] = set()
        self._sorting = False

    def start(self) -> None:
        """Begin a round for each store node whose last one has ended."""
        if not self._sorting:
            self._sorting = True
            self._spawn(self._begin(self._core.to_renew()))

    async def _begin(self, shards: Sequence[ShardId]) -> None:
        groups: defaultdict[str, list[ShardId]] = defaultdict(list)
        try:
            for first in range(0, len(shards), self._most):
                for shard in shards[first : first + self._most]:
                    groups[self._log.history_of(shard)].append(shard)
                await asyncio.sleep(0)
        finally:
            self._sorting = False
        for node in groups.keys() - self._under_way:
            self._under_way.add(node)
            self._spawn(self._round(node, groups[node]))

    async def _round(self, node: str, shards: Sequence[ShardId]) -> None:
        try:
            for first in range(0, len(shards), self._most):
                among = shards[first : first + self._most]
                await self._renew(self._core.renewals(self._log.tail_checked, among))
        except LogError as error:  # the next round begins with the leases that end first
            log.warning("lease_renewal_failed", shards=len(shards), cause=str(error))
        finally:
            self._under_way.discard(node)

    async def _renew(self, renewals: Sequence[Renewal]) -> None:
        answers = await self._log.renew(renewals)
        now_ms = self._clock.now_ms()
        for renewal, answer in zip(renewals, answers, strict=True):
            self._renewed(renewal, self._core.renewed(renewal, answer, now_ms))
