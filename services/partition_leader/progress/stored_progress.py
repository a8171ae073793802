"""Asks the share coordinators for the stored progress of groups, for share-partitions that are not loaded (PL-954)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from kip932.errors import InvalidRequestError, KafkaError
from kip932.ids import STARTS_TOPICS_MAX, SharePartitionKey
from partition_leader.group_starts import StartOffsets
from partition_leader.led_partitions import LedPartitions
from partition_leader.progress.core.tracked import StoredProgress, TrackedPartitions
from shard_runtime.clock import Clock
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How long, at least, what was read may be used (PL-954).
VALID_MS: Final = 30_000
#: How many share-partitions of a response are noted before other tasks run: about 2 ms.
_SLICE: Final = 1_000


class StoredRounds:
    """Reads the stored progress of the groups in all topics with a partition that is led here. `failed` counts rounds
    in which not every share coordinator answered."""

    def __init__(
        self,
        led: LedPartitions,
        starts: StartOffsets,
        tracked: TrackedPartitions,
        *,
        clock: Clock,
        failed: Callable[[], None],
    ) -> None:
        self._led = led
        self._starts = starts
        self._tracked = tracked
        self._clock = clock
        self._failed = failed
        self._lines = RateLimitedLog(log)
        self._answered_ms = clock.now_ms()

    async def ask(self) -> None:
        """Note what is stored. If a share coordinator does not answer, what was read before stays, and gets too old."""
        began_ms = self._clock.now_ms()
        topics = sorted({partition.topic_id for partition in self._led.led()})
        try:
            for first in range(0, len(topics), STARTS_TOPICS_MAX):
                await self._ask(topics[first : first + STARTS_TOPICS_MAX])
            self._answered_ms = began_ms
        except KafkaError as error:
            self._failed()
            if began_ms - self._answered_ms < VALID_MS:  # nothing is unknown yet
                return
            self._lines.warning(
                "stored_progress_unknown",
                key="unknown",
                cause=f"{error.name}: {error.message}",
                effect="the lag of groups that do not fetch here is absent from the metrics and from "
                "`list_share_progress`",
                since_s=(began_ms - self._answered_ms) // 1000,
            )

    def close(self) -> None:
        """Log the lines that the rate limit still holds back."""
        self._lines.close()

    async def _ask(self, topic_ids: Sequence[bytes]) -> None:
        """Ask about topics together; about fewer at once if they have too many share-partitions for one response. A
        topic that has too many by itself stays unknown. Raises KafkaError."""
        asked_ms, turns, known = self._clock.now_ms(), Turns(_SLICE), set[SharePartitionKey]()
        try:
            groups = await self._starts.ask(topic_ids)
        except InvalidRequestError:
            if len(topic_ids) == 1:
                raise
            half = len(topic_ids) // 2
            await self._ask(topic_ids[:half])
            await self._ask(topic_ids[half:])
            return
        for topic_id, of_topic in groups.items():
            for group_id, starts in of_topic.items():
                for partition, start in starts.items():
                    await turns.step()
                    key = SharePartitionKey(group_id, topic_id, partition)
                    known.add(key)
                    led = self._led.led().get(key.topic_partition)
                    if led is not None:
                        self._tracked.note(key, led.log.epoch, StoredProgress(*start, asked_ms))
        wanted = frozenset(topic_ids)
        for key in list(self._tracked.by_key):
            await turns.step()
            if key.topic_id in wanted and key not in known:
                self._tracked.end(key, asked_ms)
