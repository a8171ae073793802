"""Answers ExplainRecord: gathers what the leader knows about some records, and lets the core explain it (PL-820 …
PL-826).

It changes nothing: it creates no host, so a question neither loads a share-partition nor keeps one in memory; it reads
the log without changing the caches; and it reads stored state with ReadSummary, which fences no leader (SC-50).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kip932.errors import (
    InQuarantineError,
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_for,
)
from kip932.ids import GROUP_ID_MAX, SharePartitionKey
from kip932.state_values import ReadSummary, StateSpan, StateSummary
from partition_leader.explain.core.explain import Explanation, check_offsets, explain_loaded, explain_stored
from partition_leader.explain.core.explanation import KnownBatch, LogView, Question
from partition_leader.explain.core.explanation_words import span_of_time
from partition_leader.led_partitions import LedPartitions
from partition_leader.sessions.core.session import SessionCache
from partition_leader.share_partition.core.events import AbortedTransaction
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.core.visibility import (
    TransactionKind,
    TransactionPart,
    TransactionRole,
    transaction_parts,
)
from partition_leader.share_partition.dead_letter_port import DeadLetterPost, LettersWaiting
from partition_leader.share_partition.delay_clock import on_the_leader
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.clock import Clock
from share_persister.values import LeaderPersister, PersisterError

#: How many questions are answered at the same time; others wait. Each may hold the headers of 1,000 batches.
AT_A_TIME: Final = 16
#: How long one question may take, including its wait for other questions.
TIMEOUT_S: Final = 10.0
#: The maximum number of reads of the log, if records up to the last requested offset are appended during the read.
READS_MAX: Final = 3


class Asked(NamedTuple):
    """An ExplainRecord request as values; `last` is inclusive."""

    key: SharePartitionKey
    first: int
    last: int


class Answered(NamedTuple):
    """The explanation, and the question with all the values that it was computed from."""

    question: Question
    explanation: Explanation


class RecordExplainer:
    """Explains records of the topic-partitions that this process leads."""

    def __init__(
        self,
        led: LedPartitions,
        partitions: SharePartitions,
        sessions: SessionCache,
        persister: LeaderPersister,
        *,
        clock: Clock,
        enabled: Callable[[], bool],
        letters: DeadLetterPost,
        watched: Callable[[SharePartitionKey], Mapping[int, tuple[str, int, int]]],
    ) -> None:
        self._watched = watched
        self._letters = letters
        self._led = led
        self._partitions = partitions
        self._sessions = sessions
        self._persister = persister
        self._clock = clock
        self._enabled = enabled
        self._places = asyncio.Semaphore(AT_A_TIME)

    async def explain(self, asked: Asked) -> Answered:
        """Answer a question. Raises KafkaError if the question is invalid (PL-826), if the partition is not led here,
        or if the stored state or the log cannot be read now."""
        if not self._enabled():
            raise UnsupportedVersionError("share groups are switched off here (share.version=0)")
        _check_group(asked.key.group_id)
        check_offsets(asked.first, asked.last)
        try:
            async with asyncio.timeout(TIMEOUT_S), self._places:
                return await self._explain(asked)
        except TimeoutError:
            raise RequestTimedOutError(
                f"what {asked.key.text} is made of could not be read within {TIMEOUT_S:g} s; ask again"
            ) from None

    async def _explain(self, asked: Asked) -> Answered:
        stored = None if self._is_active(asked.key) else await self._stored(asked)
        view = await self._log_view(asked)
        # The answer describes one moment: nothing is awaited from here on, unless the share-partition was dropped
        # during the read.
        if stored is None and not self._is_active(asked.key):
            stored = await self._stored(asked)
        self._led.log(asked.key.topic_partition)  # another node may lead it by now
        question = self._question(asked, view)
        host = self._partitions.peek(asked.key)
        loaded = explain_loaded(host.core, question) if host is not None else None
        if loaded is None and stored is None:
            raise RequestTimedOutError(f"{asked.key.text} was loaded and dropped again meanwhile; ask again")
        return Answered(question, loaded or explain_stored(stored or StateSummary(), question))

    async def _log_view(self, asked: Asked) -> LogView:
        """Return the log's bounds, and its batches between them."""
        partition = asked.key.topic_partition
        for _ in range(READS_MAX):
            topic_log = self._led.log(partition)
            end = topic_log.high_watermark
            low, high = max(asked.first, topic_log.log_start_offset), min(asked.last, end - 1)
            batches = await topic_log.batches_between(low, high) if low <= high else ()
            topic_log = self._led.log(partition)
            if asked.last < end or topic_log.high_watermark == end:
                break
        known = [KnownBatch(batch.base_offset, batch.last_offset, batch.append_time_ms) for batch in batches]
        view = LogView(topic_log.log_start_offset, end, min(topic_log.last_stable, end), known)
        view = view._replace(parts=self._parts(topic_log, batches, low, high))
        keeper = topic_log.transactions.earliest
        if keeper is None or keeper.first_offset >= end:
            return view
        return view._replace(kept_by=keeper.transactional_id, kept_ms=keeper.open_ms(self._clock.wall_ms()))

    def _parts(self, topic_log: TopicLog, batches: Sequence[LogBatch], low: int, high: int) -> list[TransactionPart]:
        """Return the transaction roles of these batches."""
        aborted = [AbortedTransaction(*one[:3]) for one in topic_log.transactions.aborted_in(low, high)]
        wall_ms = self._clock.wall_ms()
        opened = {
            one.producer_id: (
                one.first_offset,
                TransactionRole(TransactionKind.OPEN, one.transactional_id, one.open_ms(wall_ms)),
            )
            for one in topic_log.transactions.open
        }
        return transaction_parts(batches, aborted, opened)

    def _is_active(self, key: SharePartitionKey) -> bool:
        host = self._partitions.peek(key)
        return host is not None and host.core.status is Status.ACTIVE

    async def _stored(self, asked: Asked) -> StateSummary:
        try:
            found = await self._persister.read_summary(ReadSummary(asked.key, StateSpan(asked.first, asked.last)))
        except PersisterError as failure:
            raise _unreadable(asked, failure.error) from failure
        delay_max_ms = self._partitions.config(asked.key.group_id).delay_max_ms
        return found._replace(batches=on_the_leader(found.batches, self._clock, delay_max_ms))

    def _question(self, asked: Asked, view: LogView) -> Question:
        key = asked.key
        config = self._partitions.config(key.group_id)
        host = self._partitions.peek(key)
        return Question(
            key.group_id,
            asked.first,
            asked.last,
            view,
            config,
            self._clock.now_ms(),
            self._sessions.fetching(key.group_id, key.topic_partition),
            self._persister.write_attempts(key),
            config.read_committed,
            config.auto_offset_reset,
            host is not None and host.core.status is Status.INITIALIZING,
            _letters(self._letters.waiting(key)),
            self._watched(key),
        )


def _letters(waiting: LettersWaiting | None) -> str:
    """Describe in words the dead letters of a share-partition that are not written yet."""
    if waiting is None:
        return ""
    text = f"{waiting.letters} dead letters for {waiting.topic!r} are not written, the oldest for "
    text += span_of_time(waiting.oldest_ms)
    if waiting.reason:
        text += f"; the last attempt failed: {waiting.reason}"
    return text if waiting.next_ms is None else f"{text}; the next attempt is in {span_of_time(waiting.next_ms)}"


def _check_group(group_id: str) -> None:
    if not group_id:
        raise InvalidRequestError("group_id is empty; expected the id of a share group")
    if len(group_id) > GROUP_ID_MAX:
        raise InvalidRequestError(f"group_id has {len(group_id)} characters; at most {GROUP_ID_MAX} are allowed")


def _unreadable(asked: Asked, error: KafkaError) -> KafkaError:
    if isinstance(error, InQuarantineError):
        return error  # its message is complete, and asking again would not help
    text = f"the stored state of {asked.key.text} cannot be read now: {error.message}; ask again"
    return error_for(error.code, text) or error
