"""Removes what deleted topics leave in the store, even if their owners did not (CM-21).

An owner removes its streams when it releases them. If it was killed, or the store did not confirm the removal, they
stay, and no reconcile ever finds them. Therefore the metadata remember the partitions of a deleted topic until its
streams are known to be removed, and every partition leader process removes them. Repeating that is safe: a topic id is
never used again and no append creates a stream.

But a claim creates a stream, and a process that has not seen the deletion may still claim. So there are two passes. The
first comes after the owners have had time to remove their streams, or at once when this process finds the deletion at
its start. The second comes much later; after it the metadata forget the topic. A process that learns of the deletion
even later removes the stream that its own claim created.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from kip932.ids import TopicIdPartition, topic_id_text
from shard_runtime.clock import Clock
from shard_runtime.cluster.metadata import MetadataImage, StreamsRemoved
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.record_log.cluster_store import ClusterStore
from shard_runtime.record_log.protocol import LogError, RecordLog, ShardId, ShardKind

log = structlog.get_logger(__name__)

#: When each pass is made, counted in leases since this process saw the deletion.
PASSES: Final = (2, 20)
#: How many hints one command removes.
_HINTS_AT_ONCE: Final = 500


@dataclass(slots=True)
class _Remains:
    """One deleted topic: the passes made, and when the next one is due (`now_ms` clock)."""

    due_ms: int
    passes: int = 0


class DeletedTopics:
    """Makes the passes of one process. A failed pass is repeated one lease later, while the metadata name the topic."""

    def __init__(
        self, record_log: RecordLog, store: ClusterStore, metadata: MetadataLog, clock: Clock, lease_ms: int
    ) -> None:
        self._log = record_log
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._lease_ms = lease_ms
        self._waiting: dict[bytes, _Remains] = {}
        self._pass_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start with the topics already deleted, then follow the metadata, which the caller must have loaded."""
        now_ms = self._clock.now_ms()
        self._waiting = {topic_id: _Remains(now_ms) for topic_id in self._metadata.image.remains}
        self._metadata.subscribe(self._changed)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop making passes. Other processes, or this one after its next start, continue."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _changed(self, image: MetadataImage, previous: MetadataImage) -> None:
        if image.remains is not previous.remains:
            self._pass_due.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._pass_due.wait()
            self._pass_due.clear()
            try:
                await self._pass()
            except Exception:
                log.exception("deleted_topics_check_failed")
                await asyncio.sleep(self._lease_ms / 1000)

    def _pause_s(self) -> float | None:
        due_ms = min((remains.due_ms for remains in self._waiting.values()), default=None)
        return None if due_ms is None else max(due_ms - self._clock.now_ms(), 0) / 1000

    async def _pass(self) -> None:
        now_ms = self._clock.now_ms()
        partitions, lease_ms = self._metadata.image.remains, self._lease_ms
        self._waiting = {
            topic_id: self._waiting.get(topic_id) or _Remains(now_ms + PASSES[0] * lease_ms) for topic_id in partitions
        }
        done = []
        for topic_id in [topic_id for topic_id, remains in self._waiting.items() if remains.due_ms <= now_ms]:
            remains = self._waiting[topic_id]
            remains.due_ms = self._clock.now_ms() + lease_ms
            if await self._removed(topic_id, partitions[topic_id]):
                remains.passes += 1
                if remains.passes < len(PASSES):
                    remains.due_ms = now_ms + (PASSES[remains.passes] - PASSES[remains.passes - 1]) * lease_ms
                else:
                    remains.passes -= 1  # repeat the last pass until the metadata have forgotten the topic
                    done.append(topic_id)
        if done:
            await self._forget(done)

    async def _removed(self, topic_id: bytes, partitions: int) -> bool:
        """Remove every partition's streams, owner record and hint. Returns False when the store did not confirm it."""
        shards = [ShardId(ShardKind.TOPIC, TopicIdPartition(topic_id, number).text) for number in range(partitions)]
        try:
            for shard in shards:
                await self._log.delete_streams(shard)
            for first in range(0, len(shards), _HINTS_AT_ONCE):
                names = [shard.name for shard in shards[first : first + _HINTS_AT_ONCE]]
                await self._store.remove_hints(ShardKind.TOPIC, names)
        except LogError as error:
            log.warning(
                "deleted_topic_removal_failed",
                topic=topic_id_text(topic_id),
                cause=str(error),
                effect="its streams stay until the next try",
            )
            return False
        return True

    async def _forget(self, done: Sequence[bytes]) -> None:
        """Make the metadata forget these topics, unless another process already did."""

        def decide(image: MetadataImage) -> list[StreamsRemoved]:
            return [StreamsRemoved(topic_id) for topic_id in done if topic_id in image.remains]

        try:
            await self._metadata.change(decide)
        except LogError as error:
            log.warning("deleted_topic_removal_unrecorded", topics=len(done), cause=str(error))
