"""ListOffsets, plain Fetch and DeleteRecords (CM-45): for tools, and for look-ups by producers and consumers.

Plain Fetch reads by offset, independently of share groups. All three return a result per partition, in the request's
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kip932.acls import ResourceType
from kip932.api.v1 import delete_records_pb2, fetch_pb2, list_offsets_pb2
from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.errors import InvalidRequestError, KafkaError, RequestTimedOutError, ThrottlingQuotaExceededError
from kip932.ids import OFFSET_MAX_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED, TopicIdPartition
from kip932.quotas import CONSUMER_BYTE_RATE
from partition_leader.topic_log.core.batch import NO_PRODUCER, LogBatch
from partition_leader.topic_log.formats import format_refusal, part_in
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.error_codec import LeaderNames, wire_code
from partition_leader.topic_rpc.log_directory import (
    GroupProgress,
    LogDirectory,
    ReadAllowance,
    check_leader_epoch,
    checked_topic_id,
)
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from shard_runtime.rpc.bounds import Turns, check_partitions
from shard_runtime.rpc.budget import WAIT_S, Share
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.quotas import CallerQuota

FETCH_MAX_BYTES: Final = 8 << 20
#: How many bytes a fetch may read even if the budget has little room left; it waits until there is that much.
FETCH_MIN_BYTES: Final = 64 << 10
#: How many partitions are processed without letting other tasks run.
SLICE: Final = 250
FETCH_WAIT_MAX_MS: Final = 30_000
DELETE_TIMEOUT_MS: Final = 30_000
DELETE_TIMEOUT_MAX_MS: Final = 300_000
#: The cost of counting a loaded share-partition's window, in partitions of a `SLICE`: up to 5 ms with 2,000 locks
#: (CM-94).
_LOADED_COST: Final = SLICE // 2
#: The maximum number of partitions in one ListOffsets request for which the age of a group's oldest record may be read
#: from the store (PL-827).
OLDEST_READS_MAX: Final = 200
#: The maximum number of batch formats in a request that are considered.
_FORMATS_MAX: Final = 16


class OffsetsService:
    """The handlers. `directory` holds the logs that this node leads; `context` comes from the server."""

    def __init__(
        self, directory: LogDirectory, fetch_max_bytes: int = FETCH_MAX_BYTES, progress: GroupProgress | None = None
    ) -> None:
        self._directory = directory
        self._progress = progress
        self._fetch_max_bytes = fetch_max_bytes

    async def list_offsets(
        self, request: list_offsets_pb2.ListOffsetsRequest, context: CallContext = NO_CALLER
    ) -> list_offsets_pb2.ListOffsetsResponse:
        """Return offsets by timestamp; offset and timestamp are −1 if no record is that recent.

        Raises InvalidRequestError for a bad topic id or too many partitions.
        """
        check_partitions((request.topics, "partitions"))
        committed = _reads_committed(request.isolation_level)
        response = list_offsets_pb2.ListOffsetsResponse()
        names, turns, allowance = LeaderNames(self._directory), Turns(SLICE), ReadAllowance(OLDEST_READS_MAX)
        for topic in request.topics:
            topic_id = checked_topic_id(topic.topic_id)
            results = response.topics.add(topic_id=topic_id).partitions
            for asked in topic.partitions:
                await turns.step()
                partition = TopicIdPartition(topic_id, asked.partition_index)
                one = results.add(partition_index=asked.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
                try:
                    if asked.HasField("share_group_id"):  # first, so that a refusal reveals nothing (GC-149)
                        context.require(ResourceType.GROUP, asked.share_group_id)
                    await self._list_offset(partition, asked, one, context, committed=committed)
                    if asked.HasField("share_group_id"):
                        await self._add_backlog(partition, asked, one, allowance)
                        await turns.step(_LOADED_COST if one.HasField("group_waiting") else 1)
                except KafkaError as error:
                    one.error_code, one.error_message = wire_code(error), error.message
                    names.fill(one.current_leader, partition, error)
        response.node_endpoints.extend(names.endpoints)
        return response

    async def _list_offset(
        self,
        partition: TopicIdPartition,
        asked: list_offsets_pb2.ListOffsetsRequest.Partition,
        into: list_offsets_pb2.ListOffsetsResponse.PartitionResult,
        context: CallContext,
        *,
        committed: bool,
    ) -> None:
        topic_log = self._log(partition, context)
        check_leader_epoch(topic_log, partition, _known_epoch(asked))
        if asked.timestamp < OFFSET_MAX_TIMESTAMP:
            raise InvalidRequestError(
                f"timestamp {asked.timestamp} has no meaning; expected −1 latest, −2 earliest, −3 largest, or ≥ 0"
            )
        found = await topic_log.offset_for(asked.timestamp, committed=committed)
        if found is not None:
            into.offset, into.timestamp, into.leader_epoch = found.offset, found.timestamp_ms, found.epoch
        if asked.HasField("holes_from"):
            into.holes = topic_log.holes_from(max(asked.holes_from, 0))

    async def _add_backlog(
        self,
        partition: TopicIdPartition,
        asked: list_offsets_pb2.ListOffsetsRequest.Partition,
        into: list_offsets_pb2.ListOffsetsResponse.PartitionResult,
        allowance: ReadAllowance,
    ) -> None:
        if self._progress is None:
            return
        start = asked.holes_from if asked.HasField("holes_from") else -1
        topic_log = self._directory.log(partition)
        found = await self._progress.of(
            asked.share_group_id, partition, topic_log, stored_start=start, allowance=allowance
        )
        into.group_in_flight = found.in_flight
        if found.waiting is not None:
            into.group_waiting = found.waiting
        if found.oldest_age_ms is not None:
            into.group_oldest_age_ms = found.oldest_age_ms
        if found.dead_letters is not None:
            into.group_dead_letters = found.dead_letters
        if found.dead_letter_age_ms is not None:
            into.group_dead_letter_age_ms = found.dead_letter_age_ms
        if found.delayed is not None:
            into.group_delayed = found.delayed
        if found.empty is not None:
            into.group_empty = found.empty

    async def fetch(self, request: fetch_pb2.FetchRequest, context: CallContext = NO_CALLER) -> fetch_pb2.FetchResponse:
        """Read batches; wait up to `max_wait_ms` for `min_bytes`, and until the caller's quota admits more (CM-192).
        Raises InvalidRequestError like `list_offsets`."""
        check_partitions((request.topics, "partitions"))
        _reads_committed(request.isolation_level)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(request.max_wait_ms, 0), FETCH_WAIT_MAX_MS) / 1000
        growth = _LogWatch()
        quota = context.quota(CONSUMER_BYTE_RATE)
        try:
            while True:
                growth.changed.clear()
                delay_s = 0 if quota is None else quota.delay_ms() / 1000
                remaining = deadline - loop.time()
                if 0 < delay_s <= remaining:
                    await asyncio.sleep(delay_s)
                    continue
                if delay_s:
                    await asyncio.sleep(max(remaining, 0))
                attempt = await self._attempt(request, growth, context, None if delay_s else quota, read=not delay_s)
                remaining = deadline - loop.time()
                if attempt.failed or attempt.size >= request.min_bytes or remaining <= 0 or delay_s:
                    return attempt.finish(quota)
                try:
                    async with asyncio.timeout(remaining):
                        await growth.changed.wait()
                except TimeoutError:
                    return attempt.finish(quota)
        finally:
            growth.forget()

    async def _attempt(
        self,
        request: fetch_pb2.FetchRequest,
        growth: _LogWatch,
        context: CallContext,
        quota: CallerQuota | None,
        *,
        read: bool,
    ) -> _FetchAttempt:
        """Read all partitions once, after reserving room for the response (CM-92). Raises ThrottlingQuotaExceededError
        if there is no room. `read`: whether batches are read, too, and not only offsets."""
        share = context.share
        max_bytes = max(1, min(request.max_bytes, self._fetch_max_bytes, max(share.room_bytes, FETCH_MIN_BYTES)))
        if quota is not None:
            max_bytes = min(max_bytes, quota.at_once)
        if not await share.wait(max_bytes, WAIT_S):
            raise ThrottlingQuotaExceededError("this node currently has no memory left for a Fetch; try again later")
        try:
            committed = _reads_committed(request.isolation_level)
            attempt = _FetchAttempt(
                self._directory,
                max_bytes if read else 0,
                growth,
                share,
                committed=committed,
                formats=request.batch_formats,
            )
            for topic in request.topics:
                await self._fetch_topic(attempt, topic, context)
            await share.turn(attempt.size)  # the answer's bytes are made at once
            return attempt
        finally:
            share.give(max_bytes)

    async def _fetch_topic(
        self, attempt: _FetchAttempt, topic: fetch_pb2.FetchRequest.Topic, context: CallContext
    ) -> None:
        topic_id = checked_topic_id(topic.topic_id)
        results = attempt.response.responses.add(topic_id=topic_id).partitions
        for asked in topic.partitions:
            await attempt.turns.step()
            partition = TopicIdPartition(topic_id, asked.partition)
            one = results.add(partition_index=asked.partition)
            try:
                topic_log = self._log(partition, context)
                check_leader_epoch(topic_log, partition, _known_epoch(asked))
                await attempt.read(topic_log, asked, one)
            except KafkaError as error:
                attempt.fail(one, partition, error)

    async def delete_records(
        self, request: delete_records_pb2.DeleteRecordsRequest, context: CallContext = NO_CALLER
    ) -> delete_records_pb2.DeleteRecordsResponse:
        """Move log starts; respond when they are durable. Raises InvalidRequestError like `list_offsets`."""
        check_partitions((request.topics, "partitions"))
        response = delete_records_pb2.DeleteRecordsResponse()
        names, turns = LeaderNames(self._directory), Turns(SLICE)
        timeout_ms = min(request.timeout_ms, DELETE_TIMEOUT_MAX_MS) if request.timeout_ms > 0 else DELETE_TIMEOUT_MS
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        changed: list[str] = []
        for topic in request.topics:
            topic_id = checked_topic_id(topic.topic_id)
            results = response.topics.add(topic_id=topic_id).partitions
            for asked in topic.partitions:
                partition = TopicIdPartition(topic_id, asked.partition_index)
                await turns.step()
                one = results.add(partition_index=asked.partition_index, low_watermark=-1)
                try:
                    topic_log = self._log(partition, context)
                    async with asyncio.timeout_at(deadline):
                        one.low_watermark = await topic_log.move_log_start(asked.offset)
                    changed.append(f"{partition.text} before {one.low_watermark}")
                except TimeoutError:
                    late = RequestTimedOutError(f"not confirmed within {timeout_ms} ms; it may still be done")
                    one.error_code, one.error_message = wire_code(late), late.message
                except KafkaError as error:
                    one.error_code, one.error_message = wire_code(error), error.message
                    names.fill(one.current_leader, partition, error)
        log_changes("records_deleted", context, changed)
        response.node_endpoints.extend(names.endpoints)
        return response

    def _log(self, partition: TopicIdPartition, context: CallContext) -> TopicLog:
        refused = self._directory.refusal(context, partition.topic_id)
        if refused is not None:
            raise refused
        return self._directory.log(partition)


def _reads_committed(isolation_level: int) -> bool:
    """Return whether only committed records are asked for (CM-45). Raises InvalidRequestError for an unknown level."""
    if isolation_level not in {READ_UNCOMMITTED, READ_COMMITTED}:
        raise InvalidRequestError(
            f"isolation_level is {isolation_level}; expected 0 (read_uncommitted) or 1 (read_committed)"
        )
    return isolation_level == READ_COMMITTED


def _known_epoch(
    asked: list_offsets_pb2.ListOffsetsRequest.Partition | fetch_pb2.FetchRequest.Partition,
) -> int | None:
    return asked.current_leader_epoch if asked.HasField("current_leader_epoch") else None


class _LogWatch:
    """Listens to the logs of one fetch, starting before the read, so that it misses no change."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._logs: set[TopicLog] = set()

    def watch(self, topic_log: TopicLog) -> None:
        """Listen to this log, too."""
        if topic_log not in self._logs:
            self._logs.add(topic_log)
            topic_log.add_listener(self)

    def forget(self) -> None:
        """Stop listening."""
        for topic_log in self._logs:
            topic_log.remove_listener(self)

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Wake the fetch: more records can be read."""
        self.changed.set()

    def log_start_advanced(self, log_start: int) -> None:
        """Wake the fetch: its offset may be out of range now."""
        self.changed.set()

    def log_closed(self, error: KafkaError) -> None:
        """Wake the fetch: the next attempt returns the error."""
        self.changed.set()


class _FetchAttempt:
    """One read of all partitions of a fetch; with a `max_bytes` of 0, of their offsets alone."""

    def __init__(
        self,
        directory: LogDirectory,
        max_bytes: int,
        growth: _LogWatch,
        share: Share,
        *,
        committed: bool,
        formats: Sequence[int],
    ) -> None:
        self.response = fetch_pb2.FetchResponse()
        self.turns = Turns(SLICE)
        self.size = 0
        self.failed = False
        self._names = LeaderNames(directory)
        self._max_bytes = max_bytes
        self._growth = growth
        self._committed = committed
        self._formats = frozenset(formats[:_FORMATS_MAX])
        self._share = share

    async def read(
        self,
        topic_log: TopicLog,
        asked: fetch_pb2.FetchRequest.Partition,
        into: fetch_pb2.FetchResponse.PartitionResult,
    ) -> None:
        """Add one partition's batches, or only its offsets if the fetch is full. Raises KafkaError, also if the first
        batch is in a format that the caller did not name (CM-222)."""
        self._growth.watch(topic_log)
        room = min(asked.partition_max_bytes, self._max_bytes - self.size)
        if room > 0 or (self._max_bytes and not self.size):
            result = await topic_log.read(asked.fetch_offset, max(room, 1), committed=self._committed)
            batches = part_in(self._formats, result.batches)
            if result.batches and not batches:
                raise format_refusal(result.batches[0], asked.fetch_offset)
            size = sum(batch.size for batch in batches)
            await self._share.turn(size)
            into.records.extend(map(_fetched, batches))
            for aborted in result.aborted:
                into.aborted_transactions.add(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            self.size += size
        into.high_watermark = topic_log.high_watermark
        into.last_stable_offset = topic_log.last_stable
        into.log_start_offset = topic_log.log_start_offset

    def fail(
        self, into: fetch_pb2.FetchResponse.PartitionResult, partition: TopicIdPartition, error: KafkaError
    ) -> None:
        """Return an error for one partition; the fetch then does not wait."""
        self.failed = True
        into.error_code, into.error_message = wire_code(error), error.message
        into.high_watermark = into.last_stable_offset = into.log_start_offset = -1
        self._names.fill(into.current_leader, partition, error)

    def finish(self, quota: CallerQuota | None) -> fetch_pb2.FetchResponse:
        """Return the response, with the endpoints of all leaders named in it, and charge it to the caller's quota."""
        if quota is not None:
            quota.charge(self.size)
            self.response.throttle_time_ms = quota.throttle_ms()
        self.response.node_endpoints.extend(self._names.endpoints)
        return self.response


def _fetched(batch: LogBatch) -> FetchedBatch:
    return FetchedBatch(
        base_offset=batch.base_offset,
        count=batch.record_count,
        batch=batch.data,
        is_control=batch.is_control,
        producer_id=None if batch.producer_id == NO_PRODUCER else batch.producer_id,
        is_transactional=batch.is_transactional,
        append_time_ms=batch.append_time_ms,
        control_type=batch.control_type,
        producer_epoch=None if batch.producer_id == NO_PRODUCER else batch.producer_epoch,
    )
