"""Observers inside the services of every process: they record requests, responses and locks.

An observer replaces a few methods of the serving objects, at points where plain values go in and out. So nothing is
parsed twice; unary calls, streams and the short cut within one process are all observed; and each event is recorded
when it happens, not when a stream has room for it. Behaviour is not changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey, TopicIdPartition
from partition_leader.share_partition.core.effects import Fenced
from partition_leader.share_partition.core.events import AckBatch, Initialized
from partition_leader.share_partition.core.invariants import BrokenInvariantError
from tests.simulation.calls import STREAM
from tests.simulation.connection_events import ShareStreamLost, ShareStreamMade
from tests.simulation.coordinator_edges import Groups, States
from tests.simulation.delay_edge import Delays, Retries
from tests.simulation.edge import Edge
from tests.simulation.history import (
    AckAnswered,
    AckBatchSeen,
    Acquired,
    LimitsSeen,
    SessionAnswered,
    SessionAsked,
    SessionEnded,
)
from tests.simulation.inside import Settled, Starts, asked_epochs, locks_used, settled_now, topic_starts
from tests.simulation.leader_events import (
    AckDone,
    Consumed,
    GivenBack,
    Locked,
    MemoryWrong,
    ObjectDropped,
    ObjectMade,
    ReasonsGiven,
    ReasonsKept,
    StartResolved,
)
from tests.simulation.member_edges import Removals

if TYPE_CHECKING:
    from kip932.failures import Failure
    from partition_leader.sessions.core.session import ClosedSession, SessionStep
    from partition_leader.share_partition.core import events as ev
    from partition_leader.share_partition.core.effects import AcquiredRange, Effect
    from partition_leader.share_partition.core.transitions import IllegalTransitionError
    from partition_leader.share_partition.host import SharePartitionHost
    from partition_leader.share_partition.operation_result import OperationResult
    from partition_leader.share_rpc.values import PartitionAnswer, ShareAnswer, ShareRequest
    from shard_runtime.config.group_config import GroupConfig
    from tests.simulation.leader_events import ReasonSeen
    from tests.simulation.world import World

_NO_OBJECT: Final = (0, 0, 0)


class Observer:
    """Observes the partition leaders, share coordinators and group coordinators of a simulated world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._objects = itertools.count(1)

    def watch(self, service_name: str, service: object, process: str, incarnation: int) -> object:
        """Return the service itself, whose events are recorded in the history from now on."""
        watcher = _WATCHERS.get(service_name)
        if watcher is not None:
            edge = Edge(self._world, self._objects, process, incarnation)
            watcher(edge, service)
            if watcher is _Leader:
                _Consumption(edge, self._world, self._world.processes[process].leader._consumed)
        return service


# ---- partition leaders


class _Leader:
    """Observes requests of share sessions, from their arrival to their responses."""

    def __init__(self, edge: Edge, service: Any) -> None:
        requests = service._requests
        partitions = requests._partitions
        self.edge = edge
        self.request = 0
        self.fetches: dict[int, int] = {}
        self.locked: dict[tuple[int, TopicIdPartition], _LockedThen] = {}
        self.acked: dict[tuple[int, TopicIdPartition], tuple[int, int, int]] = {}
        self._numbers = itertools.count(1)
        self._closed: ClosedSession | None = None
        self._handle = requests.handle
        self._session_step = requests._session_step
        self._release = requests._release
        self._obtain = partitions.obtain
        self._settings = partitions._parts.config
        self._limits: dict[str, tuple[int, int, int]] = {}
        self._retries = Retries(self.edge)
        self._connection_made = requests.connection_made
        self._connection_lost = requests.connection_lost
        vars(requests).update(handle=self.handle, _session_step=self.session_step, _release=self.release)
        vars(requests).update(connection_made=self.connection_made, connection_lost=self.connection_lost)
        vars(partitions).update(obtain=self.obtain, _parts=replace(partitions._parts, config=self.settings))

    def handle(self, request: ShareRequest, on_answer: Callable[[ShareAnswer], None]) -> object:
        """Replaces `ShareRequests.handle`."""
        before, self.request = self.request, next(self._numbers)
        number, asked_ms = self.request, self.edge.now_ms()

        def answered(answer: ShareAnswer) -> None:
            self._answered(number, asked_ms, request, answer)
            on_answer(answer)

        try:
            run = self._handle(request, answered)
        finally:
            self.request = before
        fetch = getattr(run, "fetch", None)
        if fetch is not None:
            self.fetches[fetch._parameters.fetch_id] = number
        return run

    def session_step(self, request: ShareRequest) -> SessionStep:
        """Replaces `ShareRequests._session_step`, whose result shows whether the request's session epoch was
        accepted."""
        try:
            step: SessionStep = self._session_step(request)
        except KafkaError as error:
            self._asked(request, 0, error.code)
            raise
        if step.closed is not None and not step.is_final:
            self._ended(step.closed)  # replaced by the session that this request opens
        self._asked(request, step.session_id, 0)
        if step.closed is not None and step.is_final:
            self._ended(step.closed)
        self._closed = step.closed
        return step

    def release(self, closed: ClosedSession) -> None:
        """Replaces `ShareRequests._release`, through which every session ends."""
        if closed is not self._closed:
            self._ended(closed)
        self._closed = None
        self._release(closed)

    def connection_made(self) -> int:
        """Replaces `ShareRequests.connection_made`, which each share stream calls when it begins."""
        number: int = self._connection_made()
        self.edge.report(ShareStreamMade, str(number), STREAM.get())
        return number

    def connection_lost(self, number: int) -> None:
        """Replaces `ShareRequests.connection_lost`, which each share stream calls when it ends."""
        events = self.edge.events
        before = len(events)
        self._connection_lost(number)
        ended = [(each.group_id, each.member_id) for each in events[before:] if type(each) is SessionEnded]
        self.edge.report(ShareStreamLost, str(number), tuple(ended))

    def obtain(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """Replaces `SharePartitions.obtain`: every share-partition is observed from its creation on."""
        host: SharePartitionHost | None = self._obtain(key)
        if host is not None and "observed" not in vars(host):
            vars(host).update(observed=_Object(self, host))
        return host

    def settings(self, group_id: str) -> GroupConfig:
        """Replaces `LeaderParts.config`, from which every decision gets its limits. Records them whenever they differ
        from the previous read, so that even short-lived limits are recorded (the events of a release or an expiry do
        not include them). The empty name is no group's; it stands for the broker's limits, used for idle sessions."""
        found: GroupConfig = self._settings(group_id)
        limits = (found.delivery_count_limit, found.lock_ms, found.max_record_locks)
        if group_id and self._limits.get(group_id) != limits:
            self._limits[group_id] = limits
            self.edge.report(LimitsSeen, group_id, *limits)
        self._retries.note(group_id, found)
        return found

    def _ended(self, closed: ClosedSession) -> None:
        self.edge.report(SessionEnded, closed.key.group_id, closed.key.member_id)

    def _asked(self, request: ShareRequest, accepted: int, code: int) -> None:
        acks = tuple(
            (self.edge.topic(partition.topic_id), partition.partition, batch)
            for partition, batches in request.acknowledgements.items()
            for batch in _batches(batches)
        )
        self.edge.report(
            SessionAsked,
            self.request,
            _call(request),
            request.group_id,
            request.member_id,
            str(request.connection_id or ""),
            request.epoch,
            acks,
            0 if request.session_id is None else request.session_id or -1,
            accepted,
            code,
            request.limits.max_wait_ms if request.limits is not None else -1,
        )

    def _answered(self, number: int, asked_ms: int, request: ShareRequest, answer: ShareAnswer) -> None:
        code = 0 if answer.error is None else answer.error.code
        names = (request.group_id, request.member_id)
        self.edge.report(SessionAnswered, number, asked_ms, _call(request), *names, request.epoch, code)
        by_partition = {part.partition: part for part in answer.partitions}
        for partition, batches in request.acknowledgements.items():
            part = by_partition.get(partition)
            if batches and (code or part is not None):
                error = answer.error if part is None else part.acknowledge_error
                outcome = 0 if error is None else error.code
                self._ack_answered(number, asked_ms, request, partition, outcome)
        for part in answer.partitions:
            if part.fetched is not None and part.fetched.ranges:
                self._acquired(number, request, part)

    def _ack_answered(
        self, number: int, asked_ms: int, request: ShareRequest, partition: TopicIdPartition, code: int
    ) -> None:
        epoch, object_id, state_epoch = self.acked.pop((number, partition), _NO_OBJECT)
        self.edge.report(
            AckAnswered,
            number,
            asked_ms,
            self.edge.share(SharePartitionKey(request.group_id, *partition)),
            request.member_id,
            epoch,
            object_id,
            _batches(request.acknowledgements[partition]),
            code,
            state_epoch,
        )

    def _acquired(self, number: int, request: ShareRequest, part: PartitionAnswer) -> None:
        then = self.locked.pop((number, part.partition))
        fetched = part.fetched
        assert fetched is not None
        data = tuple((batch.base_offset, batch.last_offset) for batch in fetched.batches)
        share = self.edge.share(fetched.key)
        for first, last, count in fetched.ranges:
            ids = (then.leader_epoch, then.object_id)
            given = (first, last, count, then.lock_ms, data, *then.offsets, then.state_epoch, then.at_ms)
            self.edge.report(Acquired, number, share, request.member_id, *ids, *given)


class _Consumption:
    """Observes rounds of consumed retention: what a leader deletes, and the groups' progress at that time."""

    def __init__(self, edge: Edge, world: World, retention: Any) -> None:
        self._edge = edge
        self._world = world
        self._asked: dict[bytes, Starts] = {}
        self._settled: Settled = lambda key: False
        self._retain = retention._retain
        self._move = retention._move
        vars(retention).update(_retain=self.retain, _move=self.move)

    async def retain(self, topic_ids: list[bytes]) -> None:
        """Replaces `ConsumedRetention._retain`, which first asks for the groups' progress; runs one at a time."""
        self._asked = {topic_id: topic_starts(self._world, topic_id, settled=True) for topic_id in topic_ids}
        self._settled = settled_now(self._world)
        await self._retain(topic_ids)

    async def move(self, partition: TopicIdPartition, topic_log: Any, start: int, groups: int) -> None:
        """Replaces `ConsumedRetention._move`."""
        topic_id, number = partition
        asked, now = self._asked[topic_id], topic_starts(self._world, topic_id, settled=False)
        self._edge.report(
            Consumed,
            self._edge.topic(topic_id),
            number,
            start,
            asked_epochs(partition, asked, now, self._settled),
            tuple((group, *starts.get(number, (-1, -1))) for group, starts in now.items()),
        )
        await self._move(partition, topic_log, start, groups)


class _LockedThen:
    """The leader's values when it locked ranges; their response may be sent later."""

    __slots__ = ("at_ms", "leader_epoch", "lock_ms", "object_id", "offsets", "state_epoch")

    def __init__(self, at_ms: int, host: SharePartitionHost, object_id: int, lock_ms: int) -> None:
        self.at_ms = at_ms
        self.leader_epoch = host.log.epoch
        self.object_id = object_id
        self.lock_ms = lock_ms
        self.offsets = (host.core.start_offset, host.log.log_start_offset, host.log.high_watermark)
        self.state_epoch = host.core._state.state_epoch


class _Object:
    """Observes one share-partition object: the ranges that it locks and releases."""

    def __init__(self, leader: _Leader, host: SharePartitionHost) -> None:
        self._leader = leader
        self._edge = leader.edge
        self._host = host
        self._id = leader.edge.next_object()
        self._share = leader.edge.share(host.key)
        self._partition = host.key.topic_partition
        self._acquire = host.acquire
        self._acknowledge = host.acknowledge
        self._release = host.release
        self._delays = Delays(self._edge, self._share, self._id, host)
        vars(host).update(acquire=self.acquire, acknowledge=self.acknowledge, release=self.release)
        self._reasons: Sequence[Failure] = ()
        self._handle = host.core.handle
        self._give_up = host.core.give_up
        vars(host.core).update(handle=self.handle, give_up=self.give_up)
        self._edge.report(ObjectMade, self._share, self._id, host.log.epoch, host.core.generation)

    def handle(self, event: ev.Event, now_ms: int) -> list[Effect]:
        """Replaces `SharePartition.handle`; checks the invariants after every event."""
        effects = self._handle(event, now_ms)
        if type(event) is Initialized and event.resolved:
            log = self._host.log
            found = (event.state_epoch, event.start_offset, log.log_start_offset, log.high_watermark)
            self._edge.report(StartResolved, self._share, self._id, *found)
        self._report_drop(effects)
        self._report_reasons(loaded=type(event) is Initialized)
        try:
            self._host.core.check()
        except BrokenInvariantError as error:
            self._edge.report(MemoryWrong, self._share, self._id, error.offset, str(error))
        return effects

    def give_up(self, error: IllegalTransitionError) -> list[Effect]:
        """Replaces `SharePartition.give_up`."""
        self._edge.report(MemoryWrong, self._share, self._id, error.offset, str(error))
        effects = self._give_up(error)
        self._report_drop(effects)
        return effects

    def _report_reasons(self, *, loaded: bool) -> None:
        state = self._host.core._state
        kept = state.reasons.failures
        if kept is not self._reasons or loaded:
            self._reasons = kept
            starts = (state.write_back.confirmed_start, state.window.start_offset)
            shown = (state.state_epoch, self._id, *starts, tuple(map(tuple, kept)))
            self._edge.report(ReasonsKept, self._share, *shown)

    def _report_drop(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if type(effect) is Fenced:
                self._edge.report(ObjectDropped, self._share, self._id, self._host.log.epoch, effect.reason.value)

    def acquire(self, event: ev.Acquire) -> Any:
        """Replaces `SharePartitionHost.acquire`: locks start here, whatever happens to the response."""
        core = self._host.core
        before, end = locks_used(core), core.speo
        ranges = self._acquire(event)
        if not ranges:
            return ranges
        leader, settings = self._leader, event.settings
        number = leader.fetches.get(event.fetch_id, leader.request)
        then = _LockedThen(self._edge.now_ms(), self._host, self._id, settings.lock_ms)
        leader.locked[number, self._partition] = then
        window = (before, locks_used(core), settings.max_record_locks)
        batch_max = max(batch.last_offset - batch.base_offset + 1 for batch in event.batches)
        new = core.speo - end
        for first, last, count in ranges:
            epochs = (then.leader_epoch, core.generation, then.state_epoch)
            given = (first, last, count, settings.lock_ms, settings.delivery_count_limit, *window, batch_max, new)
            self._edge.report(Locked, number, self._share, event.member_id, *epochs, self._id, *given)
        return ranges

    def acknowledge(
        self, member_id: str, batches: tuple[AckBatch, ...], on_result: Callable[[OperationResult], None]
    ) -> None:
        """Replaces `SharePartitionHost.acknowledge`."""
        host, edge, number = self._host, self._edge, self._leader.request
        epochs = (host.log.epoch, host.core._state.state_epoch)
        begun = (edge.now_ms(), len(edge.events), host.core.start_offset)
        settings = host.config
        self._leader.acked[number, self._partition] = (epochs[0], self._id, epochs[1])
        self._delays.asked(number, member_id, batches)
        if given := _reasons(batches):
            edge.report(ReasonsGiven, number, self._share, epochs[1], self._id, given)

        def done(result: OperationResult) -> None:
            code = 0 if result.error is None else result.error.code
            outcome = (_batches(batches), code, result.persisted)
            limits = (settings.lock_ms, settings.delivery_count_limit)
            edge.report(AckDone, number, self._share, member_id, *epochs, self._id, *outcome, *begun, *limits)
            on_result(result)

        self._acknowledge(member_id, batches, done)

    def release(
        self,
        member_id: str,
        ranges: Sequence[AcquiredRange] | None = None,
        on_result: Callable[[OperationResult], None] | None = None,
    ) -> None:
        """Replaces `SharePartitionHost.release`."""
        given = None if ranges is None else tuple((first, last) for first, last, _ in ranges)
        self._edge.report(GivenBack, self._share, self._id, member_id, given)
        self._release(member_id, ranges, on_result)


def _call(request: ShareRequest) -> str:
    return "ShareAcknowledge" if request.limits is None else "ShareFetch"


def _batches(batches: Sequence[AckBatch]) -> tuple[AckBatchSeen, ...]:
    return tuple((first, last, tuple(types)) for first, last, types, *_ in batches)


def _reasons(batches: Sequence[AckBatch]) -> tuple[ReasonSeen, ...]:
    return tuple(
        ((one[0], one[1], tuple(one.types)), tuple(one.undelivered), one.reason) for one in batches if one.reason
    )


_WATCHERS: Final[dict[str, Callable[[Edge, Any], object]]] = {
    "PartitionLeaderService": _Leader,
    "GroupCoordinatorService": Groups,
    "MemberSessionsService": Removals,
    "ShareCoordinatorService": States,
}
