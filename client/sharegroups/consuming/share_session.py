"""The host of one share session: the stream to one leader, its fetches and its acknowledgements.

Rules CL-30 to CL-35, P-4, P-5, PL-502a. At most one ShareFetch and one ShareAcknowledge are in flight; a request takes
its epoch when it is written. Acknowledgements do not wait for a ShareFetch that the leader holds until records are
available: they are sent in a ShareAcknowledge. When the stream ends, the session ends, and all its acknowledgements
fail. The session abandons a silent leader when other nodes lead all its partitions. Requests to a leader that throttles
this client are delayed, without losing anything (CL-86).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest, ShareStreamResponse
from kip932.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    NetworkError,
    RetriableError,
    SaslAuthenticationFailedError,
    ShareSessionLimitReachedError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationFailedError,
    UnsupportedCompressionTypeError,
    error_for,
)
from kip932.ids import EPOCH_LEAVE, TopicIdPartition
from kip932.rpc.transport import TransportError
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import fatal_error
from sharegroups.connection.core.missing_rights import REFUSED_MS, may_not_read
from sharegroups.connection.core.throttle import THROTTLE_MAX_MS
from sharegroups.connection.leader_stream import LeaderStream
from sharegroups.connection.signal import Signal
from sharegroups.connection.silent_nodes import SILENCE_S
from sharegroups.connection.streams import CorrelatedStream
from sharegroups.consuming import share_messages
from sharegroups.consuming.ack_outbox import OUTDATED, SESSION_LOST, AckOutbox, AckOwner, NothingToSendError, PendingAck
from sharegroups.consuming.core.denied_rights import CREDENTIALS, DeniedTopics, Resource
from sharegroups.consuming.core.fetch_session import FetchSession, SessionStep
from sharegroups.consuming.core.refused_partitions import RefusedPartitions
from sharegroups.consuming.member import Member
from sharegroups.consuming.metrics import ConsumerMetrics
from sharegroups.messages import Delivered

log = logging.getLogger(__name__)

#: If a leader's response is later than this, in ms, the other leaders are asked without waiting for it.
_LATE_MS: Final = 1_000
_NEVER_MS: Final = 2**62


class SessionOwner(AckOwner, Protocol):
    """Receives what a session reports. The session makes all calls in the client's loop."""

    def fetched(self, delivered: list[Delivered]) -> None:
        """Receive records that arrived."""
        ...

    def failed(self, error: KafkaError) -> None:
        """Receive an error that the application must see at its next poll."""
        ...

    def gave_up(self, error: KafkaError) -> None:
        """Leave the group, since the member cannot read its records; every poll must raise this error (CL-111)."""
        ...

    def denied(self, node_id: int, refused: Mapping[Resource, KafkaError]) -> None:
        """Receive everything that the leader `node_id` currently refuses for lack of permission (CL-143)."""
        ...

    def wake(self) -> None:
        """Wake a waiting poll, because the state of this session has changed."""
        ...


class FetchRefusals:
    """Handles the errors of single partitions in one leader's session (CL-34, CL-91), and missing permissions (CL-143).

    Call `answered` with each response to a ShareFetch, or `group_denied`. `topics`: those that this client is not
    authorized to read.
    """

    def __init__(self, node_id: int, group_id: str, cluster: Cluster, owner: SessionOwner) -> None:
        self._node_id = node_id
        self._group_id = group_id
        self._cluster = cluster
        self._owner = owner
        self._refusals = RefusedPartitions(group_id)
        self.topics = DeniedTopics(cluster.backoff)
        self._group_error: KafkaError | None = None

    def answered(
        self,
        errors: Mapping[TopicIdPartition, KafkaError],
        asked: Collection[TopicIdPartition],
        wanted: Mapping[TopicIdPartition, str],
        now_ms: int,
    ) -> bool:
        """Handle the errors of one response. Returns whether another ShareFetch must wait for a back-off.

        An error about an outdated leader or topic refreshes the metadata. A permanent error is raised by the next poll,
        or ends the membership (CL-111). Others, including outdated ones, are logged once they have lasted. A missing
        permission is reported once, and only its topic is left out for a while. `asked`: the partitions of the
        request's session.
        """
        if not errors and not self._refusals.refused and not self.topics and self._group_error is None:
            return False
        passing: dict[TopicIdPartition, str] = {}
        denied: dict[bytes, TopicAuthorizationFailedError] = {}
        for partition, error in errors.items():
            if isinstance(error, TopicAuthorizationFailedError):
                denied.setdefault(partition.topic_id, error)  # later ones may be shortened (CM-61)
                continue
            if isinstance(error, OUTDATED):
                self._cluster.request_refresh()
            elif not isinstance(error, RetriableError):
                name = self._cluster.names.get(partition.topic_id, partition.text)
                fatal = isinstance(error, UnsupportedCompressionTypeError)
                report = self._owner.gave_up if fatal else self._owner.failed
                report(type(error)(f"{name}-{partition.partition}: {error.message}"))
                continue
            passing[partition] = f"{error.name}: {error.message}"
        self.topics.answered(denied, asked, wanted, now_ms)
        self._group_error = None
        self._report_denied(wanted)
        served = self.topics.askable(wanted, now_ms)
        for line in self._refusals.answered(passing, served, now_ms):
            log.warning("%s", line)
        return any(partition.topic_id not in denied for partition in errors)

    def group_denied(self, error: KafkaError, wanted: Mapping[TopicIdPartition, str]) -> None:
        """Note that the leader refuses every request: those of the group, or with this client's credentials."""
        self._group_error = error
        self._report_denied(wanted)

    def _report_denied(self, wanted: Mapping[TopicIdPartition, str]) -> None:
        names = {partition.topic_id: name for partition, name in wanted.items()}
        refused: dict[Resource, KafkaError] = {
            ("topic", names[topic_id]): may_not_read(error, self._group_id, [names[topic_id]])
            for topic_id, error in self.topics.errors().items()
            if topic_id in names
        }
        if isinstance(self._group_error, SaslAuthenticationFailedError):
            refused[CREDENTIALS] = self._group_error
        elif self._group_error is not None:
            topics = sorted(set(wanted.values()))
            refused["group", self._group_id] = may_not_read(self._group_error, self._group_id, topics)
        self._owner.denied(self._node_id, refused)


class ShareSession:
    """One leader's session. `wanted`: the partitions that it should contain. `fetch` and `flush` start requests.

    Acknowledgements put into the `outbox` are sent with the next ShareFetch, or by `flush`. `wait_ms` is how long the
    leader may hold the next ShareFetch while it has no records; None means fetch.max.wait.ms. `link` is the session's
    stream. Only one ShareFetch is in flight, so the session itself is that request's streams.Exchange.
    """

    def __init__(
        self, node_id: int, member: Member, cluster: Cluster, owner: SessionOwner, metrics: ConsumerMetrics
    ) -> None:
        self.node_id = node_id
        self.wanted: dict[TopicIdPartition, str] = {}
        self.lock_timeout_ms: int | None = None
        self.release_delay_max_ms = 0
        self.fetching = False
        self._retry_at_ms = 0
        self._member = member
        self._cluster = cluster
        self._owner = owner
        self._metrics = metrics
        self._template = member.fetch_request()
        self._session = FetchSession()
        self._backoff = cluster.backoff()
        self._refusals = FetchRefusals(node_id, member.group_id, cluster, owner)
        self.outbox = AckOutbox(node_id, cluster, owner)
        self.link = LeaderStream(node_id, cluster, wire.SHARE_STREAM, lambda: [self._session.known], self._move)
        #: True from when the leader asks to move until a request is about to do so (CL-144).
        self._must_move = False
        self._flushed = Signal()
        self._acknowledging: asyncio.Task[None] | None = None
        self._opening_fetch: asyncio.Task[None] | None = None
        self.wait_ms: int | None = None
        self._wait_ms = int(member.config["fetch.max.wait.ms"])
        self.timeout_s = self._wait_ms / 1000 + cluster.timeout_s
        self.expected_s = self._wait_ms / 1000 + SILENCE_S
        # The ShareFetch in flight. `_asked`: the partitions of its session. `_over`: a future that is set when it ends,
        # while close() waits for that.
        self._sent: list[PendingAck] = []
        self._asked: Mapping[TopicIdPartition, str] = {}
        self._step = SessionStep(0, None, self._session.generation, [], [])
        self._started_ms = self._sent_ms = 0
        #: When this client's quota admits the next ShareFetch (CL-160). It delays nothing else.
        self._quota_until_ms = 0
        self._over: asyncio.Future[None] | None = None
        self._closed = False
        self._clock = asyncio.get_running_loop().time
        #: From this time on, halfway through the timeout of close(), acknowledgements are sent even if the node
        #: throttles this client, since close() cannot wait any longer.
        self._last_call_ms = _NEVER_MS

    @property
    def generation(self) -> int:
        """The generation of the current session; deliveries of older generations cannot be acknowledged."""
        return self._session.generation

    @property
    def is_busy(self) -> bool:
        """True when acknowledgements are pending or a request is in flight (CL-37)."""
        return bool(self.outbox) or self.fetching or self._acknowledging is not None

    @property
    def not_before_ms(self) -> int:
        """When a ShareFetch may be sent: after the session's back-off, the back-off of unauthorized topics (if there
        are no others), the node's throttle time, and the delay that this client's quota requires."""
        denied = self._refusals.topics
        at_ms = max(self._retry_at_ms, self.link.free_at_ms, self._quota_until_ms)
        return max(at_ms, denied.not_before_ms(self.wanted)) if denied else at_ms

    def wants_fetch(self, now_ms: int) -> bool:
        """Return whether a ShareFetch may be sent now."""
        return not self.fetching and not self._closed and now_ms >= self.not_before_ms and bool(self.wanted)

    def awaits_records(self, now_ms: int) -> bool:
        """Return whether a ShareFetch is in flight and its response is not late."""
        return self.fetching and now_ms < self.late_at_ms

    @property
    def late_at_ms(self) -> int:
        """When the response to the last ShareFetch becomes late, so that other leaders no longer wait for it
        (CL-36)."""
        return self._started_ms + self._max_wait_ms + _LATE_MS

    @property
    def _max_wait_ms(self) -> int:
        """How long a leader without records may hold a ShareFetch."""
        return self._wait_ms if self.wait_ms is None else min(self.wait_ms, self._wait_ms)

    def fetch(self, now_ms: int) -> None:
        """Send a ShareFetch with the pending acknowledgements (CL-21). Call it only if `wants_fetch` returned True."""
        self.fetching, self._started_ms = True, now_ms
        self._step = SessionStep(0, None, self._session.generation, [], [])
        if (stream := self.link.current) is None:
            self._opening_fetch = asyncio.create_task(self._open_and_fetch())
        else:
            stream.send(self)

    def flush(self) -> None:
        """Send the pending acknowledgements now, even while a ShareFetch is in flight (P-5)."""
        if not self.outbox:
            return
        self._flushed.set()
        if self._acknowledging is None and not self._closed:
            self._acknowledging = asyncio.create_task(self._acknowledge())

    def _move(self) -> None:
        """Continue the session over another connection now: the leader would end it together with the current one
        (CL-144)."""
        self._must_move = True
        self._flushed.set()
        if self._acknowledging is None and not self._closed:
            self._acknowledging = asyncio.create_task(self._acknowledge())

    def hurry(self) -> None:
        """End the back-off, because the cluster can be reached again."""
        self._backoff.reset()
        self._retry_at_ms = 0

    async def close(self, timeout_s: float) -> None:
        """Send pending acknowledgements, close the session with epoch −1, and end the stream even if cancelled (CL-28,
        CL-37)."""
        self._last_call_ms = self._now_ms() + int(timeout_s * 500)
        self._flushed.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._close_session()
        except (TimeoutError, TransportError):
            pass  # the end of the stream closes the session too (PL-520)
        finally:
            await self._end()

    async def _end(self) -> None:
        """Stop requests in flight, fail the acknowledgements that have no outcome yet, and end the stream."""
        self._closed = True
        tasks = [task for task in (self._opening_fetch, self._acknowledging) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._session.lost(self._session.generation)
        self.outbox.fail_pending(self._was_closed())
        await self.link.close()

    # Fetching.

    async def _open_and_fetch(self) -> None:
        try:
            (await self._open()).send(self)
        except TransportError as error:
            self.failed(error)
        except BaseException:
            self.fetching = False
            self._owner.wake()
            raise
        finally:
            self._opening_fetch = None

    def make(self, number: int) -> ShareStreamRequest:
        """Build the ShareFetch with the pending acknowledgements, at the moment it is written (streams.Exchange)."""
        outbox, template, self._sent_ms = self.outbox, self._template, self._now_ms()
        outbox.drop_dead(self._session.generation)
        self._sent = outbox.take(renewals=False)
        self._asked = self._refusals.topics.askable(self.wanted, self._sent_ms)
        step = self._step = self._session.fetch_step(self._asked)
        self._member.update(template)
        template.max_wait_ms = self._max_wait_ms
        return share_messages.fetch_request(template, number, step, self._sent, self._asked)

    def answered(self, response: ShareStreamResponse) -> None:
        """Process the leader's response to the ShareFetch (streams.Exchange)."""
        sent, fetch = self._end_fetch(), response.fetch
        if fetch.error_code:
            self.link.note_throttle(fetch.throttle_time_ms)
        elif fetch.throttle_time_ms > 0:
            self._quota_until_ms = self._now_ms() + min(fetch.throttle_time_ms, THROTTLE_MAX_MS)
        try:
            self._metrics.fetch_latency_ms.add(self._now_ms() - self._started_ms)
            self._fetch_answered(self._step, sent, fetch)
        finally:
            self._owner.wake()

    def failed(self, error: Exception) -> None:
        """Handle a ShareFetch that will get no response (streams.Exchange). Re-raises an error that is not a
        TransportError."""
        sent = self._end_fetch()
        try:
            if self._closed:
                self.outbox.fail(sent, self._was_closed())
            elif isinstance(error, TransportError):
                self._broken(self._step, error, sent)
            else:
                raise error
        finally:
            self._owner.wake()

    def _end_fetch(self) -> list[PendingAck]:
        """Note that the ShareFetch is over. Returns the acknowledgements that it carried."""
        self.fetching = False
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        sent, self._sent = self._sent, []
        return sent

    def _fetch_answered(self, step: SessionStep, sent: list[PendingAck], response: ShareFetchResponse) -> None:
        if response.error_code and (error := error_for(response.error_code, response.error_message)):
            self._refused(step, sent, error)
            return
        self.link.accepted()
        if step.epoch == 0:
            self._session.opened(step.generation, response.session_id if response.HasField("session_id") else None)
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        self.release_delay_max_ms = response.release_delay_max_ms
        self._member.learn_limits(response)
        self._metrics.quota_waits.answered(self.node_id, response.throttle_time_ms, self._now_ms())
        results: dict[TopicIdPartition, KafkaError | None] = {}
        delivered: list[Delivered] = []
        ahead = self._template.max_records > self._template.batch_size
        locked = share_messages.Locked(self, step.generation, self._sent_ms, self.lock_timeout_ms or 0, ahead)
        size = batches = 0
        refused: dict[TopicIdPartition, KafkaError] = {}
        for topic in response.responses:
            for part in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, part.partition_index)
                code = part.acknowledge_error_code
                results[partition] = error_for(code, part.acknowledge_error_message) if code else None
                if part.error_code and (problem := error_for(part.error_code, part.error_message)):
                    refused[partition] = problem
                    if part.HasField("current_leader"):
                        self._cluster.learn(partition, part.current_leader, response.node_endpoints)
                elif part.acquired_records:
                    name = self.wanted.get(partition) or self._cluster.names.get(topic.topic_id, "")
                    brought = share_messages.delivered(name, partition, locked, part)
                    self._metrics.brought(brought.delivered.records, brought.size)
                    delivered.append(brought.delivered)
                    size, batches = size + brought.size, batches + len(part.records)
        self._member.ahead.answered(sum([part.records for part in delivered]), size, batches)
        self.outbox.fetch_answered(sent, results)
        self.flush()  # CL-97
        must_wait = self._refusals.answered(refused, self._asked, self.wanted, self._now_ms())
        if must_wait and not delivered:
            self._retry_at_ms = self._now_ms() + self._backoff.next_ms()
        elif not must_wait:
            self._backoff.reset()
        self._hand_over(step, delivered)

    def _hand_over(self, step: SessionStep, delivered: list[Delivered]) -> None:
        """Hand records to the owner. Records of partitions that are no longer assigned, and records that cannot be
        decompressed here, are released immediately (CL-111)."""
        if step.generation != self._session.generation:
            return  # the session is lost, so the leader has released the records (PL-520)
        kept: list[Delivered] = []
        for part in delivered:
            if part.id_partition not in self.wanted:
                self.release(part)
            elif (undecodable := part.undecodable) is not None:
                self.release(part, counts=True)  # so that a batch that no member can read reaches its delivery limit
                self._owner.gave_up(undecodable)
            elif part.records == 0:
                self.outbox.add(PendingAck(part, part.delivery.take(), self._default_deadline_ms(), unseen=True))
            else:
                kept.append(part)
        if kept:
            self._owner.fetched(kept)

    def release(self, part: Delivered, *, flush: bool = True, counts: bool = False) -> None:
        """Release records that wait for a poll; with `flush`, send the release now. `counts`: whether the delivery
        counts; it always does for renewed records, which a poll has already returned."""
        batches = part.delivery.give_back(counts or part.was_renewed)
        self.outbox.add(PendingAck(part, batches, self._default_deadline_ms(), unseen=True))
        if flush:
            self.flush()

    # Acknowledging.

    async def _acknowledge(self) -> None:
        """Send acknowledgements until none is pending, one request at a time."""
        try:
            while True:
                self._flushed.clear()
                self.outbox.drop_dead(self._session.generation)
                if self._must_move:
                    if (wait_s := (self._retry_at_ms - self._now_ms()) / 1000) > 0:
                        await self._flushed.wait(wait_s)
                    else:
                        await self._acknowledge_once()
                    continue
                if not self.outbox:
                    return
                if (left_s := self._due_in_s()) > 0:
                    await self._flushed.wait(left_s)
                else:
                    await self._acknowledge_once()
        finally:
            self._acknowledging = None
            self._owner.wake()

    def _due_in_s(self) -> float:
        """Return the number of seconds after which the next acknowledgement may be sent.

        While a node throttles this client, it gets no requests (CL-86). Acknowledgements are an exception: they are
        sent before their locks expire, since later the leader would refuse them, and another consumer would repeat the
        work.
        """
        free_ms = self.link.free_at_ms
        if free_ms > (now_ms := self._now_ms()):
            free_ms = min(free_ms, self.outbox.latest_ms(), self._last_call_ms)
        return (max(self.outbox.next_due_ms() or 0, free_ms) - now_ms) / 1000

    async def _acknowledge_once(self, closing: bool = False) -> None:
        sent: list[PendingAck] = []
        step = SessionStep(0, None, self._session.generation, [], [])

        def make(number: int) -> ShareStreamRequest:
            nonlocal step
            self.outbox.drop_dead(self._session.generation)
            sent.extend(self.outbox.take(renewals=True))
            if not sent and not closing and not moving:
                raise NothingToSendError
            for ack in sent:
                ack.sent_ms = self._now_ms()
            step = self._session.close_step() if closing else self._session.acknowledge_step()
            return share_messages.acknowledge_request(self._member, number, step, sent)

        moving, self._must_move = self._must_move, False
        try:
            stream = await self._open()
            if not self._session.is_established:
                self.outbox.drop_dead(self._session.generation)
                self.link.accepted()
                return
            moving = moving and self.link.is_moving
            response = (await stream.request(make, self._cluster.timeout_s, SILENCE_S)).acknowledge
        except NothingToSendError:
            return
        except TransportError as error:
            self._broken(step, error, sent)
            return
        except asyncio.CancelledError:
            self.outbox.fail(sent, self._was_closed())  # close() has no more time; the outcome is unknown (CL-26)
            raise
        self.link.note_throttle(response.throttle_time_ms)
        if refusal := error_for(response.error_code, response.error_message):
            self._refused(step, sent, refusal)
            return
        self.link.accepted()
        if response.acquisition_lock_timeout_ms:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
            for ack in sent:
                ack.lock_ms = response.acquisition_lock_timeout_ms
        self._member.learn_limits(response)
        self.outbox.acknowledge_answered(sent, response, retry=not closing)

    # Opening, losing and closing the session.

    async def _open(self) -> CorrelatedStream[ShareStreamRequest, ShareStreamResponse]:
        return await self.link.open(lambda: self._session.lost(self._session.generation))

    async def _close_session(self) -> None:
        if self.fetching and self._sent:
            # Ending the session now would lose the outcome of this fetch's acknowledgements (CL-26, PL-505).
            self._over = asyncio.get_running_loop().create_future()
            await self._over
        while self._session.is_established:
            if (sending := self._acknowledging) is not None:  # ending the session would lose its outcome
                await asyncio.gather(sending, return_exceptions=True)
            elif (left_s := self._due_in_s()) <= 0:
                await self._acknowledge_once(closing=self.outbox.fits_one_request)
            elif self.outbox:
                await asyncio.sleep(left_s)
            else:
                return  # the end of the stream closes the session too (PL-520), without a request

    def _refused(self, step: SessionStep, sent: list[PendingAck], error: KafkaError) -> None:
        """Handle an error of a whole request (CL-31)."""
        least_ms = 0
        if step.epoch == 0 or isinstance(error, SESSION_LOST):
            self._session.lost(step.generation)
        if isinstance(error, ThrottlingQuotaExceededError):  # the leader did not process it
            self._session.refused(step)
            self.outbox.put_back(sent, error)
            self.flush()  # it may be long before the application polls (CL-87)
        elif isinstance(error, GroupAuthorizationFailedError):
            if step.epoch != EPOCH_LEAVE:  # the leader did not process it; the end of the stream closes the session
                self._session.refused(step)
            self.outbox.fail(sent, error)
            self._refusals.group_denied(error, self.wanted)
            least_ms = REFUSED_MS
        elif isinstance(error, SESSION_LOST):
            gone = error if isinstance(error, ShareSessionLimitReachedError) else NetworkError(error.message)
            self.outbox.fail(sent, gone)
        else:
            self.outbox.fail(sent, error)
            if not isinstance(error, RetriableError):
                self._owner.failed(error)
        self._retry_at_ms = self._now_ms() + max(least_ms, self._backoff.next_ms())
        if not self._session.is_established:
            self.link.accepted()
        elif self.link.is_moving:  # the leader did not process the request, so the session has not moved
            self._move()

    def _broken(self, step: SessionStep, error: TransportError, sent: list[PendingAck]) -> None:
        """Handle a stream that broke or could not be opened: the session and its locks are lost (PL-524), unless it is
        still bound to the previous stream. Then its request is sent again over that one, with the same epoch: if the
        leader did process it, it refuses the second one, which means that the session is lost (CL-144)."""
        self.link.note_throttle(error.throttle_ms)
        gone = NetworkError(f"node {self.node_id} went away before it answered: {error}")
        if self.link.keeps_session and self._session.refused(step):
            self.outbox.put_back(sent, gone)
            self._move()  # back to the previous stream, and later to another one
            return
        if self._session.lost(step.generation):
            self.link.accepted()
        self.outbox.fail(sent, gone)
        self.outbox.drop_dead(self._session.generation)
        least_ms = 0
        self._cluster.request_refresh()
        if not error.retriable and not self._closed:
            problem = fatal_error(error)
            if isinstance(problem, SaslAuthenticationFailedError):
                self._refusals.group_denied(problem, self.wanted)
                least_ms = REFUSED_MS
            else:
                self._owner.failed(NetworkError(f"node {self.node_id} refuses the share stream: {error}"))
        self._retry_at_ms = self._now_ms() + max(least_ms, self._backoff.next_ms())

    def _was_closed(self) -> NetworkError:
        return NetworkError(f"the session with node {self.node_id} was closed")

    def _default_deadline_ms(self) -> int:
        return self._now_ms() + int(self._member.config["default.api.timeout.ms"])

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
