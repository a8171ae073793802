"""The membership of one consumer in a share group: a state machine that decides which heartbeat is due and when.

Rules CL-1 to CL-18, CL-143. The host must call `heartbeat` at `next_deadline`, send what it returns, and report the
outcome with `succeeded`, `refused` or `unanswered`. At most one heartbeat is in flight: a leave waits for its outcome,
and a join waits for the end of a leave (CL-11). Pure: it never waits or sends; times are passed in, in ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kip932 import errors
from kip932.errors import KafkaError
from kip932.ids import EPOCH_JOIN, EPOCH_LEAVE, TopicIdPartition
from sharegroups.connection.core.backoff import Backoff
from sharegroups.connection.core.missing_rights import REFUSED_MS


class MemberState(StrEnum):
    """The states of client.md §11.1."""

    UNSUBSCRIBED = "UNSUBSCRIBED"
    JOINING = "JOINING"
    RECONCILING = "RECONCILING"
    ACKNOWLEDGING = "ACKNOWLEDGING"
    STABLE = "STABLE"
    FENCED = "FENCED"
    STALE = "STALE"
    PREPARE_LEAVING = "PREPARE_LEAVING"
    LEAVING = "LEAVING"
    FATAL = "FATAL"


_IMMEDIATE: Final = frozenset({MemberState.JOINING, MemberState.ACKNOWLEDGING})
_PERIODIC: Final = frozenset({MemberState.RECONCILING, MemberState.STABLE})
_ACTIVE: Final = _IMMEDIATE | _PERIODIC
_LEAVES: Final = frozenset({MemberState.PREPARE_LEAVING, MemberState.LEAVING})

_BACK_OFF: Final = frozenset(
    error.code
    for error in (
        errors.CoordinatorNotAvailableError,
        errors.CoordinatorLoadInProgressError,
        errors.UnknownServerError,
    )
)
#: The member lacks a permission or valid credentials, which it may be given (back) at any time (CL-143, CL-158).
_DENIED: Final = frozenset(
    kind.code
    for kind in (
        errors.GroupAuthorizationFailedError,
        errors.TopicAuthorizationFailedError,
        errors.SaslAuthenticationFailedError,
    )
)
_REJOIN: Final = frozenset({errors.FencedMemberEpochError.code, errors.UnknownMemberIdError.code})


class Lookup(StrEnum):
    """What the host must do about the coordinator's address before the next heartbeat."""

    KEEP = "keep"
    AGAIN = "look it up again"
    HINT = "use the one that the answer names, or look it up"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One ShareGroupHeartbeat to send; None means "unchanged" (CL-12)."""

    member_epoch: int
    rack_id: str | None
    topics: tuple[str, ...] | None


class Membership:
    """State of one member. `random` returns numbers in [0, 1), for the jitter of the back-off."""

    def __init__(
        self, rack_id: str, max_poll_interval_ms: int, backoff_ms: int, backoff_max_ms: int, random: Callable[[], float]
    ) -> None:
        self.state = MemberState.UNSUBSCRIBED
        self.epoch = EPOCH_JOIN
        self.assignment: frozenset[TopicIdPartition] = frozenset()
        self.fatal: KafkaError | None = None
        #: Why the last heartbeat was refused, if for lack of permission or valid credentials; None once one is
        #: accepted.
        self.denied: KafkaError | None = None
        self.rebalances = 0
        #: How many times the group or the poll timer has removed this member.
        self.fenced = 0
        self._rack_id = rack_id
        self._max_poll_interval_ms = max_poll_interval_ms
        self._backoff = Backoff(backoff_ms, backoff_max_ms, random)
        self._subscription: tuple[str, ...] = ()
        self._target: frozenset[TopicIdPartition] | None = None
        self._sent_topics: tuple[str, ...] | None = None
        self._sent_rack = False
        self._in_flight: Heartbeat | None = None
        self._interval_ms = 0
        self._sent_at_ms = 0
        self._retry_at_ms: int | None = None
        self._poll_deadline_ms: int | None = None
        self._wants_join = False
        self._after_leave = MemberState.UNSUBSCRIBED
        self._leave_deadline_ms: int | None = None
        self._redirects = 0
        self._is_late = False

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to, sorted."""
        return self._subscription

    @property
    def has_left(self) -> bool:
        """True when no heartbeat is needed: the member has not joined, has left, or had a fatal error."""
        return self.state in (MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.FATAL)

    @property
    def is_leaving(self) -> bool:
        """True when a leave must be sent, or was sent and has no outcome yet."""
        return self.state in _LEAVES

    @property
    def unresolved(self) -> frozenset[bytes]:
        """Topic ids of the target assignment whose names `reconcile` has not received yet (CL-3)."""
        if self._target is None:
            return frozenset()
        return frozenset(partition.topic_id for partition in self._target - self.assignment)

    def take_poll_timeout(self) -> bool:
        """Return whether the member has started to leave because the application did not poll (CL-18). Returns True
        once per occurrence."""
        late, self._is_late = self._is_late, False
        return late

    def hurry(self) -> None:
        """Reset the back-off, and make a heartbeat that waits for it due now, because the cluster can be reached
        again."""
        self._backoff.reset()
        if self._retry_at_ms is not None:
            self._retry_at_ms = 0

    # Calls of the application.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; it takes effect at the next poll (CL-1), or with the next heartbeat."""
        self._subscription = tuple(sorted(set(topics)))

    def poll(self, now_ms: int) -> bool:
        """Note that the application polls: restart the poll timer (CL-18), and let an inactive member join (CL-1,
        CL-7).

        Returns whether the host must call `heartbeat` now; if not, `next_deadline` has not become earlier.
        """
        self._poll_deadline_ms = now_ms + self._max_poll_interval_ms
        if not self._subscription or self.fatal is not None:
            return False
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.STALE):
            self._join()
        elif self.state in _LEAVES:
            self._wants_join = True
        else:
            return self._subscription != self._sent_topics
        return True

    def leave(self, deadline_ms: int | None = None) -> None:
        """Leave the group, to unsubscribe or close (CL-8). At `deadline_ms` the leave stops waiting for a heartbeat in
        flight (CL-11)."""
        self._subscription = ()
        self._wants_join = False
        self._leave_deadline_ms = deadline_ms
        self._begin_leave(MemberState.UNSUBSCRIBED)

    def give_up_leaving(self) -> None:
        """End the leave without a response, because no coordinator is known (CL-8)."""
        if self.state in _LEAVES:
            self._left()

    def give_up(self, error: KafkaError) -> None:
        """Leave because this client cannot continue; every poll then raises `error` (CL-9, CL-111)."""
        if self.fatal is not None:
            return
        self.fatal = error
        self._wants_join = False
        self._begin_leave(MemberState.FATAL)

    # Calls of the host.

    def heartbeat(self, now_ms: int) -> Heartbeat | None:
        """Return the heartbeat to send now, or None. After sending it, report its outcome exactly once."""
        self._expire_poll_timer(now_ms)
        due = self._due_ms()
        if due is None or now_ms < due:
            return None
        if self.state is MemberState.PREPARE_LEAVING:
            self.state = MemberState.LEAVING
            request = Heartbeat(EPOCH_LEAVE, None, None)
        else:
            changed = self.state is MemberState.JOINING or self._subscription != self._sent_topics
            rack = self._rack_id if self._rack_id and not self._sent_rack else None
            request = Heartbeat(self.epoch, rack, self._subscription if changed else None)
            self._sent_rack = True
            self._sent_topics = self._subscription
        self._in_flight = request
        self._sent_at_ms = now_ms
        return request

    def next_deadline(self) -> int | None:
        """Return when `heartbeat` must be called next, in ms; None when only an event can change anything."""
        deadlines = [due for due in (self._due_ms(), self._active_poll_deadline()) if due is not None]
        return min(deadlines, default=None)

    def reconcile(self, names: Mapping[bytes, str]) -> bool:
        """Assign the partitions of the target whose topics `names` contains (CL-3).

        Returns whether the assignment or the state changed; then call `heartbeat`, which acknowledges the assignment.
        """
        if self.state is not MemberState.RECONCILING or self._target is None:
            return False
        resolved = frozenset(partition for partition in self._target if partition.topic_id in names)
        complete = resolved == self._target
        if resolved == self.assignment and not complete:
            return False
        self.assignment = resolved
        self.rebalances += 1
        if complete:
            self._target = None
        self.state = MemberState.ACKNOWLEDGING
        return True

    # Outcomes of a heartbeat.

    def succeeded(
        self,
        request: Heartbeat,
        member_epoch: int,
        interval_ms: int,
        assignment: frozenset[TopicIdPartition] | None,
    ) -> None:
        """Apply a coordinator's response without an error (NONE)."""
        if not self._ended(request):
            return
        if request.member_epoch == EPOCH_LEAVE:
            self._left()
            return
        self._backoff.reset()
        self._redirects = 0
        self._retry_at_ms = None
        self.denied = None
        if self.state not in _ACTIVE or member_epoch < 0:  # CL-10, CL-13
            return
        self.epoch = member_epoch
        self._interval_ms = interval_ms
        joining = self.state is MemberState.JOINING
        if assignment is not None and (joining or assignment != self._wanted()):
            self._target = assignment
            self.state = MemberState.RECONCILING
        elif joining:
            self._target = frozenset()
            self.state = MemberState.RECONCILING
        elif self.state is MemberState.ACKNOWLEDGING:
            self.state = MemberState.RECONCILING if self._target is not None else MemberState.STABLE

    def refused(self, request: Heartbeat, error: KafkaError, now_ms: int) -> Lookup:
        """Apply a coordinator's response with an error (CL-6, CL-15 to CL-17, CL-143)."""
        if not self._ended(request):
            return Lookup.KEEP
        self._forget_sent()
        if request.member_epoch == EPOCH_LEAVE:
            self._left()
            return Lookup.KEEP
        if self.state not in _ACTIVE:
            return Lookup.KEEP
        if error.code == errors.NotCoordinatorError.code:
            self._redirects += 1
            self._retry_at_ms = now_ms
            if self._redirects > 1:
                self._wait(now_ms)
            return Lookup.HINT
        self._redirects = 0
        unknown_group = error.code == errors.GroupIdNotFoundError.code and request.member_epoch > EPOCH_JOIN
        if error.code in _REJOIN or unknown_group:
            self._fenced()
        elif error.code in _DENIED:
            self.denied = error
            self._wait(now_ms, REFUSED_MS)
        elif error.code in _BACK_OFF:
            self._wait(now_ms)
            return Lookup.AGAIN if error.code == errors.CoordinatorNotAvailableError.code else Lookup.KEEP
        else:
            self._fail(error)
        return Lookup.KEEP

    def unanswered(self, request: Heartbeat, fatal: KafkaError | None, now_ms: int) -> Lookup:
        """Note that there was no response. `fatal` is set if a retry cannot help (CL-16)."""
        if not self._ended(request):
            return Lookup.AGAIN
        self._forget_sent()
        if request.member_epoch == EPOCH_LEAVE:
            self._left()
        elif self.state in _ACTIVE:
            if fatal is not None:
                self._fail(fatal)
            else:
                self._wait(now_ms)
        return Lookup.AGAIN

    # Steps.

    def _join(self) -> None:
        self.state = MemberState.JOINING
        self.epoch = EPOCH_JOIN
        self._wants_join = False
        self._retry_at_ms = None
        self._forget_sent()

    def _fenced(self) -> None:
        """Drop the assignment and join again immediately, with the same member id (CL-6)."""
        self.denied = None
        self.state = MemberState.FENCED
        self.fenced += 1
        self._drop_assignment()
        self._join()

    def _fail(self, error: KafkaError) -> None:
        self.state = MemberState.FATAL
        self.fatal, self.denied = error, None
        self._drop_assignment()

    def _begin_leave(self, after: MemberState) -> None:
        self._after_leave = after
        if self.state in _ACTIVE:
            self._drop_assignment()
            self.state = MemberState.PREPARE_LEAVING
        elif self.state is MemberState.STALE:
            self.state = after

    def _left(self) -> None:
        self.state = self._after_leave
        self.denied = None
        self.epoch = EPOCH_JOIN
        self._forget_sent()
        if self._wants_join and self._subscription:
            self._join()

    def _drop_assignment(self) -> None:
        self.assignment = frozenset()
        self._target = None

    def _expire_poll_timer(self, now_ms: int) -> None:
        deadline = self._active_poll_deadline()
        if deadline is not None and now_ms >= deadline:
            self._is_late = True
            self.fenced += 1
            self._begin_leave(MemberState.STALE)

    def _active_poll_deadline(self) -> int | None:
        return self._poll_deadline_ms if self.state in _ACTIVE else None

    def _due_ms(self) -> int | None:
        if self.state is MemberState.PREPARE_LEAVING:
            return 0 if self._in_flight is None else self._leave_deadline_ms
        if self._in_flight is not None:
            return None
        if self.state in _IMMEDIATE:
            return 0 if self._retry_at_ms is None else self._retry_at_ms
        if self.state in _PERIODIC:
            return self._sent_at_ms + self._interval_ms if self._retry_at_ms is None else self._retry_at_ms
        return None

    def _ended(self, request: Heartbeat) -> bool:
        """Clear the heartbeat in flight. Returns False if that is not `request`, because a leave has overtaken it."""
        if self._in_flight is not request:
            return False
        self._in_flight = None
        return True

    def _wanted(self) -> frozenset[TopicIdPartition]:
        return self.assignment if self._target is None else self._target

    def _forget_sent(self) -> None:
        """Make the next heartbeat a full request after a failure, so that it gets the whole assignment (CL-12)."""
        self._sent_topics = None
        self._sent_rack = False

    def _wait(self, now_ms: int, least_ms: int = 0) -> None:
        self._retry_at_ms = now_ms + max(least_ms, self._backoff.next_ms())
