"""Runs ShareFetch and ShareAcknowledge on plain values: session step, acknowledgements, fetch, and one response.

The order is that of PL-420 and PL-422: validate, advance the session epoch, apply acknowledgements, then fetch. The
acknowledgements and the fetch run concurrently, and the response is sent when both have finished. Everything up to the
first wait happens in one step: requests of one stream take their epochs in order of arrival, and no acknowledgement
waits for a parked fetch (P-5). A result that needed no write is returned only while the lease is valid (PL-411).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

import structlog

from kip932.acls import ResourceType
from kip932.errors import (
    GroupIdNotFoundError,
    KafkaError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kip932.ids import SharePartitionKey, TopicIdPartition
from kip932.quotas import CONSUMER_BYTE_RATE
from partition_leader.fetch.core.fetch_policy import FetchLimits, effective_sizes
from partition_leader.fetch.fetch import FetchedPartition, FetchParameters, ShareFetchOperation
from partition_leader.fetch.wide_fetch import WIDE, WideShareFetch
from partition_leader.led_partitions import LedPartitions
from partition_leader.sessions.core.session import (
    CLEAN,
    CLOSING_EPOCH,
    OPENING_EPOCH,
    ClosedSession,
    Outcome,
    SessionCache,
    SessionKey,
    SessionRequest,
    SessionStep,
)
from partition_leader.sessions.member_watch import MemberWatch
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.host import SharePartitionHost
from partition_leader.share_partition.operation_result import OperationResult
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.share_rpc.core.validate import check_acknowledgements, check_identity, check_limits
from partition_leader.share_rpc.delivery_counts import DeliveryCounts
from partition_leader.share_rpc.session_rights import SessionRights
from partition_leader.share_rpc.values import FETCH_MAX_BYTES, OnAnswer, PartitionAnswer, ShareAnswer, ShareRequest
from shard_runtime.clock import Clock
from shard_runtime.rpc.bounds import Turns
from shard_runtime.rpc.quotas import CallerQuota

log = structlog.get_logger(__name__)

#: The maximum of a fetch's max_wait_ms; a longer wait is reduced to it.
MAX_WAIT_MS: Final = 300_000


@dataclass(slots=True, eq=False)
class _DelayedRefusal:
    """A refusal that is sent when its timer fires, so that the client does not retry at once (PL-506).

    `answer` sends the refusal; to send it earlier, cancel `timer` too.
    """

    answer: Callable[[], None]
    timer: asyncio.TimerHandle = field(init=False)


@dataclass(slots=True, eq=False)
class _Run:
    """One request between its session step and its response.

    `unwritten`: acknowledgements that succeeded without a write, and their records by type. `waiting`: the number of
    parts of the request that have not finished.
    """

    request: ShareRequest
    step: SessionStep
    on_answer: OnAnswer
    results: dict[TopicIdPartition, PartitionAnswer] = field(default_factory=dict)
    unwritten: list[tuple[PartitionAnswer, SharePartitionHost, Sequence[int]]] = field(default_factory=list)
    waiting: int = 1
    fetch: ShareFetchOperation | None = None
    #: The group's lock duration when the request arrived; renewed locks last this long.
    lock_ms: int = 0
    #: The errors of topics that the caller is not authorized to read, and the version of the entries that decided it.
    refused: Mapping[bytes, KafkaError] = field(default_factory=dict)
    rights_version: int = 0
    #: What limits the bytes that the caller fetches (PL-532).
    quota: CallerQuota | None = None
    #: The topics whose records acquired so far were all released, because the caller lost its permission for them
    #: meanwhile.
    freed: set[bytes] = field(default_factory=set)

    def fetched(self, one: FetchedPartition) -> None:
        result = self.result(one.key.topic_partition)
        result.fetched, result.error = one, one.error

    def result(self, partition: TopicIdPartition) -> PartitionAnswer:
        found = self.results.get(partition)
        if found is None:
            found = self.results[partition] = PartitionAnswer(partition)
        return found

    def answered_lock_ms(self, now_ms: int) -> int:
        """Return the lock duration for the response: no longer than any lock that this request has started (PL-254).
        `now_ms`: the group's current lock duration."""
        begun = [one.fetched.lock_ms for one in self.results.values() if one.fetched is not None and one.fetched.ranges]
        if self.request.is_renew_ack:
            begun.append(self.lock_ms)
        return min(now_ms, *begun) if begun else now_ms


class ShareRequests:
    """All share sessions of this leader, and the requests that have not been answered yet."""

    def __init__(
        self,
        led: LedPartitions,
        partitions: SharePartitions,
        sessions: SessionCache,
        clock: Clock,
        rng: Random,
        *,
        counts: DeliveryCounts,
        fetch_max_bytes: int = FETCH_MAX_BYTES,
        enabled: Callable[[], bool] = lambda: True,
        members: MemberWatch | None = None,
    ) -> None:
        """`fetch_max_bytes`: the maximum bytes of batches in a response; `enabled`: the feature gate (GC-8)."""
        self.sessions = sessions
        self._fetch_max_bytes = fetch_max_bytes
        self._enabled = enabled
        self._members = members or MemberWatch()
        self._counts = counts
        self._led = led
        self._partitions = partitions
        self._clock = clock
        self._rng = rng
        self._fetch_ids = 0
        self._connection_ids = 0
        self._runs: dict[_Run, None] = {}
        self._by_session: dict[SessionKey, dict[_Run, None]] = {}
        self._delayed: dict[_DelayedRefusal, None] = {}
        self._gathering: set[asyncio.Task[None]] = set()
        self._draining = False
        self.rights: Final = SessionRights(partitions, led.name, self._take_away)

    @property
    def running(self) -> int:
        """How many requests are not answered yet."""
        return len(self._runs) + len(self._delayed)

    # --- entry points

    def handle(self, request: ShareRequest, on_answer: OnAnswer) -> object:
        """Take a request. `on_answer` is called once, perhaps before this returns.

        The returned value identifies the request in `abandon` and `hurry`.
        """
        try:
            step = self._session_step(request)
        except ShareSessionLimitReachedError as error:
            return self._refuse_later(request, on_answer, ShareAnswer(error))
        except KafkaError as error:
            on_answer(ShareAnswer(error))
            return None
        run = _Run(request, step, on_answer)
        if request.is_renew_ack:
            run.lock_ms = self._partitions.config(request.group_id).lock_ms
        fetched = self._check_topics(run)
        self._runs[run] = None
        self._by_session.setdefault(step.key, {})[run] = None
        self._counts.acknowledging(request.acknowledgements)
        for partition, batches in request.acknowledgements.items():
            self._acknowledge(run, partition, batches)
        if step.closed is not None:
            self._release(step.closed)
        if not step.is_final:
            self.rights.note(step.key, request.caller, fetched)
        if request.limits is not None and step.fetch and not request.is_renew_ack:
            self._fetch(run, request.limits)
        self._part_done(run)
        return run

    def abandon(self, handle: object) -> None:
        """Forget a request whose caller is no longer waiting, and never call its `on_answer`. Records that it acquired
        stay acquired (PL-215)."""
        if isinstance(handle, _DelayedRefusal):
            handle.timer.cancel()
            self._delayed.pop(handle, None)
        elif isinstance(handle, _Run) and handle in self._runs:
            self._forget(handle)
            if handle.fetch is not None:
                handle.fetch.cancel()
            self.sessions.finished(handle.step, self._clock.now_ms())

    def hurry(self, handle: object) -> None:
        """Answer a parked fetch now, without records: the caller sends no more requests, but still reads the
        responses."""
        if isinstance(handle, _DelayedRefusal):
            self._refuse(handle)
        elif isinstance(handle, _Run) and handle.fetch is not None:
            handle.fetch.conclude()

    def connection_made(self) -> int:
        """Return a number for a new stream, for `ShareRequest.connection_id` and `connection_lost`."""
        self._connection_ids += 1
        return self._connection_ids

    def connection_lost(self, connection_id: int) -> None:
        """End the sessions of a stream that ended, release what their members hold, and report them (PL-520, PL-522,
        PL-527)."""
        ended = self.sessions.connection_lost(connection_id)
        for closed in ended:
            self._release(closed)
        if ended and not self._draining:
            self._members.lost([closed.key for closed in ended])

    def end(self, closed: ClosedSession) -> None:
        """Release a session that was ended by neither its client nor its stream (PL-528)."""
        self._release(closed)

    def expire_idle(self) -> None:
        """End sessions without a stream whose last request was too long ago (PL-524)."""
        idle = {group: self._partitions.config(group).idle_ms for group in self._partitions.groups()}
        for closed in self.sessions.expire_idle(self._clock.now_ms(), idle, self._partitions.config("").idle_ms):
            self._release(closed)

    def drain(self) -> None:
        """Answer parked fetches now, with what they can acquire at once, because the process is shutting down
        (CM-4)."""
        self._draining = True
        for run in list(self._runs):
            if run.fetch is not None:
                run.fetch.expire()
        for delayed in list(self._delayed):
            self._refuse(delayed)

    # --- steps

    def _refuse_later(self, request: ShareRequest, on_answer: OnAnswer, answer: ShareAnswer) -> _DelayedRefusal | None:
        """Answer after max_wait_ms, so that the client does not retry at once (PL-506)."""
        wait_s = min(request.limits.max_wait_ms if request.limits else 0, MAX_WAIT_MS) / 1000
        if self._draining or not wait_s:
            on_answer(answer)
            return None
        delayed = _DelayedRefusal(partial(on_answer, answer))
        delayed.timer = asyncio.get_running_loop().call_later(wait_s, self._refuse, delayed)
        self._delayed[delayed] = None
        return delayed

    def _refuse(self, delayed: _DelayedRefusal) -> None:
        if delayed in self._delayed:
            del self._delayed[delayed]
            delayed.timer.cancel()
            delayed.answer()

    def _session_step(self, request: ShareRequest) -> SessionStep:
        if not self._enabled():
            raise UnsupportedVersionError("share groups are switched off here (share.version=0)")
        self._require_group(request)
        check_identity(request.group_id, request.member_id)
        if request.refused is not None:
            raise request.refused
        if request.limits is not None:
            check_limits(request.limits, request.mode, request.is_renew_ack)
        session = SessionRequest(
            key=SessionKey(request.group_id, request.member_id),
            epoch=request.epoch,
            session_id=request.session_id,
            connection_id=request.connection_id,
            topics=request.topics,
            forgotten=request.forgotten,
            has_acknowledgements=any(request.acknowledgements.values()),
            member_epoch=request.member_epoch,
            principal=request.caller.principal,
        )
        now_ms = self._clock.now_ms()
        if request.limits is None:
            return self.sessions.acknowledge(session, now_ms)
        step = self.sessions.fetch(session, self._rng.getrandbits(63), now_ms)
        if request.epoch == OPENING_EPOCH and request.connection_id is not None:
            self._members.back(step.key)
        return step

    def _require_group(self, request: ShareRequest) -> None:
        """Raise unless the caller may read the group (GC-139); the principal that opened a session may close it without
        that permission (PL-531)."""
        if request.epoch == CLOSING_EPOCH and not request.acknowledgements:
            key = SessionKey(request.group_id, request.member_id)
            if self.sessions.is_opened_by(key, request.caller.principal):
                return
        request.caller.require(ResourceType.GROUP, request.group_id)

    def _check_topics(self, run: _Run) -> set[bytes]:
        """Note the topics of the request that its caller is not authorized to read. Returns those that it may fetch."""
        caller = run.request.caller
        if caller.rights is None:
            return set()
        run.rights_version = caller.rights.access.version
        fetched = {partition.topic_id for partition in run.step.fetch}
        topics = fetched.union(partition.topic_id for partition in run.request.acknowledgements)
        known, name = self.rights.readable(run.step.key, caller), self._led.name
        unknown = [topic_id for topic_id in topics if topic_id not in known or not name(topic_id)]
        errors = {topic_id: self._led.refusal(caller, topic_id) for topic_id in unknown}
        run.refused = {topic_id: error for topic_id, error in errors.items() if error is not None}
        return fetched - run.refused.keys()

    def _acknowledge(self, run: _Run, partition: TopicIdPartition, batches: tuple[ev.AckBatch, ...]) -> None:
        """Validate and apply one partition's acknowledgements (PL-401, PL-402)."""
        result = run.result(partition)
        result.acknowledged = True
        try:
            if partition.topic_id in run.refused:
                raise run.refused[partition.topic_id]
            delay_max_ms = self._partitions.config(run.request.group_id).delay_max_ms
            check_acknowledgements(batches, run.request.is_renew_ack, delay_max_ms)
            self._led.lead(partition)
        except KafkaError as error:
            result.acknowledge_error = error
            return
        if not batches:
            return
        host = self._partitions.cached(SharePartitionKey(run.request.group_id, *partition))
        if host is None:
            result.acknowledge_error = UnknownTopicOrPartitionError(
                f"group {run.request.group_id!r} holds nothing of {partition.text} on this leader; fetch from it first"
            )
            return
        run.waiting += 1
        host.acknowledge(run.request.member_id, batches, partial(self._acknowledged, run, result, host))

    def _acknowledged(
        self, run: _Run, result: PartitionAnswer, host: SharePartitionHost, outcome: OperationResult
    ) -> None:
        result.acknowledge_error = outcome.error
        if outcome.error is None and outcome.persisted:
            self._counts.records_acknowledged(outcome.acknowledged)
        elif outcome.error is None:
            run.unwritten.append((result, host, outcome.acknowledged))
        self._part_done(run)

    def _fetch(self, run: _Run, limits: FetchLimits) -> None:
        self._counts.fetching(run.step.fetch)
        self._fetch_ids += 1
        quota = run.quota = run.request.caller.quota(CONSUMER_BYTE_RATE)
        room_bytes = run.request.room_bytes if quota is None else min(run.request.room_bytes, quota.at_once)
        parameters = FetchParameters(
            fetch_id=self._fetch_ids,
            member_id=run.request.member_id,
            max_wait_ms=0 if self._draining else min(limits.max_wait_ms, MAX_WAIT_MS),
            sizes=effective_sizes(limits, room_bytes, self._fetch_max_bytes),
            batch_size=max(1, run.request.batch_size),
            mode=run.request.mode,
            share=run.request.caller.share,
            readable=run.request.readable,
            quota=quota,
        )
        keys = []
        for partition in run.step.fetch:
            if partition.topic_id in run.refused:
                run.result(partition).error = run.refused[partition.topic_id]
            else:
                keys.append(SharePartitionKey(run.request.group_id, *partition))
        if not keys and run.refused:
            return
        run.waiting += 1
        operation, done = WideShareFetch if len(keys) > WIDE else ShareFetchOperation, partial(self._fetched, run)
        run.fetch = operation(parameters, keys, self._partitions, done, acknowledging=run.waiting > 2)
        run.fetch.start()

    def _fetched(self, run: _Run, fetched: list[FetchedPartition]) -> None:
        if len(fetched) <= WIDE:
            for one in fetched:
                run.fetched(one)
            self._part_done(run)
            return
        task = asyncio.get_running_loop().create_task(self._fetched_in_turns(run, fetched), name="share-fetch-answer")
        self._gathering.add(task)
        task.add_done_callback(self._gathering.discard)

    async def _fetched_in_turns(self, run: _Run, fetched: list[FetchedPartition]) -> None:
        """Note the results of many partitions, one slice per turn of the event loop (CM-97). Meanwhile the caller may
        abandon the request, or its session may end; whether the request is answered is decided in one step at the end
        (PL-505)."""
        turns = Turns(WIDE)
        for one in fetched:
            run.fetched(one)
            await turns.step()
        self._part_done(run)

    def _part_done(self, run: _Run) -> None:
        run.waiting -= 1
        if run.waiting == 1 and run.fetch is not None:
            run.fetch.acknowledged()
        if run.waiting == 0 and run in self._runs:
            run.fetch = None  # run and fetch refer to each other; this frees them without the garbage collector
            self._forget(run)
            answer = self._answer(run)
            self.sessions.finished(run.step, self._clock.now_ms())
            try:
                run.on_answer(answer)
            except Exception:  # must not interrupt the share-partition whose event brought the last result
                log.exception("share_answer_failed", group=run.request.group_id)

    def _forget(self, run: _Run) -> None:
        del self._runs[run]
        runs = self._by_session[run.step.key]
        del runs[run]
        if not runs:
            del self._by_session[run.step.key]

    # --- the answer

    def _answer(self, run: _Run) -> ShareAnswer:
        member_id = run.request.member_id
        try:
            self.sessions.check_current(run.step)
        except KafkaError as error:
            for result in run.results.values():
                if result.fetched is not None:
                    result.fetched.give_back(member_id)
            return ShareAnswer(error)
        self._gate(run)
        self._check_rights_again(run)
        self._counts.answered(run.results.values())
        outcomes: dict[TopicIdPartition, Outcome] = {}
        for partition, result in run.results.items():
            has_records = result.fetched is not None and bool(result.fetched.ranges)
            if has_records or result.error is not None or result.acknowledged:
                outcomes[partition] = Outcome(has_records, result.error is not None, result.acknowledged)
            else:
                outcomes[partition] = CLEAN
        if run.request.limits is None:
            reported: Iterable[TopicIdPartition] = outcomes
        else:
            reported = self.sessions.report(run.step, outcomes)
        settings = self._partitions.config(run.request.group_id)
        return ShareAnswer(
            lock_ms=run.answered_lock_ms(settings.lock_ms),
            delay_max_ms=settings.delay_max_ms,
            delivery_count_limit=settings.delivery_count_limit,
            dead_letter_topic=settings.dead_letter_topic,
            session_id=run.step.session_id,
            partitions=[run.results[partition] for partition in reported],
            throttle_ms=0 if run.quota is None else run.quota.throttle_ms(),
        )

    def _check_rights_again(self, run: _Run) -> None:
        """Deliver nothing of a topic or group that its caller may no longer read, if the entries have changed since the
        request came (PL-531)."""
        caller = run.request.caller
        if caller.rights is None or caller.rights.access.version == run.rights_version:
            return
        reads = caller.may(ResourceType.GROUP, run.request.group_id)
        for partition, result in run.results.items():
            if result.fetched is None:
                continue
            if partition.topic_id in run.freed:  # even if it may be read again: others may hold the records by now
                result.fetched.drop()
            error = self._led.refusal(caller, partition.topic_id)
            if error is not None:
                result.error = error
            if error is not None or not reads:
                result.fetched.give_back(run.request.member_id)

    def _gate(self, run: _Run) -> None:
        """If the lease has lapsed, refuse results that no write confirmed, since the process may have been paused
        (PL-411). The records that this request acquired are then released."""
        for result, host, acknowledged in run.unwritten:
            if host.lease_valid():
                self._counts.records_acknowledged(acknowledged)
            else:
                result.acknowledge_error = NotLeaderOrFollowerError("the lease of this leader has lapsed")
        for result in run.results.values():
            fetched = result.fetched
            if fetched is not None and fetched.ranges and fetched.host is not None and not fetched.host.lease_valid():
                fetched.give_back(run.request.member_id)
                result.error = NotLeaderOrFollowerError("the lease of this leader has lapsed")

    def _take_away(self, key: SessionKey, topics: Collection[bytes]) -> None:
        """Answer the parked fetches of a session now, and let no request of it deliver what it has acquired of these
        topics so far, which is being released."""
        for run in self._by_session.get(key, ()):
            run.freed.update(topics)
        self._conclude(key)

    def _conclude(self, key: SessionKey) -> None:
        """Answer the parked fetches of a session now; they acquire nothing more."""
        for run in tuple(self._by_session.get(key, ())):
            if run.fetch is not None:
                run.fetch.conclude()

    def _release(self, closed: ClosedSession) -> None:
        """Release what a session's member holds, without waiting for the outcome. Retire the group's share-partitions
        if it has no session left.

        Parked fetches of the session end first. They can only get an error (PL-505), and otherwise they could open
        share-partitions of a group that has no session left (PL-523).
        """
        self._conclude(closed.key)
        self.rights.forget(closed.key)
        group_id, member_id = closed.key
        keys = [SharePartitionKey(group_id, *partition) for partition in closed.partitions]
        self._partitions.later(keys, lambda host: host.release(member_id))
        if closed.group_is_empty:
            reason = GroupIdNotFoundError(f"group {group_id!r} has no share session left on this leader")
            self._partitions.later(self._partitions.of_group(group_id), lambda host: host.feed(ev.Retire(reason)))
