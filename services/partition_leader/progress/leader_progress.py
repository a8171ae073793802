"""The progress of the groups in the partitions that this process leads, computed in slices beside other work.

A round asks the share coordinators about share-partitions that are not loaded here, takes a sample for the rates, and
computes the figures. Between two rounds, a question computes them again, unless they are new enough. To deliver a
record costs nothing here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kip932.errors import KafkaError, RequestTimedOutError
from kip932.ids import SharePartitionKey
from partition_leader.led_partitions import LedPartitions
from partition_leader.progress.core.figures import Figures, plus, unfinished
from partition_leader.progress.core.topics import AppendedByTopic, TopicFigures
from partition_leader.progress.core.tracked import (
    UNKNOWN,
    Appended,
    GroupTopic,
    StoredProgress,
    Tracked,
    TrackedPartitions,
)
from partition_leader.progress.core.window_view import UNWATCHED, Moment, WindowView, view
from partition_leader.progress.stored_progress import VALID_MS, StoredRounds
from partition_leader.sessions.core.session import SessionCache
from partition_leader.share_partition.core.finished import Finished
from partition_leader.share_partition.dead_letter_port import DeadLetterPost
from partition_leader.share_partition.leader_parts import LedPartition
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.topic_rpc.log_directory import ReadAllowance
from shard_runtime.clock import Clock
from shard_runtime.rpc.bounds import Turns

#: The maximum age of figures that answer a question.
FRESH_MS: Final = 1_000
#: How long a question waits for new figures.
ANSWER_S: Final = 2.0
#: At most one part in this many of the time is spent on computing figures.
BUSY_PART: Final = 20
#: A session that has fetched within this time still counts as fetching.
FETCHING_MS: Final = 30_000
#: How many batches of windows are read before other tasks run: about 2 ms.
SLICE: Final = 2_000
#: How many partitions of a session are counted in one go.
_SOME: Final = 500
#: What a share-partition costs in addition to its batches, in batches.
_EACH: Final = 20
#: The number of pauses between rounds for which stored progress may be used, once it was asked for.
VALID_PAUSES: Final = 3
#: The maximum number of share-partitions for which a round reads from the store when their oldest unfinished record was
#: appended.
COLD_READS_MAX: Final = 200
#: A round begins no further such read once the reads have taken this long.
COLD_READS_MS: Final = 2_000


class Board(NamedTuple):
    """The figures of one moment (ms): of each share-partition, and the sums over the partitions of a topic.

    `departed`: what was finished in partitions that this process led before, so that its counters do not fall.
    """

    at_ms: int
    parts: Mapping[SharePartitionKey, Figures]
    sums: Mapping[GroupTopic, Figures]
    departed: Mapping[GroupTopic, Finished]


class LeaderProgress:
    """The figures of one process. `interval_ms`: the time between two rounds, unless computing takes long."""

    def __init__(
        self,
        led: LedPartitions,
        partitions: SharePartitions,
        sessions: SessionCache,
        tracked: TrackedPartitions,
        *,
        letters: DeadLetterPost,
        stored: StoredRounds,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._led = led
        self._partitions = partitions
        self._sessions = sessions
        self._letters = letters
        self._clock = clock
        self._stored = stored
        self._interval_ms = interval_ms
        self._tracked = tracked
        self._appended = AppendedByTopic()
        self._board = Board(0, {}, {}, {})
        self._cost_ms = self._read_ms = 0
        self._computing = asyncio.Lock()

    @property
    def latest(self) -> Board:
        """The newest figures."""
        return self._board

    async def topics(self) -> dict[bytes, TopicFigures]:
        """Return the figures of topics. Call it in rounds only."""
        led, turns = dict(self._led.led()), Turns(SLICE)
        appended = self._appended.update({partition: one.log.appended for partition, one in led.items()})
        found = {topic_id: TopicFigures(records) for topic_id, records in appended.items()}
        for partition, one in led.items():
            await turns.step(_EACH)
            log, start = one.log, one.log.log_start_offset
            records = max(0, log.high_watermark - start - log.empty_from(start, committed=False))
            more = TopicFigures(0, records, log.bytes_available(start))
            found[partition.topic_id] = found[partition.topic_id].plus(more)
        return found

    async def board(self) -> Board:
        """Return figures that are new enough for a question; those who ask at the same time share the work. If that
        takes too long, as while the store is slow, the newest figures are returned. Raises RequestTimedOutError if
        there are none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S), self._computing:
                age_ms = self._clock.now_ms() - self._board.at_ms
                if not self._board.at_ms or age_ms > max(FRESH_MS, BUSY_PART * self._cost_ms):
                    await self._compute(ReadAllowance(0), sample=False)
        if not self._board.at_ms:
            raise RequestTimedOutError(f"no figures were computed within {ANSWER_S:g} s; ask again")
        return self._board

    @property
    def pause_ms(self) -> int:
        """The time until the next round."""
        return max(self._interval_ms, BUSY_PART * self._cost_ms)

    @property
    def _valid_ms(self) -> int:
        """How long stored progress may be used once it was asked for."""
        return max(VALID_MS, VALID_PAUSES * self.pause_ms)

    async def round(self, *, ask: bool = True) -> None:
        """Ask for stored progress, unless share groups are switched off; compute the figures, and take a sample."""
        if ask:
            await self._stored.ask()
        async with self._computing:
            await self._compute(ReadAllowance(COLD_READS_MAX), sample=True)

    async def _compute(self, cold: ReadAllowance, *, sample: bool) -> None:
        began_ms, turns = self._clock.now_ms(), Turns(SLICE)
        self._read_ms = 0
        by_partition, by_topic = await self._fetching(turns)
        parts: dict[SharePartitionKey, Figures] = {}
        sums: dict[GroupTopic, Figures] = {}
        leaving: list[SharePartitionKey] = []
        for key in self._keys():
            host = self._partitions.peek(key)
            await turns.step(_EACH + (0 if host is None else host.core.numbers().batch_count))
            led = self._led.led().get(key.topic_partition)
            if led is None:
                leaving.append(key)
                continue
            found = await self._figures(key, led, cold, sample=sample)
            if found is None:
                continue
            of = key.group_id, key.topic_id
            parts[key] = found._replace(fetching=by_partition[key])
            sums[of] = plus(sums[of], found) if of in sums else found
        for of, found in sums.items():
            sums[of] = found._replace(fetching=by_topic[of])
        self._tracked.end_departed(sums.__contains__)
        departed = self._tracked.left(leaving)
        now_ms = self._clock.now_ms()
        self._cost_ms = now_ms - began_ms - self._read_ms
        self._board = Board(now_ms, parts, sums, departed)

    def _keys(self) -> list[SharePartitionKey]:
        loaded = [host.key for host in self._partitions.hosts()]
        return list(dict.fromkeys((*self._tracked.by_key, *loaded)))

    async def _fetching(self, turns: Turns) -> tuple[Counter[SharePartitionKey], Counter[GroupTopic]]:
        """Count the sessions that fetch, by partition and by topic."""
        by_partition: Counter[SharePartitionKey] = Counter()
        by_topic: Counter[GroupTopic] = Counter()
        since_ms = self._clock.now_ms() - FETCHING_MS
        for member, partitions in [(key, tuple(each)) for key, each in self._sessions.fetching_since(since_ms)]:
            for first in range(0, len(partitions), _SOME):
                await turns.step(_SOME)
                some = partitions[first : first + _SOME]
                by_partition.update(SharePartitionKey(member.group_id, *each) for each in some)
            by_topic.update((member.group_id, topic_id) for topic_id in {each.topic_id for each in partitions})
        return by_partition, by_topic

    async def _figures(
        self, key: SharePartitionKey, led: LedPartition, cold: ReadAllowance, *, sample: bool
    ) -> Figures | None:
        """Return the figures of a share-partition; None if it has no state that is known here. One that was dropped
        keeps its counts until its state is known again, so that no counter falls meanwhile."""
        host, now_ms = self._partitions.peek(key), self._clock.now_ms()
        if host is not None and host.log.epoch != led.log.epoch:
            host = None  # it retires with an earlier epoch of the partition, under which its counts are kept
        tracked = self._tracked.obtain(key, led.log.epoch)
        seen: WindowView | None = None
        if host is not None:
            moment = Moment(now_ms, led.log.high_watermark, led.log.holes_from, host.config.lock_ms)
            seen = view(host.core, moment, tracked.watched)
            tracked.core, tracked.watched = host.core, UNWATCHED if seen is None else seen.watched
        finished = tracked.finished
        if seen is None and tracked.stored is None and host is None and not finished.records:
            return None
        arrived = led.log.appended.records
        recent = tracked.recent(now_ms, finished.records, arrived)
        if sample:
            tracked.sample(now_ms, finished.records, arrived)
        letters = self._letters.waiting(key)
        found = Figures(
            dead_letters=0 if letters is None else letters.letters,
            finished=finished,
            arrived=arrived,
            recent=recent,
            since_finish_ms=None if finished.last_ms < 0 else max(0, now_ms - finished.last_ms),
        )
        if seen is not None:
            found = found._replace(lag=seen.lag, in_flight=seen.in_flight, delayed=seen.delayed, longest=seen.longest)
            start = seen.start_offset
        else:
            stored = tracked.fresh(now_ms, self._valid_ms)
            found = found._replace(lag=_stored_lag(stored, led))
            start = UNKNOWN if stored is None else stored.start_offset
        if found.lag == 0 or start == UNKNOWN:
            return found
        return found._replace(oldest_ms=await self._age_ms(tracked, led, start, cold))

    async def _age_ms(self, tracked: Tracked, led: LedPartition, start: int, cold: ReadAllowance) -> int | None:
        """Return the age of the first record from `start` on; None if that is not in memory and no more reads are
        allowed."""
        log = led.log
        offset = max(start, log.log_start_offset)
        known = tracked.oldest
        if known is None or known.offset != offset:
            known = None
            with suppress(KafkaError):
                wall_ms = await log.append_time(offset, cold=False)
                may_read = wall_ms is None and offset < log.high_watermark and self._read_ms < COLD_READS_MS
                if may_read and cold.take():
                    began_ms = self._clock.now_ms()
                    try:
                        wall_ms = await log.append_time(offset, cold=True)
                    finally:
                        self._read_ms += self._clock.now_ms() - began_ms
                known = None if wall_ms is None else Appended(offset, wall_ms)
            tracked.oldest = known
        return None if known is None else max(0, self._clock.wall_ms() - known.wall_ms)


def _stored_lag(stored: StoredProgress | None, led: LedPartition) -> int | None:
    if stored is None or UNKNOWN in {stored.start_offset, stored.complete}:
        return None
    start = stored.start_offset
    return unfinished(led.log.high_watermark, start, stored.complete, led.log.holes_from(start))
