"""Runs a Membership: sends its heartbeats to the coordinator, finds its topics' names and reports its assignment.

Rules CL-11 to CL-18, CL-143. `core.membership` decides; this host looks up the coordinator, waits and calls.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kip932.errors import (
    CoordinatorError,
    GroupAuthorizationFailedError,
    KafkaError,
    RetriableError,
    SaslAuthenticationFailedError,
    UnsupportedVersionError,
    error_class,
)
from kip932.ids import EPOCH_JOIN, EPOCH_LEAVE, TopicIdPartition
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import fatal_error
from sharegroups.connection.signal import Signal
from sharegroups.connection.silent_nodes import while_in_charge
from sharegroups.consuming.core.membership import Heartbeat, Lookup, Membership
from sharegroups.consuming.metrics import ConsumerMetrics

log = logging.getLogger(__name__)

#: A leave is not sent if its node throttles this client for longer than this, in seconds; the coordinator then expires
#: the member.
_LEAVE_WAIT_S: Final = 2.0
#: A heartbeat is sent this long after the previous one, in seconds, even if the node throttles this client. The minimum
#: session time-out that a coordinator allows by default, counted from the last heartbeat that it received, ends 5 s
#: later.
UNSENT_S: Final = 40.0
#: After this long without a heartbeat a warning is logged, in seconds: a third of that minimum.
_SILENCE_S: Final = 15.0

#: Logged when the group has removed this member (CL-38).
_REMOVED: Final = (
    "group %r has removed this consumer (%s: %s). It rejoins; the records that it held go to other consumers, and its "
    "acknowledgements of them are refused. Usual cause: no heartbeat reached the group within the session timeout "
    "(45 s by default), because the process was suspended, or a call blocked the event loop that the consumer runs on."
)


class Heartbeats:
    """The heartbeat loop of one consumer. Calls `assigned` at every change of the assignment, and `denied` after every
    heartbeat, with the error if the member lacks a permission (CL-143) or valid credentials (CL-158)."""

    def __init__(
        self,
        *,
        membership: Membership,
        cluster: Cluster,
        group_id: str,
        member_id: str,
        metrics: ConsumerMetrics,
        assigned: Callable[[frozenset[TopicIdPartition]], None],
        denied: Callable[[KafkaError | None], None],
        wake_owner: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._cluster = cluster
        self._group_id = group_id
        self._member_id = member_id
        self._metrics = metrics
        self._assigned = assigned
        self._denied = denied
        self._wake_owner = wake_owner
        self._coordinator: str | None = None
        self._answered_s: float | None = None
        #: When the last heartbeat was sent, in seconds on the event loop's clock.
        self._sent_s: float | None = None
        self._logged_silence = False
        #: Why the last heartbeat did not reach a coordinator that serves the group; "" if it did.
        self.unserved = ""
        self._notified: frozenset[TopicIdPartition] = frozenset()
        self._signal = Signal()
        self._sending: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        cluster.listen(self.wake)
        cluster.on_recovery(self._recovered)

    def start(self) -> None:
        """Start the loop. A second call does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="heartbeats")

    def wake(self) -> None:
        """Check now whether a heartbeat is due."""
        self._signal.set()

    async def wait_left(self) -> None:
        """Return once the member has left, or needs no heartbeat for another reason (CL-8)."""
        self.wake()
        async with self._changed:
            await self._changed.wait_for(lambda: self._membership.has_left)

    async def close(self) -> None:
        """Stop the loop and its heartbeats in flight."""
        tasks = [*self._sending] + ([self._task] if self._task else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _recovered(self) -> None:
        self._membership.hurry()
        self.wake()

    async def _run(self) -> None:
        while True:
            self._signal.clear()
            self._reconcile()
            held_s = self._held_back_s()
            request = None if held_s else self._membership.heartbeat(self._now_ms())
            if request is not None:
                task = asyncio.create_task(self._send(request))
                self._sending.add(task)  # at most two, since a leave may overtake one heartbeat (CL-11)
                task.add_done_callback(self._sending.discard)
            self._notify()
            async with self._changed:
                self._changed.notify_all()
            await self._wait(held_s)

    async def _wait(self, held_s: float) -> None:
        deadline = self._membership.next_deadline()
        await self._signal.wait(None if deadline is None else max(held_s, (deadline - self._now_ms()) / 1000))

    def _held_back_s(self) -> float:
        """Return how many more seconds the coordinator's node throttles heartbeats (CL-86). A leave is not held
        back."""
        if self._coordinator is None or self._membership.is_leaving:
            return 0.0
        left_s = min(self._cluster.transport.left_s(self._coordinator), self._wait_s())
        if left_s:
            self._log_silence(self._coordinator, left_s)
        return left_s

    def _wait_s(self) -> float:
        """Return how many seconds throttling may delay the next heartbeat (CL-86)."""
        if self._sent_s is None or self._membership.epoch <= EPOCH_JOIN:
            return math.inf
        return max(0.0, self._sent_s + UNSENT_S - asyncio.get_running_loop().time())

    def _reconcile(self) -> None:
        if self._membership.reconcile(self._cluster.names):
            self._wake_owner()
        self._cluster.want(self._membership.subscription, self._membership.unresolved)

    def _notify(self) -> None:
        if self._membership.assignment != self._notified:
            self._notified = self._membership.assignment
            self._assigned(self._notified)
        if self._membership.take_poll_timeout():
            log.warning(
                "group %r: poll was not called for max.poll.interval.ms, so this consumer leaves the group until it "
                "polls again. Poll more often, with fewer records (max.poll.records), or set a longer "
                "max.poll.interval.ms.",
                self._group_id,
            )

    async def _send(self, heartbeat: Heartbeat) -> None:
        """Send one heartbeat and report its outcome to the membership."""
        membership = self._membership
        started_ms = self._now_ms()
        named: str | None = None
        try:
            response = await self._call(heartbeat)
        except RetriableError as error:  # the look-up found no coordinator
            self.unserved = str(error)
            outcome = membership.unanswered(heartbeat, None, self._now_ms())
        except KafkaError as error:
            outcome = membership.refused(heartbeat, error, self._now_ms())
        except TransportError as error:
            problem = fatal_error(error)
            if isinstance(problem, GroupAuthorizationFailedError | SaslAuthenticationFailedError):
                # The member may yet be given the permission or a valid token (CL-143, CL-158).
                outcome = membership.refused(heartbeat, problem, self._now_ms())
            else:
                outcome = membership.unanswered(heartbeat, problem, self._now_ms())
            if error.status is TransportStatus.RESOURCE_EXHAUSTED:
                self._log_silence(error.address, 0)
                outcome = Lookup.KEEP  # it is the right node, but has no capacity for the call
        else:
            named = wire.address_of(response.coordinator) if response.HasField("coordinator") else None
            outcome = self._answered(heartbeat, response)
            self._cluster.heard()
            self._answered_s, self._logged_silence = asyncio.get_running_loop().time(), False
            self._metrics.heartbeats += 1
            self._metrics.heartbeat_ms.add(self._now_ms() - started_ms)
            self._metrics.last_heartbeat_s = asyncio.get_running_loop().time()
        if outcome is Lookup.AGAIN:
            self._coordinator = None
        elif outcome is Lookup.HINT:
            self._coordinator = named
        self._denied(membership.denied)
        self.wake()
        self._wake_owner()

    def _answered(self, heartbeat: Heartbeat, response: ShareGroupHeartbeatResponse) -> Lookup:
        if response.error_code:
            kind = error_class(response.error_code)
            # Our text for UNSUPPORTED_VERSION is more helpful than the server's (CL-16).
            text = None if kind is UnsupportedVersionError else response.error_message or None
            error = kind(text)
            self.unserved = str(error) if isinstance(error, CoordinatorError) else ""
            fenced = self._membership.fenced
            outcome = self._membership.refused(heartbeat, error, self._now_ms())
            if self._membership.fenced != fenced:
                log.warning(_REMOVED, self._group_id, error.name, error.message)
            return outcome
        self.unserved = ""
        assignment = None
        if response.HasField("assignment"):
            assignment = frozenset(
                TopicIdPartition(topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            )
        self._membership.succeeded(heartbeat, response.member_epoch, response.heartbeat_interval_ms, assignment)
        return Lookup.KEEP

    async def _call(self, heartbeat: Heartbeat) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=heartbeat.member_epoch
        )
        if heartbeat.rack_id is not None:
            request.rack_id = heartbeat.rack_id
        if heartbeat.topics is not None:
            request.subscribed_topic_names.CopyFrom(StringList(values=heartbeat.topics))
        if self._coordinator is None:
            if heartbeat.member_epoch == EPOCH_LEAVE and self._cluster.cluster_id == "":
                raise TransportError(TransportStatus.UNAVAILABLE, "coordinator", "none is known")  # CL-8
            self._coordinator = await self._find()
        address, cluster = self._coordinator, self._cluster
        if heartbeat.member_epoch == EPOCH_LEAVE and (left_s := cluster.transport.left_s(address)) > _LEAVE_WAIT_S:
            text = f"the node accepts no calls for {left_s:.1f} s; the coordinator will expire the member"
            log.info("group %r: the leave request is not sent: %s: %s", self._group_id, address, text)
            raise TransportError(TransportStatus.RESOURCE_EXHAUSTED, address, text)
        wait_s = math.inf if heartbeat.member_epoch == EPOCH_LEAVE else self._wait_s()
        loop = asyncio.get_running_loop()
        self._sent_s = loop.time() + min(cluster.transport.left_s(address), wait_s)
        call = cluster.transport.call(address, wire.HEARTBEAT, request, cluster.timeout_s, wait_s)
        return await while_in_charge(call, address, self._find, f"group {self._group_id!r}")

    def _log_silence(self, address: str, wait_s: float) -> None:
        """Log once, before the coordinator expires this member, that the node has no capacity for heartbeats."""
        now_s = asyncio.get_running_loop().time()
        if self._answered_s is None:
            self._answered_s = now_s
        silent_s = now_s - self._answered_s + wait_s
        if silent_s < _SILENCE_S or self._logged_silence:
            return
        self._logged_silence = True
        log.warning(
            "group %r: its coordinator at %s has no capacity for calls, and will have been without a heartbeat from "
            "this consumer for %.0f s. After the group's session timeout (45 s by default) it removes the consumer, "
            "which then rejoins. Give the node more memory (rpc.memory.bytes), or fewer clients.",
            self._group_id,
            address,
            silent_s,
        )

    def _find(self) -> Coroutine[Any, Any, str]:
        return self._cluster.find_coordinator(self._group_id)

    @staticmethod
    def _now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)
