"""Assembles the partition leader of one process: led partitions, share-partitions, sessions, the service.

Order: build it; pass `owner` to ownership and `service` to the RPC server; call `start`; at the end call `drain`, then
`stop` once the shards are released.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

import structlog

from kip932.ids import TopicIdPartition
from kip932.rpc.transport import Transport
from partition_leader.consumed_retention import ConsumedRetention
from partition_leader.dead_letters.carriers import NodeSenders
from partition_leader.dead_letters.post import LetterFacts, LetterPost
from partition_leader.dead_letters.reports import LetterReports
from partition_leader.explain.group_backlogs import GroupBacklogs
from partition_leader.explain.record_explainer import RecordExplainer
from partition_leader.group_starts import StartOffsets
from partition_leader.led_partitions import LedPartitions, TailCaches, TopicFacts
from partition_leader.metrics import PartitionLeaderMetrics
from partition_leader.partition_owners import PartitionOwners
from partition_leader.progress.core.tracked import TrackedPartitions
from partition_leader.progress.leader_progress import LeaderProgress
from partition_leader.progress.service import ProgressService
from partition_leader.progress.stored_progress import StoredRounds
from partition_leader.service import PartitionLeaderService
from partition_leader.sessions.core.session import SessionCache
from partition_leader.sessions.member_reports import MemberReports
from partition_leader.share_partition.archived_records import ArchivedRecords
from partition_leader.share_partition.core.share_partition import OPERATION_TIMEOUT_MS
from partition_leader.share_partition.deadlines import Deadlines
from partition_leader.share_partition.delay_reports import DelayReports
from partition_leader.share_partition.leader_parts import LeaderParts
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.share_rpc.delivery_counts import DeliveryCounts
from partition_leader.share_rpc.removals import MemberRemovals
from partition_leader.share_rpc.requests import ShareRequests
from partition_leader.share_rpc.service_removals import MemberSessions
from partition_leader.share_rpc.values import FETCH_MAX_BYTES
from partition_leader.store_memory import LimitedStore, StoreMemoryWarnings, records_refused
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_rpc.log_dirs import LogDirsService
from partition_leader.topic_rpc.markers import MarkerService
from partition_leader.transaction_sweep import TransactionSweep
from shard_runtime.clock import Clock
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.record_log.protocol import RecordLog
from share_persister.values import LeaderPersister
from transaction_coordinator.coordinator import TransactionCoordinator

log = structlog.get_logger(__name__)

IDLE_INTERVAL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The dependencies and settings of the role. `config`: returns a group's effective configs; `operation_timeout_ms`:
    how long a share-partition may take to retire (PL-631); `enabled`: whether share.version is 1 or higher (GC-8);
    `leader_of`: the node-to-node address of a partition's leader; `starts`: the share coordinators, asked every
    `consumed_interval_ms` (CM-160); `coordinator_of`: the node-to-node address of a group's coordinator; `address`:
    this node's address, as shown to people."""

    record_log: RecordLog
    clock: Clock
    rng: Random
    persister: LeaderPersister
    facts: TopicFacts
    config: Callable[[str], GroupConfig]
    sessions_max: int
    metrics: PartitionLeaderMetrics
    letters: LetterFacts
    transport: Transport
    starts: StartOffsets
    leader_of: Callable[[TopicIdPartition], str | None]
    topic_log: TopicLogSettings
    caches: TailCaches = field(default_factory=TailCaches)
    operation_timeout_ms: int = OPERATION_TIMEOUT_MS
    fetch_max_bytes: int = FETCH_MAX_BYTES
    consumed_interval_ms: int = 5_000
    retention_interval_ms: int = 30_000
    progress_interval_ms: int = 10_000
    enabled: Callable[[], bool] = lambda: True
    transactions: TransactionCoordinator | None = None
    """None when no transactions are served here (CM-44)."""
    coordinator_of: Callable[[str], str | None] | None = None
    """None when no coordinator is to be notified of lost members (PL-527)."""
    address: Callable[[], str] = str
    clock_doubt: Callable[[], str] = str
    """Returns the reason why nothing is deleted by age now; "" if deletion is allowed (CM-170)."""
    store: LimitedStore | None = None
    """The nodes of the store; None when nothing watches them (CM-208)."""
    leaders: Callable[[], int] = lambda: 1
    """Returns how many live partition leaders share the store (CM-214)."""


class PartitionLeader:
    """One process's partition leader."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._deadlines = Deadlines(around.clock)
        self.led: Final = LedPartitions(around.clock, around.facts, around.topic_log, around.caches, around.clock_doubt)
        self._delays = DelayReports(around.facts.name)
        self._archived = ArchivedRecords(around.facts.name)
        self.letters: Final = _letter_post(around, self.led, self._deadlines)
        self._tracked = TrackedPartitions()
        self.share_partitions: Final = SharePartitions(self._parts())
        sessions = SessionCache(around.sessions_max)
        self._stored = StoredRounds(
            self.led, around.starts, self._tracked, clock=around.clock, failed=around.metrics.progress.unknown
        )
        self.progress: Final = self._leader_progress(sessions)
        self.letters.left.load = self.share_partitions.load_for_letters
        self.owners: Final = PartitionOwners(
            around.record_log,
            around.clock,
            around.facts,
            self.led,
            self.share_partitions,
            settings=around.topic_log,
            meter=around.metrics,
            room=None if around.store is None else around.store.room,
        )
        self._consumed = self._consumed_retention()
        self._reports = _member_reports(around)
        self._counts = DeliveryCounts(around.facts.name)
        self.requests: Final = ShareRequests(
            self.led,
            self.share_partitions,
            sessions,
            around.clock,
            around.rng,
            counts=self._counts,
            fetch_max_bytes=around.fetch_max_bytes,
            enabled=around.enabled,
            members=self._reports,
        )
        removals = MemberRemovals(self.requests, self.share_partitions, around.clock, around.metrics.member_removed)
        self.member_sessions: Final = MemberSessions(removals)
        self._log_dirs = LogDirsService(self.led, around.store)
        self._memory = StoreMemoryWarnings(self._log_dirs)
        if around.store is not None:
            around.store.on_level(self._memory.crossed)
            around.store.limit_records(around.leaders, records_refused)
        self.service: Final = self._service(sessions)
        transactions = around.transactions
        self.markers: Final = None if transactions is None else MarkerService(self.led, transactions)
        self._transaction_sweep = (
            None if transactions is None else TransactionSweep(self.led, transactions, around.clock)
        )
        self.owner: Final = self.owners.owner
        self._tasks: list[asyncio.Task[None]] = []
        around.metrics.watch(sessions, self.share_partitions, self.led, self.letters)
        around.metrics.watch_transactions(self.led, around.clock)
        around.metrics.delivery.watch(sessions, self.share_partitions, self._counts, self._delays)

    def _leader_progress(self, sessions: SessionCache) -> LeaderProgress:
        return LeaderProgress(
            self.led,
            self.share_partitions,
            sessions,
            self._tracked,
            letters=self.letters,
            stored=self._stored,
            clock=self._around.clock,
            interval_ms=self._around.progress_interval_ms,
        )

    def _parts(self) -> LeaderParts:
        around = self._around
        return LeaderParts(
            persister=around.persister,
            deadlines=self._deadlines,
            clock=around.clock,
            config=around.config,
            lead=self.led.lead,
            loaded=around.metrics.delivery.loaded,
            dropped=around.metrics.share_partition_dropped,
            archived=self._archived,
            letters=self.letters,
            delays=self._delays,
            ended=self._tracked.dropped,
            operation_timeout_ms=around.operation_timeout_ms,
            chance=around.rng.random,
        )

    def _service(self, sessions: SessionCache) -> PartitionLeaderService:
        around = self._around
        explainer = RecordExplainer(
            self.led,
            self.share_partitions,
            sessions,
            around.persister,
            clock=around.clock,
            enabled=around.enabled,
            letters=self.letters,
            watched=self._tracked.watched,
        )
        return PartitionLeaderService(
            self.led,
            self.requests,
            explainer,
            GroupBacklogs(self.share_partitions, self.letters, around.clock),
            around.fetch_max_bytes,
            transactions=around.transactions,
            log_dirs=self._log_dirs,
            progress_service=ProgressService(self.progress, around.facts.name, around.enabled),
        )

    def _consumed_retention(self) -> ConsumedRetention:
        around = self._around
        return ConsumedRetention(
            self.led,
            around.facts,
            self.share_partitions,
            around.starts,
            clock=around.clock,
            metrics=around.metrics.consumed,
        )

    def topics_changed(self, deleted: frozenset[bytes]) -> None:
        """Apply a new metadata image, and stop leading `deleted` topics (PL-632)."""
        for partition in [partition for partition in self.led.led() if partition.topic_id in deleted]:
            self.owners.topic_deleted(partition)
        self._counts.forget(deleted)
        self.letters.retry()

    def groups_changed(self) -> None:
        """Pass changed group configs to the share-partitions."""
        self.share_partitions.configs_changed()

    def rights_changed(self) -> None:
        """Free what members may no longer hold, because access control entries have changed (PL-531)."""
        self.requests.rights.changed()

    def start(self) -> None:
        """Start the sweeps; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._sweep_retention(), name="retention"),
            loop.create_task(self._sweep_consumed(), name="consumed-retention"),
            loop.create_task(self._sweep_sessions(), name="idle-sessions"),
            loop.create_task(self._sweep_progress(), name="progress"),
        ]
        if self._reports is not None:
            self._reports.start()
        if self._transaction_sweep is not None:
            self._tasks.append(loop.create_task(self._transaction_sweep.run(), name="open-transactions"))

    def drain(self) -> None:
        """Answer parked fetches now (CM-4)."""
        self.requests.drain()

    async def stop(self) -> None:
        """End everything. Call it after the shards were released."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._reports is not None:
            await self._reports.stop()
        await self._memory.close()
        await self.requests.rights.close()
        await self.share_partitions.close()
        await self.letters.close()
        self.letters.left.close()
        self._deadlines.close()
        self._archived.close()
        self._delays.close()
        self._consumed.close()
        self._stored.close()
        self._around.metrics.progress.close()
        self.owners.close()

    async def _sweep_retention(self) -> None:
        while True:
            await asyncio.sleep(self._around.retention_interval_ms / 1000)
            try:
                await self.led.retain()
            except Exception:
                log.exception("retention_sweep_failed")

    async def _sweep_consumed(self) -> None:
        while True:
            await asyncio.sleep(self._around.consumed_interval_ms / 1000)
            try:
                await self._consumed.round()
            except Exception:
                log.exception("consumed_retention_round_failed")

    async def progress_round(self) -> None:
        """Compute the progress of groups, and export it (PL-950, PL-956)."""
        await self.progress.round(ask=self._around.enabled())
        await self._around.metrics.progress.refresh(
            self.progress.latest, await self.progress.topics(), self._around.facts.name
        )

    async def _sweep_progress(self) -> None:
        while True:
            await asyncio.sleep(self.progress.pause_ms / 1000)
            try:
                await self.progress_round()
            except Exception:
                log.exception("progress_round_failed")

    async def _sweep_sessions(self) -> None:
        while True:
            await asyncio.sleep(IDLE_INTERVAL_S)
            try:
                if self.requests.sessions:
                    self.requests.expire_idle()
            except Exception:
                log.exception("idle_session_sweep_failed")


def _member_reports(around: Surroundings) -> MemberReports | None:
    if around.coordinator_of is None:
        return None
    count = around.metrics.members_reported
    return MemberReports(around.transport, around.coordinator_of, around.address, around.clock, count)


def _letter_post(around: Surroundings, led: LedPartitions, deadlines: Deadlines) -> LetterPost:
    return LetterPost(
        around.letters,
        NodeSenders(led, around.transport, around.leader_of),
        LetterReports(around.metrics),
        deadlines,
        clock=around.clock,
        rng=around.rng,
    )
