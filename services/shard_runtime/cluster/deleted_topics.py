"""Removes what deleted topics leave in the store, whatever became of their owners (CM-21).

An owner removes its streams when it lets go. One that was killed, or whose removal the store did not confirm, leaves
them behind, and no reconcile ever looks at them again. The metadata therefore remember the partitions of a deleted
topic until its streams are known removed, and every partition leader process removes them: harmless to repeat, since
a topic id is never used again and no append makes a stream. A claim does make one, and a process that has not seen the
deletion may still claim. So there are two passes: one when owners have had their time, or at once when this process
starts and finds the deletion there; one much later, behind which the topic is forgotten. A process that missed the
deletion for longer removes what its claim made when it learns of it.
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

#: When each pass is made, in leases after this process saw the deletion.
PASSES: Final = (2, 20)
#: Hints that one command takes back.
_HINTS_AT_ONCE: Final = 500


@dataclass(slots=True)
class _Remains:
    """One deleted topic: passes made, and when the next one is due (`now_ms` clock)."""

    due_ms: int
    passes: int = 0


class DeletedTopics:
    """The passes of one process. What failed is tried again a lease later, for as long as the metadata name it."""

    def __init__(
        self, record_log: RecordLog, store: ClusterStore, metadata: MetadataLog, clock: Clock, lease_ms: int
    ) -> None:
        self._log = record_log
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._lease_ms = lease_ms
        self._waiting: dict[bytes, _Remains] = {}
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with what earlier processes left; then follow the metadata, which the caller has loaded."""
        now_ms = self._clock.now_ms()
        self._waiting = {topic_id: _Remains(now_ms) for topic_id in self._metadata.image.remains}
        self._metadata.subscribe(self._changed)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Make no more passes; what is left waits for other processes, or for the next start."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _changed(self, image: MetadataImage, previous: MetadataImage) -> None:
        if image.remains is not previous.remains:
            self._look.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._look.wait()
            self._look.clear()
            try:
                await self._pass()
            except Exception:
                log.exception("streams of deleted topics not looked at")
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
                    remains.passes -= 1  # until the metadata say so, the last pass is made again
                    done.append(topic_id)
        if done:
            await self._forget(done)

    async def _removed(self, topic_id: bytes, partitions: int) -> bool:
        """Remove every partition's streams, owner record and hint; False when the store did not confirm it."""
        shards = [ShardId(ShardKind.TOPIC, TopicIdPartition(topic_id, number).text) for number in range(partitions)]
        try:
            for shard in shards:
                await self._log.delete_streams(shard)
            for first in range(0, len(shards), _HINTS_AT_ONCE):
                names = [shard.name for shard in shards[first : first + _HINTS_AT_ONCE]]
                await self._store.remove_hints(ShardKind.TOPIC, names)
        except LogError as error:
            log.warning("streams of a deleted topic not removed yet", topic=topic_id_text(topic_id), why=str(error))
            return False
        return True

    async def _forget(self, done: Sequence[bytes]) -> None:
        """Have the metadata forget them, unless another process did."""

        def decide(image: MetadataImage) -> list[StreamsRemoved]:
            return [StreamsRemoved(topic_id) for topic_id in done if topic_id in image.remains]

        try:
            await self._metadata.change(decide)
        except LogError as error:
            log.warning("removed streams not noted yet", topics=len(done), why=str(error))
