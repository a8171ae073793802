"""Sends the records in a producer's buffer to the leaders, over ProduceStream.

Rules P-1 and P-4 (records that arrive while a request is in flight form the next one), CL-130 (but full batches need
not wait for its response), CM-42, CM-43 (a batch is retried with the same sequences until the leader answers, and never
with another topic id while it is unconfirmed), CL-34 (redirects). The sender abandons a silent leader when other nodes
lead a request's partitions. The application's threads share the buffer under `lock`; everything else belongs to the
event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse, ProduceStreamRequest, ProduceStreamResponse
from kip932.errors import (
    ClusterAuthorizationFailedError,
    CorruptMessageError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    NetworkError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    RetriableError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    error_for,
)
from kip932.ids import PRODUCED_BATCHES_MAX, TopicIdPartition, TopicPartition
from kip932.quotas import PRODUCER_BYTE_RATE
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.config import Config
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster, wait_for_event
from sharegroups.connection.coordinator_calls import fatal_error
from sharegroups.connection.core.missing_rights import REFUSED_MS, E, may_not_write
from sharegroups.connection.leader_stream import LeaderStream
from sharegroups.connection.quota_waits import QuotaWaits
from sharegroups.connection.silent_nodes import SILENCE_S
from sharegroups.errors import NotSentError
from sharegroups.packing import Packing, packing_of
from sharegroups.producing.core.open_transaction import OpenTransaction, Transaction
from sharegroups.producing.core.produce_buffer import ProduceBuffer, SecondRequest
from sharegroups.producing.core.produce_lane import (
    BATCHES_IN_FLIGHT,
    NO_IDENTITY,
    Batch,
    Group,
    Outcome,
    ProducerIdentity,
)
from sharegroups.producing.core.unconfirmed_batches import Meaning, created_again, nothing_written
from sharegroups.producing.core.undelivered import Undelivered
from sharegroups.producing.delivery_reports import OnDelivery, report_delivery
from sharegroups.producing.partition_health import PartitionHealth
from sharegroups.producing.produced import ProducedRecord, encode, size_of
from sharegroups.tracing.sending import ProducerTracing

log = logging.getLogger(__name__)

_REQUEST_BYTES: Final = 4 * 1024 * 1024
#: The maximum number of partitions in one request. A leader accepts this many even if each has a full group of batches
#: (CM-113).
_REQUEST_PARTITIONS: Final = PRODUCED_BATCHES_MAX // BATCHES_IN_FLIGHT
#: A second request costs the leader about half a millisecond whatever its size, so it is not worth sending for less
#: than this.
_FOLLOW_BYTES: Final = 128 * 1024
#: When a leader refuses one batch with one of these errors, it refuses all of the partition's batches in that request,
#: and appends none (CM-43).
_OF_ONE_BATCH: Final = (
    CorruptMessageError,
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
_OUTDATED: Final = (NotLeaderOrFollowerError, UnknownTopicOrPartitionError, UnknownTopicIdError)

_Group = Group[ProducedRecord, OnDelivery]
_Result = ProduceResponse.PartitionResult


class LeaderRequests:
    """The requests in flight to the leader `node_id`, and the stream that carries them.

    Each of `tasks` sends one and waits for its response; there are at most two (CL-130).
    """

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self.node_id: Final = node_id
        self.tasks: set[asyncio.Task[None]] = set()
        #: When the last task began, in ms of the loop's clock.
        self.began_ms = 0
        self._asked: list[list[TopicIdPartition]] = []
        self.link: Final[LeaderStream[ProduceStreamRequest, ProduceStreamResponse]] = LeaderStream(
            node_id, cluster, wire.PRODUCE_STREAM, lambda: self._asked
        )

    @property
    def way(self) -> tuple[int, int]:
        """How the next request reaches the leader: its node id, and the number of the stream to it, starting at 1."""
        return self.node_id, self.link.opened + (self.link.current is None)

    def begin(self, work: Coroutine[Any, Any, None], now_ms: int) -> None:
        """Run `work` as one of the tasks; it must call `ended` when it ends."""
        self.began_ms = now_ms
        self.tasks.add(asyncio.create_task(work))

    def ended(self) -> None:
        """Remove the running task, which is about to end."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.discard(task)

    async def ask(
        self, message: ProduceStreamRequest, places: Iterable[TopicIdPartition], timeout_s: float
    ) -> ProduceResponse:
        """Send a request for these partitions and wait for its response. The message's `correlation_id` stays 0 until
        the message is written to the stream. Raises TransportError."""

        def make(number: int) -> ProduceStreamRequest:
            message.correlation_id = number
            return message

        held = list(places)
        self._asked.append(held)
        try:
            stream = await self.link.open()
            return (await stream.request(make, timeout_s, SILENCE_S)).response
        finally:
            self._asked = [one for one in self._asked if one is not held]


class Sender:
    """Sends the buffer's batches, and calls `changed` after every outcome. `lock` guards `buffer`.

    After adding a record to an idle partition, call `pump` in the loop.
    """

    def __init__(self, cluster: Cluster, config: Config, changed: Callable[[], None], tracing: ProducerTracing) -> None:
        self.lock = threading.Lock()
        self._tracing = tracing
        #: The watchers of records in flight whose callers no longer wait for them.
        self._unwanted: set[OnDelivery] = set()
        self.buffer: ProduceBuffer[ProducedRecord, OnDelivery] = ProduceBuffer(
            config["buffer.memory"],
            config["batch.size"] - tracing.reserve_bytes(config["batch.num.records"]),
            config["batch.num.records"],
        )
        self.transaction: Transaction | None = None
        self.open: OpenTransaction[ProducedRecord, OnDelivery] = OpenTransaction()
        self.identity: ProducerIdentity | None = None
        self._cluster = cluster
        self._config = config
        self._changed = changed
        self._acks = 1 if config["acks"] == "1" else -1
        self._leaders: dict[int, LeaderRequests] = {}
        if config["enable.idempotence"] and not config["transactional.id"]:
            self.buffer.follow_bytes = _FOLLOW_BYTES
        self._backoff = cluster.backoff()
        self._reachable = asyncio.Event()
        self._identifying: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._undelivered = Undelivered()
        self.health = PartitionHealth(cluster)
        self.quota_waits: Final = QuotaWaits("producer", PRODUCER_BYTE_RATE)
        self._turn = 0
        self._closed = False
        cluster.listen(self._leaders_changed)
        cluster.on_recovery(self._recovered)

    def pump(self) -> None:
        """Send everything that can be sent now, and arm the timer for the rest."""
        if self._closed:
            return
        now_ms = self._now_ms()
        self._expire(now_ms)
        self._fail_outlived()
        self._fail_denied()
        with self.lock:
            ready = self.buffer.ready(now_ms)
            following = self.buffer.following(now_ms)
        if (ready or following) and self._identified():
            self._turn += 1
            for partitions, second in ((ready, False), (following, True)):
                turn = self._turn % max(len(partitions), 1)
                self._send_to_leaders(partitions[turn:] + partitions[:turn], second=second)
        self._arm(now_ms)

    async def close(self) -> None:
        """Stop. Records that are still in the buffer fail."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.health.close()
        tasks = [task for leader in self._leaders.values() for task in leader.tasks]
        tasks += [self._identifying] if self._identifying else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(leader.link.close() for leader in self._leaders.values()))
        for group in self.buffer.in_flight():  # those of tasks that were cancelled before they started
            if group.outcome is None:
                self._settled(group, Outcome(error=_closed_before(group)))
        self.fail_all(None)
        for line in self._undelivered.rest():
            log.error(line)

    def fail_all(self, error: KafkaError | None) -> None:
        """Fail all waiting records with `error`; None means that the producer closes. Records in flight are not
        affected."""
        with self.lock:
            groups = self.buffer.give_up()
        if isinstance(error, ClusterAuthorizationFailedError):
            error = self.explained(error, sorted({group.partition.topic for group in groups}))
        for group in groups:
            self._report_failure(group, error or _closed_before(group))
        self._changed()

    def explained(self, error: E, topics: Sequence[str]) -> E:
        """Return the error of a missing right with what allows it."""
        return may_not_write(error, topics, None if self.transaction is None else self.transaction.transactional_id)

    async def identify(self, former: ProducerIdentity | None = None) -> ProducerIdentity:
        """Get a new identity (CM-43). `former`: the identity that a transactional producer continues; None for a new
        instance, which fences all others (CM-152). Raises KafkaError or TransportError."""
        # Two requests of a new instance would increment its epoch twice, and the identity in the first response could
        # be fenced.
        fresh = self.transaction is not None and former is None
        ask = self._cluster.call_any if fresh else self._cluster.ask_any
        response = await ask(wire.INIT_PRODUCER_ID, _identity_request(self.transaction, former))
        if error := error_for(response.error_code, response.error_message):
            raise self.explained(error, []) if isinstance(error, TransactionalIdAuthorizationFailedError) else error
        return self.adopt(ProducerIdentity(response.producer_id, response.producer_epoch))

    def adopt(self, identity: ProducerIdentity) -> ProducerIdentity:
        """Continue with another identity; its sequences start at 0."""
        self.identity = identity
        with self.lock:
            self.buffer.forget_sequences()
        return identity

    def take_back(self, topic: str, watcher: OnDelivery) -> bool:
        """Withdraw a record whose caller no longer waits, unless a request carries it, or has carried it and may have
        stored it. Returns True if the record is certainly not stored. `watcher`: its on_delivery, which is not called
        if the record is withdrawn."""
        with self.lock:
            place = self.buffer.waiting(topic, watcher)
            found = self.buffer.take_back(topic, watcher, size_of, renumbers=self.transaction is None)
        if found is False:
            with self.lock:
                groups = self.buffer.in_flight()
            watchers = (one for group in groups for batch in group.batches for _, one in batch.watchers)
            if any(one is watcher for one in watchers):
                self._unwanted.add(watcher)  # if its request fails without storing it, it is not sent again
                return False
            with self.lock:
                return self.buffer.waiting(topic, watcher) is None
        if place is not None and (trace := place[1].trace) is not None:  # the batch was sent, and had no other record
            trace.over(place[0], 1, asyncio.CancelledError("its record was taken back"))
        self._unwanted.discard(watcher)
        if found is not True and found == self.identity:
            self.identity = None
        self._changed()
        return True

    def ended(self, watcher: OnDelivery) -> None:
        """Note that the outcome of a record is known."""
        self._unwanted.discard(watcher)

    def abandon(self, error: KafkaError) -> None:
        """Fail waiting records, and do not resend any that are in flight, because the transaction is being aborted."""
        self.fail_all(error)
        with self.lock:
            self.open.abandon(self.buffer.in_flight())

    # Steps.

    def _identified(self) -> bool:
        """Return whether batches can be sent: they need no identity, or there is one. Otherwise, start to fetch one
        (CM-43)."""
        if not self._config["enable.idempotence"] and self.transaction is None:
            return True
        if self.transaction is None and self.identity is None and self._identifying is None:
            self._identifying = asyncio.create_task(self._identify_until_done())
        return self.identity is not None

    async def _identify_until_done(self) -> None:
        backoff = self._cluster.backoff()
        while self.identity is None:
            try:
                await self.identify()
            except (RetriableError, TransportError) as error:
                if isinstance(error, TransportError) and not error.retriable and not self.may_renew(error):
                    kind = SaslAuthenticationFailedError if _is_refusal(error) else NetworkError
                    self.fail_all(kind(f"no producer id could be had: {error}"))
                    break
                self._reachable.clear()
                await wait_for_event(self._reachable, backoff.next_ms() / 1000)
            except KafkaError as error:
                self.fail_all(error)
                break
        self._identifying = None
        self.pump()

    def _send_to_leaders(self, partitions: list[TopicPartition], *, second: bool) -> None:
        """Start a request to each leader of the partitions that has none in flight; with `second`, to each that has
        exactly one in flight."""
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        meanings: dict[str, Meaning] = {}
        for partition in partitions:
            meaning = self._meaning(partition.topic)
            leader = None
            if meaning is not None:
                meanings[partition.topic] = meaning
                leader = self._cluster.leader(TopicIdPartition(meaning.topic_id, partition.partition))
            if leader is None:
                self._cluster.request_refresh()
            elif len(self._leader(leader.node_id).tasks) == second:
                by_leader[leader.node_id].append(partition)
        for node_id, some in by_leader.items():
            leader_requests, groups = self._leader(node_id), list[_Group]()
            is_free = leader_requests.link.free_at_ms <= self._now_ms()
            if is_free:
                pipelined = SecondRequest(leader_requests.began_ms) if second else None
                most, way = some[:_REQUEST_PARTITIONS], leader_requests.way
                with self.lock:
                    groups = self.buffer.take(
                        most, self.identity, _REQUEST_BYTES, meanings, way=way, pipelined=pipelined
                    )
            if groups or not (second or is_free):
                self.open.sent_any = self.open.sent_any or bool(groups)
                leader_requests.begin(self._serve(leader_requests, groups, meanings), self._now_ms())

    async def _serve(self, leader: LeaderRequests, groups: list[_Group], meanings: dict[str, Meaning]) -> None:
        """Send one request, if there are groups; then wait while the leader throttles this client (CL-86)."""
        try:
            if groups:
                await self._send(leader, groups, meanings)
            if (left_ms := leader.link.free_at_ms - self._now_ms()) > 0:
                self._changed()
                await asyncio.sleep(left_ms / 1000)
        finally:
            leader.ended()
            self.pump()  # before waiting callers get buffer space, so that buffered records are sent first
            self._changed()

    async def _send(self, leader: LeaderRequests, groups: list[_Group], meanings: dict[str, Meaning]) -> None:
        traceparent = self._tracing.sending(groups) if self._tracing.on else ""
        message = _stream_message(groups, meanings, self._config, self._acks, self.transaction)
        if traceparent:
            message.traceparent = traceparent
        places = [_place_of(group, meanings) for group in groups]
        try:
            response = await leader.ask(message, places, self._cluster.timeout_s)
        except asyncio.CancelledError:
            for group in groups:
                self._settled(group, Outcome(error=_closed_before(group, is_sent=bool(message.correlation_id))))
            raise
        except TransportError as error:
            self._cluster.request_refresh()
            leader.link.note_throttle(error.throttle_ms)
            problem: KafkaError = NetworkError(f"node {leader.node_id}: {error}")
            delay_ms = self._backoff.next_ms() if error.retriable or self.may_renew(error) else None
            if isinstance(refused := fatal_error(error), SaslAuthenticationFailedError):
                problem, delay_ms = refused, None if delay_ms is None else max(REFUSED_MS, delay_ms)
            for group in groups:
                unconfirmed = meanings[group.partition.topic] if message.correlation_id else None
                self._settled(group, Outcome(None, problem, delay_ms, unconfirmed))
        else:
            self.quota_waits.answered(leader.node_id, response.throttle_time_ms, self._now_ms())
            leader.link.note_throttle(response.throttle_time_ms)
            self._answered(groups, meanings, response)

    def may_renew(self, error: TransportError) -> bool:
        """Return whether a node refused this client's credentials, and newer ones may come in time (CL-158)."""
        return _is_refusal(error) and self._config.renews_credentials

    def _leader(self, node_id: int) -> LeaderRequests:
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = LeaderRequests(node_id, self._cluster)
        return leader

    def _leaders_changed(self) -> None:
        """Give up on silent nodes that no longer lead. Their requests are retried, as after a broken connection."""
        for leader in list(self._leaders.values()):
            if leader.tasks:
                leader.link.give_up_silent()
        self.pump()

    def _recovered(self) -> None:
        self._backoff.reset()
        self._reachable.set()
        with self.lock:
            self.buffer.hurry()
        self.pump()

    def _answered(self, groups: list[_Group], meanings: dict[str, Meaning], response: ProduceResponse) -> None:
        results = {
            TopicIdPartition(topic.topic_id, part.index): part
            for topic in response.responses
            for part in topic.partition_responses
        }
        failed: list[tuple[_Group, KafkaError]] = []
        for group in groups:
            partition = _place_of(group, meanings)
            result = results.get(partition)
            if result is None:
                failed.append((group, NetworkError("the answer leaves the partition out")))
            elif error := error_for(result.error_code, result.error_message):
                if result.HasField("current_leader"):
                    self._cluster.learn(partition, result.current_leader, response.node_endpoints)
                if isinstance(error, _OUTDATED):
                    self._cluster.request_refresh()
                if isinstance(error, TopicAuthorizationFailedError | TransactionalIdAuthorizationFailedError):
                    error = self.explained(error, [group.partition.topic])
                failed.append((group, error))
            else:
                self._backoff.reset()
                if self.transaction is not None and group.batches[0].identity == self.identity:
                    self.open.confirmed.add(partition)
                self._settled(group, Outcome(result))
        if failed:
            delay_ms = self._backoff.next_ms()  # one delay for all, since they failed together
            for group, problem in failed:
                unconfirmed = None if nothing_written(problem) else meanings[group.partition.topic]
                wait_ms = delay_ms if isinstance(problem, RetriableError) else None
                self._settled(group, Outcome(None, problem, wait_ms, unconfirmed))

    def _settled(self, group: _Group, outcome: Outcome) -> None:
        """Record a group's outcome, and handle all groups of its partition that can be handled now (CL-133)."""
        with self.lock:
            settled = self.buffer.settle(group, outcome)
        for one in settled:
            assert one.outcome is not None
            if one.outcome.error is None:
                self._delivered(one, one.outcome.answer)
            else:
                self._failed(one, one.outcome.error, one.outcome.delay_ms, one.outcome.unconfirmed)

    def _delivered(self, group: _Group, result: _Result) -> None:
        self.open.was_abandoned(group)
        offset = result.base_offset
        for number, batch in enumerate(group.batches):
            if number < len(result.base_offsets):
                offset = result.base_offsets[number]
            if batch.trace is not None:
                batch.trace.over(group.partition, len(batch.records), None, offset)
            report_delivery(batch, group.partition, offset)
            offset += len(batch.records)
        self.health.over(group.partition)
        with self.lock:
            self.buffer.delivered(group)

    def _failed(self, group: _Group, error: KafkaError, delay_ms: int | None, unconfirmed: Meaning | None) -> None:
        """Retry after `delay_ms` if delivery.timeout.ms allows it for the newest batch, otherwise fail. `delay_ms` is
        None if a retry cannot help.

        `unconfirmed`: see `ProduceBuffer.retry`.
        """
        was_abandoned = self.open.was_abandoned(group)
        if isinstance(error, _OF_ONE_BATCH) and len(group.batches) > 1 and not was_abandoned:
            with self.lock:
                self.buffer.separate(group)
            return
        if isinstance(error, OutOfOrderSequenceNumberError) and self.transaction is None and not was_abandoned:
            with self.lock:
                if self.buffer.skip_gap(group):
                    return
        if not was_abandoned and delay_ms is not None:
            timeout_ms, not_before_ms = self._config["delivery.timeout.ms"], self._now_ms() + delay_ms
            # Each batch of a group has its own time limit: `_expire` gives up on an older batch when its limit is over.
            if not_before_ms - group.batches[-1].created_ms < timeout_ms:
                self.health.repeated(group.partition, error)
                with self.lock:
                    self.buffer.retry(group, not_before_ms, unconfirmed)
                if self._unwanted:
                    for _, watcher in [one for batch in group.batches for one in batch.watchers]:
                        if watcher in self._unwanted:
                            self.take_back(group.partition.topic, watcher)
                return
            error = RequestTimedOutError(f"not delivered within {timeout_ms} ms; the last answer was: {error}")
        with self.lock:
            self.buffer.failed(group)
        self._report_failure(group, error)

    def _expire(self, now_ms: int) -> None:
        timeout_ms = self._config["delivery.timeout.ms"]
        with self.lock:
            groups = self.buffer.expired(now_ms - timeout_ms)
        for group in groups:
            topic, number = group.partition
            known = self._cluster.errors.get(topic)
            cause = known or self._cluster.trouble or self.health.unavailable.cause(group.partition)
            why = f": {cause}" if cause else ""
            what = "not sent" if group.batches[0].unconfirmed is None else "sent, but not known to be stored or not"
            self._report_failure(group, RequestTimedOutError(f"{topic}-{number}: {what} within {timeout_ms} ms{why}"))
        if groups:
            self._changed()

    def _fail_outlived(self) -> None:
        """Fail the batches that are unconfirmed for a deleted topic's id, since they may have been stored in that topic
        (CM-43)."""
        with self.lock:
            groups, waits = self.buffer.take_outdated(self._meaning)
        if waits:
            self._cluster.request_refresh()
        for group in groups:
            self._report_failure(group, created_again(group.partition.topic))
        if groups:
            self._changed()

    def _fail_denied(self) -> None:
        """Fail the waiting records of topics that this producer may not see any more, according to the metadata
        (CL-143)."""
        denied = {
            topic: self.explained(error, [topic])
            for topic, error in self._cluster.errors.items()
            if isinstance(error, TopicAuthorizationFailedError)
        }
        if not denied:
            return
        with self.lock:
            groups = self.buffer.take_topics(denied)
        for group in groups:
            error = denied[group.partition.topic]
            if group.batches[0].unconfirmed is not None:
                error = TopicAuthorizationFailedError(f"sent, but not known to be stored or not: {error.message}")
            self._report_failure(group, error)
        if groups:
            self._changed()

    def _meaning(self, name: str) -> Meaning | None:
        topic = self._cluster.topics.get(name)
        return None if topic is None else Meaning(topic.topic_id, topic.version)

    def _report_failure(self, group: _Group, error: KafkaError) -> None:
        """Call each record's on_delivery, and log the records without one.

        If the failed batches had sequences, there is now a gap, or the outcome is unknown. A producer without
        transactions then drops its identity.
        """
        self.health.over(group.partition)
        if self.transaction is not None:
            self.open.failed(group, self.identity, error)
        elif any(batch.identity is not None and batch.identity == self.identity for batch in group.batches):
            self.identity = None
        for batch in group.batches:
            if batch.trace is not None:
                batch.trace.over(group.partition, len(batch.records), error)
            report_delivery(batch, group.partition, -1, error)
        unwatched = sum(len(batch.records) - len(batch.watchers) for batch in group.batches)
        if unwatched:
            line = self._undelivered.lost(group.partition, error, unwatched, self._now_ms())
            if line is not None:
                log.error(line)

    def _arm(self, now_ms: int) -> None:
        """While records are waiting, arm the timer for the end of the next back-off, but at most 1 s ahead, because
        records may expire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self.lock:
            next_ms = self.buffer.next_deadline()
        if next_ms is not None:
            delay_s = max(next_ms - now_ms, 0) / 1000 if next_ms > now_ms else 1.0
            self._timer = asyncio.get_running_loop().call_later(min(delay_s, 1.0), self.pump)

    @staticmethod
    def _now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)


def _stream_message(
    groups: Iterable[Group[ProducedRecord, Any]],
    meanings: Mapping[str, Meaning],
    config: Config,
    acks: int,
    transaction: Transaction | None,
) -> ProduceStreamRequest:
    """Return the groups' batches as a stream message without its correlation number (CM-41, CM-42).

    The request is built inside the message, because protobuf copies a message when it is put into another one.
    `meanings`: the topics' ids; `config`: the producer's settings.
    """
    message = ProduceStreamRequest()
    request = message.request
    request.acks, request.timeout_ms = acks, config["request.timeout.ms"]
    if transaction is not None:
        request.transactional_id = transaction.transactional_id
    packing = packing_of(config)
    topics: dict[str, ProduceRequest.TopicData] = {}
    for group in groups:
        name, number = group.partition
        if name not in topics:
            topics[name] = request.topic_data.add(topic_id=meanings[name].topic_id)
        part = topics[name].partition_data.add(index=number)
        for batch in group.batches:
            _add_batch(part, batch, packing, transaction is not None)
        if group.after_given_up and transaction is None:
            part.batches[0].after_given_up = True
    return message


def _add_batch(
    part: ProduceRequest.PartitionData, batch: Batch[ProducedRecord, Any], packing: Packing, transactional: bool
) -> None:
    records = batch.records if batch.trace is None else batch.trace.stamped(batch.records)
    data, latest_ms = encode(records, packing)
    identity = batch.identity or NO_IDENTITY
    part.batches.add(
        record_batch=data,
        record_count=len(batch.records),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=batch.base_sequence,
        max_timestamp_ms=latest_ms,
        is_transactional=transactional,
    )


def _identity_request(transaction: Transaction | None, former: ProducerIdentity | None) -> InitProducerIdRequest:
    """Return the request for an identity (CM-43). `former`: the identity that a transactional producer continues
    (CM-152)."""
    producer_id, epoch = former or NO_IDENTITY
    request = InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
    if transaction is not None:
        request.transactional_id, request.transaction_timeout_ms = transaction
    return request


def _place_of(group: Group[ProducedRecord, Any], meanings: Mapping[str, Meaning]) -> TopicIdPartition:
    """Return the topic id and partition of the group."""
    return TopicIdPartition(meanings[group.partition.topic].topic_id, group.partition.partition)


def _closed_before(group: Group[ProducedRecord, Any], *, is_sent: bool = False) -> KafkaError:
    """Return the error for records that fail because the producer is closed. A batch that was never sent is certainly
    not stored."""
    if is_sent or group.batches[0].unconfirmed is not None:
        return NetworkError("the producer was closed before the leader answered; the record may be stored")
    return NotSentError("the producer was closed before the record was sent")


def _is_refusal(error: TransportError) -> bool:
    return error.status is TransportStatus.UNAUTHENTICATED
