"""The share sessions of one consumer, and a buffer for fetched records that no poll has returned yet.

Rules CL-21, CL-30, CL-34, CL-36, CL-37, CL-83, CL-136 to CL-139. There is one session per leader of an assigned
partition, according to the assignment and the metadata. The consumer fetches only while the application polls and the
buffer is empty, so that no record is locked before it is needed (P-5). The exception is a quick application, for which
one fetch returns the records of several polls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.signal import Signal
from sharegroups.consuming.ack_outbox import PendingAck
from sharegroups.consuming.closed_sessions import has_session_ended, session_of
from sharegroups.consuming.core.denied_rights import Resource
from sharegroups.consuming.member import Member
from sharegroups.consuming.metrics import ConsumerMetrics
from sharegroups.consuming.share_messages import cut_off
from sharegroups.consuming.share_session import ShareSession
from sharegroups.messages import Delivered

log = logging.getLogger(__name__)

#: How long acknowledgements wait for a fetch that can carry them, while records fetched ahead are handed out, in ms.
_ACKS_WAIT_MS: Final = 20
#: Records fetched ahead are released if there is no poll for this long, in seconds.
UNPOLLED_S: Final = 1.0


class Fetcher:
    """The sessions and the buffer.

    `settled` is called with the outcome of acknowledgements, `failed` with errors that poll must raise, `gave_up` with
    an error that ends the membership, `denied` with everything that a leader currently refuses for lack of permission,
    `expired` with records that were dropped because their lock expired. `in_use` returns whether the application holds
    records of a session.
    """

    def __init__(
        self,
        *,
        member: Member,
        cluster: Cluster,
        metrics: ConsumerMetrics,
        settled: Callable[[PendingAck, KafkaError | None], None],
        failed: Callable[[KafkaError], None],
        gave_up: Callable[[KafkaError], None],
        denied: Callable[[Hashable, Mapping[Resource, KafkaError] | None], None],
        expired: Callable[[Delivered], None],
        in_use: Callable[[ShareSession], bool],
    ) -> None:
        self.lock_timeout_ms: int | None = None
        self._member = member
        self._cluster = cluster
        self._metrics = metrics
        self._settled = settled
        self._failed = failed
        self._gave_up = gave_up
        self._denied = denied
        self._expired = expired
        self._in_use = in_use
        self._sessions: dict[int, ShareSession] = {}
        self._assignment: frozenset[TopicIdPartition] = frozenset()
        self._buffer: deque[Delivered] = deque()
        self._signal = Signal()
        self._closing: set[asyncio.Task[None]] = set()
        self._flush_timer: asyncio.TimerHandle | None = None
        #: The time since which acknowledgements have been waiting for a fetch that can carry them.
        self._unsent_ms: int | None = None
        self._unpolled_timer: asyncio.TimerHandle | None = None
        #: When records last arrived or were handed out, in seconds on the event loop's clock.
        self._last_activity_s = 0.0
        self._turn = 0
        self._max_records = int(member.config["max.poll.records"])
        #: How many leaders have been asked, one at a time, since one last returned records.
        self._asked = 0
        self._wait_ms = int(member.config["fetch.max.wait.ms"])
        cluster.listen(self.follow_metadata)
        cluster.on_recovery(self._recovered)

    # Reports of the sessions (SessionOwner).

    def fetched(self, delivered: list[Delivered]) -> None:
        """Buffer records that arrived."""
        self._asked = 0
        self._buffer.extend(delivered)
        if any(part.ahead for part in delivered):
            self._watch_unpolled()

    def settled(self, ack: PendingAck, error: KafkaError | None) -> None:
        """Pass on the final outcome of acknowledgements."""
        self._settled(ack, error)
        self._signal.set()

    def failed(self, error: KafkaError) -> None:
        """Pass on an error that the application must see."""
        self._failed(error)
        self._signal.set()

    def gave_up(self, error: KafkaError) -> None:
        """Pass on the error of a member that cannot read its records."""
        self._gave_up(error)
        self._signal.set()

    def denied(self, node_id: int, refused: Mapping[Resource, KafkaError]) -> None:
        """Pass on everything that a leader currently refuses for lack of permission."""
        self._denied(node_id, refused)

    def wake(self) -> None:
        """Let a waiting poll continue."""
        self._close_idle()
        self._signal.set()

    # Calls of the consumer.

    def assign(self, partitions: frozenset[TopicIdPartition]) -> None:
        """Adopt a new assignment. Buffered records of partitions that are no longer assigned are released."""
        self._assignment = partitions
        kept: deque[Delivered] = deque()
        for part in self._buffer:
            if part.id_partition in partitions:
                kept.append(part)
            else:
                session_of(part).release(part)
        self._buffer = kept
        self.follow_metadata()

    def follow_metadata(self) -> None:
        """Give each session the partitions that its node leads; refresh the metadata if a leader is missing (CL-34)."""
        wanted: dict[int, dict[TopicIdPartition, str]] = {}
        missing = False
        for partition in sorted(self._assignment):
            leader = self._cluster.leader(partition)
            name = self._cluster.names.get(partition.topic_id)
            if leader is None or name is None:
                missing = True
            else:
                wanted.setdefault(leader.node_id, {})[partition] = name
        self._member.leaders = len(wanted)
        for node_id in wanted.keys() - self._sessions.keys():
            self._sessions[node_id] = ShareSession(node_id, self._member, self._cluster, self, self._metrics)
        for node_id, session in self._sessions.items():
            session.wanted = wanted.get(node_id, {})
            session.link.give_up_silent()
        if missing:
            self._cluster.request_refresh()
        self._close_idle()
        self._signal.set()

    def collect(self, now_ms: int) -> list[Delivered]:
        """Take buffered records for one poll: whole responses until max.poll.records is reached (CL-36), or, of records
        fetched ahead, whole batches (CL-139).

        Records whose lock expired in the buffer, or would expire while the application processes them, are released
        instead (CL-83).
        """
        taken: list[Delivered] = []
        if not self._buffer:
            return taken
        count = 0
        while self._buffer and count < self._max_records:
            part = self._buffer.popleft()
            if has_session_ended(part):
                continue  # the leader has released the records
            if part.is_stale(now_ms, self._member.hold_ms):
                self._expired(part)
                session_of(part).release(part)
                continue
            if part.ahead and (left := cut_off(part, self._max_records - count)) is not None:
                self._buffer.appendleft(left)
            taken.append(part)
            count += part.records
        return taken

    def put_back(self, delivered: Sequence[Delivered]) -> None:
        """Put back the records of an interrupted poll; the next poll returns them first."""
        self._buffer.extendleft(reversed(delivered))
        if any(part.ahead for part in delivered):
            self._watch_unpolled()

    def renewed(self, part: Delivered) -> None:
        """Let the next poll return these renewed records first.

        Several such deliveries are ordered by partition and offset, not by when they were confirmed (CL-22, CL-27).
        """
        self._buffer.appendleft(part)
        index = 1
        while index < len(self._buffer) and self._buffer[index].was_renewed:
            ahead = self._buffer[index]
            if (ahead.id_partition, ahead.span) > (part.id_partition, part.span):
                break
            self._buffer[index - 1], self._buffer[index] = ahead, part
            index += 1

    def send_fetches(self, now_ms: int) -> None:
        """Fetch from the leaders, sending acknowledgements along. Sessions that cannot fetch send their
        acknowledgements alone (P-5)."""
        sessions = list(self._sessions.values())
        wanted = self._member.max_records > 0
        ready = [session for session in sessions if session.wants_fetch(now_ms)] if wanted else []
        for session in ready:
            session.wait_ms = None
        if len(sessions) > 1 and ready and self._member.asks_one_leader:
            ready = self._next_of(ready, now_ms)
        for session in ready:
            session.fetch(now_ms)
        self._unsent_ms = None
        for session in sessions:
            if session.outbox and (session not in ready or session.outbox.has_renewals):
                session.flush()

    def _next_of(self, ready: list[ShareSession], now_ms: int) -> list[ShareSession]:
        """Return the leader whose turn it is; none while another leader's response is awaited and not late.

        First, each leader is asked once without waiting. If none has records, each may then wait for its share of
        fetch.max.wait.ms, so that one leader's records are not delayed for long while another is asked.
        """
        if any(session.awaits_records(now_ms) for session in self._sessions.values()):
            return []
        self._turn += 1
        self._asked += 1
        session = ready[self._turn % len(ready)]
        session.wait_ms = 0 if self._asked <= len(ready) else self._wait_ms // len(ready)
        return [session]

    def handed_out(self, now_ms: int) -> None:
        """Note that a poll returns records, and therefore sends no ShareFetch. Pending acknowledgements are sent alone
        (P-5); if the consumer fetches ahead, they wait up to _ACKS_WAIT_MS for the next ShareFetch (CL-139)."""
        self._last_activity_s = now_ms / 1000
        if not self._member.fetches_ahead:
            self.flush()
            return
        loop = asyncio.get_running_loop()
        for session in self._sessions.values():
            if session.outbox and (session.fetching or session.outbox.has_renewals):
                session.flush()
            elif session.outbox:
                self._unsent_ms = now_ms if self._unsent_ms is None else self._unsent_ms
                if self._flush_timer is None:
                    self._flush_timer = loop.call_later(_ACKS_WAIT_MS / 1000, self._flush_due)

    def flush(self) -> None:
        """Send pending acknowledgements now."""
        for session in self._sessions.values():
            if session.outbox:
                session.flush()

    async def wait(self, timeout_s: float, now_ms: int) -> None:
        """Return when woken, when a session may fetch again or its response is late, or after `timeout_s`."""
        others_wait = len(self._sessions) > 1 and self._member.asks_one_leader
        for session in self._sessions.values():
            if session.not_before_ms > now_ms:
                timeout_s = min(timeout_s, (session.not_before_ms - now_ms) / 1000)
            elif others_wait and session.awaits_records(now_ms):
                timeout_s = min(timeout_s, (session.late_at_ms - now_ms) / 1000)
        try:
            await self._signal.wait(timeout_s)
        finally:
            self._signal.clear()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Return how long records are locked, in ms, as a leader last reported (CL-27)."""
        known = [session.lock_timeout_ms for session in self._sessions.values() if session.lock_timeout_ms is not None]
        return known[-1] if known else self.lock_timeout_ms

    async def close(self, timeout_s: float) -> None:
        """Close every session (CL-28). The closing requests release the buffered records, and those in responses that
        still arrive, without counting their delivery (CL-145)."""
        buffered, self._buffer = self._buffer, deque()
        self._assignment = frozenset()
        sessions = list(self._sessions.values())
        for session in sessions:
            session.wanted = {}
        for part in buffered:
            if not has_session_ended(part):
                session_of(part).release(part, flush=False)
        try:
            await asyncio.gather(*(session.close(timeout_s) for session in sessions), self._finish_closing(timeout_s))
        finally:  # not earlier, since responses arrive until then
            for timer in (self._flush_timer, self._unpolled_timer):
                if timer is not None:
                    timer.cancel()
        self._sessions.clear()

    # Steps.

    async def _finish_closing(self, timeout_s: float) -> None:
        """Wait for sessions that were already closing; they get no more time than the others."""
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _flush_due(self) -> None:
        """Send acknowledgements that no fetch has carried in time."""
        self._flush_timer = None
        if self._unsent_ms is None:
            return
        loop = asyncio.get_running_loop()
        if (left_ms := self._unsent_ms + _ACKS_WAIT_MS - int(loop.time() * 1000)) > 0:
            self._flush_timer = loop.call_later(left_ms / 1000, self._flush_due)
        else:
            self._unsent_ms = None
            self.flush()

    def _watch_unpolled(self) -> None:
        """Start the timer that releases records fetched ahead unless a poll takes them in time."""
        loop = asyncio.get_running_loop()
        self._last_activity_s = loop.time()
        if self._unpolled_timer is None:
            self._unpolled_timer = loop.call_later(UNPOLLED_S, self._release_unpolled)

    def _release_unpolled(self) -> None:
        """Release records fetched ahead that no poll has taken in time, so that other members get them (CL-137). The
        records of one poll are kept if they include redelivered ones, which a release might bring to their delivery
        limit."""
        self._unpolled_timer = None
        if not self._buffer:
            return
        loop = asyncio.get_running_loop()
        left_s = self._last_activity_s + UNPOLLED_S - loop.time()
        if left_s > 0.001:
            self._unpolled_timer = loop.call_later(left_s, self._release_unpolled)
            return
        kept: deque[Delivered] = deque()
        released = 0
        while self._buffer:
            part = self._buffer.popleft()
            if has_session_ended(part):
                continue
            if part.ahead and (left := cut_off(part, self._max_records)) is not None:
                self._buffer.appendleft(left)
            if part.ahead and part.is_first:
                released += part.records
                session_of(part).release(part)
            else:
                kept.append(part)
        self._buffer = kept
        if released:
            log.info(
                "group %s: no poll for %g s, so %d records that were fetched ahead are released for other members",
                self._member.group_id, UNPOLLED_S, released,
            )  # fmt: skip

    def _recovered(self) -> None:
        for session in self._sessions.values():
            session.hurry()
        self._signal.set()

    def _close_idle(self) -> None:
        """Close sessions that have no partitions and nothing left to do (CL-37)."""
        for node_id, session in list(self._sessions.items()):
            if session.wanted or session.is_busy or self._in_use(session):
                continue
            if any(part.session is session for part in self._buffer):
                continue
            del self._sessions[node_id]
            self.lock_timeout_ms = session.lock_timeout_ms or self.lock_timeout_ms
            self._denied(node_id, None)
            task = asyncio.create_task(session.close(self._cluster.timeout_s))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
