"""The partition leader of one process, put together: led partitions, share-partitions, sessions, the service.

Order: build; give `owner` to ownership and `service` to the RPC server; `start`; at the end `drain`, then `stop` after
the shards were released.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

import structlog

from partition_leader.led_partitions import LedPartitions, TailCaches, TopicFacts
from partition_leader.metrics import PartitionLeaderMetrics
from partition_leader.partition_owners import PartitionOwners
from partition_leader.service import PartitionLeaderService
from partition_leader.share.archived_records import ArchivedRecords
from partition_leader.share.core import events as ev
from partition_leader.share.core.session import SessionCache
from partition_leader.share.core.share_partition import OPERATION_TIMEOUT_MS
from partition_leader.share.deadlines import Deadlines
from partition_leader.share.group_view import Effective, GroupViews
from partition_leader.share.leader_parts import LeaderParts
from partition_leader.share.partitions import SharePartitions
from partition_leader.share.requests import ShareRequests
from partition_leader.share.values import FETCH_MAX_BYTES
from partition_leader.topic_log.settings import TopicLogSettings
from shard_runtime.clock import Clock
from shard_runtime.record_log.protocol import RecordLog
from share_persister.values import Persister

log = structlog.get_logger(__name__)

RETENTION_INTERVAL_S: Final = 30.0
IDLE_INTERVAL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the role is given. `group`: a group's effective settings; `version`: the metadata they were computed from;
    `idle_ms`: after how long a group's silent session without a stream ends (PL-524); `operation_timeout_ms`: how long
    a share-partition may take to retire (PL-631); `enabled`: share.version ≥ 1 (GC-8)."""

    record_log: RecordLog
    clock: Clock
    rng: Random
    persister: Persister
    facts: TopicFacts
    group: Effective
    version: Callable[[], int]
    idle_ms: Callable[[str], int]
    sessions_max: int
    metrics: PartitionLeaderMetrics
    topic_log: TopicLogSettings
    caches: TailCaches = field(default_factory=TailCaches)
    operation_timeout_ms: int = OPERATION_TIMEOUT_MS
    fetch_max_bytes: int = FETCH_MAX_BYTES
    enabled: Callable[[], bool] = lambda: True


class PartitionLeader:
    """One process's partition leader."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._deadlines = Deadlines(around.clock)
        self.led: Final = LedPartitions(around.clock, around.facts, around.topic_log, around.caches)
        self._archived = ArchivedRecords(around.facts.name, around.metrics.records_archived)
        parts = LeaderParts(
            persister=around.persister,
            deadlines=self._deadlines,
            clock=around.clock,
            groups=GroupViews(around.group, around.version),
            lead=self.led.lead,
            dropped=around.metrics.share_partition_dropped,
            archived=self._archived,
            operation_timeout_ms=around.operation_timeout_ms,
        )
        self.share_partitions: Final = SharePartitions(parts)
        self.owners: Final = PartitionOwners(
            around.record_log,
            around.clock,
            around.facts,
            self.led,
            self.share_partitions,
            settings=around.topic_log,
            meter=around.metrics,
        )
        sessions = SessionCache(around.sessions_max)
        self.requests: Final = ShareRequests(
            self.led,
            self.share_partitions,
            sessions,
            around.clock,
            around.rng,
            fetch_max_bytes=around.fetch_max_bytes,
            enabled=around.enabled,
        )
        self.service: Final = PartitionLeaderService(self.led, self.requests, around.fetch_max_bytes)
        self.owner: Final = self.owners.owner
        self._tasks: list[asyncio.Task[None]] = []
        around.metrics.watch(sessions, self.share_partitions, self.led)

    def topics_changed(self, deleted: frozenset[bytes]) -> None:
        """The metadata image has a new version; `deleted` topics are led no more (PL-632)."""
        for partition in [partition for partition in self.led.led() if partition.topic_id in deleted]:
            self.owners.topic_deleted(partition)

    def groups_changed(self) -> None:
        """Group configs may have changed: parked fetches look again (PL-214)."""
        cached = [host.key for host in self.share_partitions.hosts()]
        self.share_partitions.later(cached, lambda host: host.feed(ev.SettingsChanged(host.group.settings)))

    def start(self) -> None:
        """Begin the sweeps; needs a running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._sweep_retention(), name="retention"),
            loop.create_task(self._sweep_sessions(), name="idle-sessions"),
        ]

    def drain(self) -> None:
        """Answer parked fetches now (CM-4)."""
        self.requests.drain()

    async def stop(self) -> None:
        """End everything; the shards were released before."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.share_partitions.close()
        self._deadlines.close()
        self._archived.close()
        self.owners.close()

    async def _sweep_retention(self) -> None:
        while True:
            await asyncio.sleep(RETENTION_INTERVAL_S)
            try:
                await self.led.retain()
            except Exception:
                log.exception("retention sweep cut short")

    async def _sweep_sessions(self) -> None:
        while True:
            await asyncio.sleep(IDLE_INTERVAL_S)
            try:
                if self.requests.sessions:
                    self.requests.expire_idle(self._around.idle_ms, self._around.idle_ms(""))
            except Exception:
                log.exception("sweep of idle sessions cut short")
