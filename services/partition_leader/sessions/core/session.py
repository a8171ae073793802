"""Share sessions: which partitions a member fetches here, and the epoch that keeps its requests in order (§5).

Owns the sessions of one leader process, their epochs and partition order, and remembers the members that were removed.
It never acquires or releases records or sends responses. It decides what a request may do, what must be released, and
which partitions a response contains. No session is evicted to make room for another (PL-506). The random session id is
passed in (PL-502a).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from kip932.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownMemberIdError,
)
from kip932.ids import SESSION_PARTITIONS_MAX, TopicIdPartition

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
#: How long an opening request from a life that is over is refused. Longer would not help: a running member is notified
#: by its coordinator. And a group whose epochs went back, because its store lost the last writes, must be able to
#: continue.
REMOVAL_REMEMBERED_MS: Final = 60_000
#: How many removed members are remembered.
REMOVED_MEMBERS_MAX: Final = 10_000


class SessionKey(NamedTuple):
    """A member of a group. It has at most one session on a leader."""

    group_id: str
    member_id: str


class SessionRequest(NamedTuple):
    """The session part of a ShareFetch or ShareAcknowledge.

    `session_id`: None if the client does not support the field. `connection_id`: the stream that the request came over;
    None for a unary call (PL-524). `member_epoch`: the member's newest epoch; None if the client does not support the
    field (PL-528). `principal`: the caller; None if unknown (CM-60).
    """

    key: SessionKey
    epoch: int
    session_id: int | None
    connection_id: int | None
    topics: tuple[TopicIdPartition, ...] = ()
    forgotten: tuple[TopicIdPartition, ...] = ()
    has_acknowledgements: bool = False
    member_epoch: int | None = None
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class ClosedSession:
    """A session that has ended: what its member holds on these partitions must be released (PL-520).

    `group_is_empty`: whether it was the group's last session here, so that the group's share-partitions retire
    (PL-523).
    """

    key: SessionKey
    partitions: tuple[TopicIdPartition, ...]
    group_is_empty: bool


class SessionStep(NamedTuple):
    """The result of the session step: what the request may do.

    `fetch`: the partitions to fetch, in order (PL-204). `closed`: the ended session to release after this request's
    acknowledgements; the response does not wait for that.
    """

    key: SessionKey
    epoch: int
    session_id: int
    fetch: tuple[TopicIdPartition, ...]
    closed: ClosedSession | None = None

    @property
    def is_final(self) -> bool:
        """True when this request closes the session."""
        return self.epoch == CLOSING_EPOCH


class Removed(StrEnum):
    """The effect of a removal on the member's session here (PL-528)."""

    ENDED = "ended"
    NO_SESSION = "no_session"
    NO_EPOCH = "no_epoch"  # its client sends no member epoch, so its life is unknown
    LATER_LIFE = "later_life"  # the member has joined again since


class Outcome(NamedTuple):
    """The contents of a request's response for one partition."""

    has_records: bool = False
    has_error: bool = False
    has_acknowledgement: bool = False


CLEAN: Final = Outcome()


@dataclass(slots=True)
class _Session:
    session_id: int
    connection_id: int | None
    last_request_ms: int
    member_epoch: int | None = None  # the highest in its requests so far
    principal: str | None = None  # the principal that opened it
    epoch: int = 1
    requests_running: int = 0
    empty_fetches: int = 0  # consecutive fetches without records, including the current one
    # In fetch order. True: the partition is new or was in error, so its next entry is reported even if it is empty
    # (PL-511).
    partitions: dict[TopicIdPartition, bool] = field(default_factory=dict)


def next_epoch(epoch: int) -> int:
    """The epoch that follows `epoch` (PL-503)."""
    if epoch < 0:
        return CLOSING_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class RemovedMembers:
    """The newest removal of each member, kept for a minute: it shows which of the member's lives are over (PL-528,
    PL-529). Bounded.

    A life is one membership of a member id. A removal gives the group a new epoch. The member epochs of the life that
    it ended are lower; those of a later life are not. So no clock is needed to tell them apart, and a removal that
    arrives late, twice, or from a former coordinator does not affect a later life.
    """

    def __init__(self) -> None:
        self._removed: dict[SessionKey, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._removed)

    def note(self, key: SessionKey, group_epoch: int, now_ms: int) -> None:
        """Note that the coordinator has removed the member, which gave the group `group_epoch`."""
        self._forget(now_ms)
        known = self._removed.pop(key, None)
        newest = group_epoch if known is None else max(group_epoch, known[0])
        self._removed[key] = (newest, now_ms)

    def is_over(self, key: SessionKey, member_epoch: int | None, now_ms: int) -> bool:
        """Return whether the member's life with this epoch is known to be over; False for a request without an
        epoch."""
        if member_epoch is None or not self._removed:
            return False
        self._forget(now_ms)
        known = self._removed.get(key)
        return known is not None and member_epoch < known[0]

    def _forget(self, now_ms: int) -> None:
        while self._removed:
            key = next(iter(self._removed))
            if len(self._removed) < REMOVED_MEMBERS_MAX and now_ms - self._removed[key][1] < REMOVAL_REMEMBERED_MS:
                return
            del self._removed[key]


class SessionCache:
    """All share sessions of one leader process, at most `sessions_max` (group.share.max.share.sessions)."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[SessionKey, _Session] = {}
        self._group_sizes: dict[str, int] = {}
        self._by_connection: dict[int, set[SessionKey]] = {}
        self._removed_members = RemovedMembers()
        self.evictions = 0  # sessions ended by connection loss

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions of all sessions together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def is_opened_by(self, key: SessionKey, principal: str | None) -> bool:
        """Return whether the member has a session that this principal opened; False for a caller that is not known."""
        session = self._sessions.get(key)
        return session is not None and principal is not None and session.principal == principal

    def fetching(self, group_id: str, partition: TopicIdPartition) -> int:
        """Count the members of the group whose session here contains the partition. Reads every session."""
        return sum(
            key.group_id == group_id and partition in session.partitions for key, session in self._sessions.items()
        )

    def fetching_since(self, since_ms: int) -> Iterator[tuple[SessionKey, Collection[TopicIdPartition]]]:
        """Yield the member and the partitions of each session with a request in flight, or one that ended at `since_ms`
        or later. Add and remove no session during the iteration."""
        for key, session in self._sessions.items():
            if session.requests_running or session.last_request_ms >= since_ms:
                yield key, session.partitions

    # Requests.

    def fetch(self, request: SessionRequest, new_session_id: int, now_ms: int) -> SessionStep:
        """Run the session step of a ShareFetch (PL-502, PL-507). When this returns, the session's epoch has advanced
        (PL-504).

        Raises InvalidRequestError, ShareSessionNotFoundError, InvalidShareSessionEpochError, and UnknownMemberIdError
        for a member that was removed and has not joined again (PL-529). It also raises ShareSessionLimitReachedError,
        which must be sent to the client only after max_wait_ms (PL-506).
        """
        if request.epoch == OPENING_EPOCH:
            return self._open(request, new_session_id, now_ms)
        self._check_partitions(request)
        session = self._continued(request, now_ms)
        if request.member_epoch is not None and request.member_epoch > (session.member_epoch or 0):
            session.member_epoch = request.member_epoch
        if request.epoch == CLOSING_EPOCH:
            return SessionStep(request.key, CLOSING_EPOCH, session.session_id, (), self._remove(request.key))
        for partition in request.topics:
            session.partitions.setdefault(partition, True)
        for partition in request.forgotten:
            session.partitions.pop(partition, None)
        session.requests_running += 1
        order = _rotated(tuple(session.partitions), session.empty_fetches)
        session.empty_fetches += 1
        return SessionStep(request.key, request.epoch, session.session_id, order)

    def acknowledge(self, request: SessionRequest, now_ms: int) -> SessionStep:
        """Run the session step of a ShareAcknowledge (PL-502). It opens no session and changes no partitions.

        Raises ShareSessionNotFoundError or InvalidShareSessionEpochError.
        """
        if request.epoch == OPENING_EPOCH:
            raise InvalidShareSessionEpochError(
                f"share session epoch 0 in a ShareAcknowledge of member {request.key.member_id}: "
                "only a ShareFetch opens a session"
            )
        session = self._continued(request, now_ms)
        closed = self._remove(request.key) if request.epoch == CLOSING_EPOCH else None
        if closed is None:
            session.requests_running += 1
        return SessionStep(request.key, request.epoch, session.session_id, (), closed)

    def _open(self, request: SessionRequest, new_session_id: int, now_ms: int) -> SessionStep:
        key = request.key
        if key in self._sessions:
            _check_principal(request, self._sessions[key])
        if request.has_acknowledgements:
            raise InvalidRequestError(
                f"the opening ShareFetch (epoch 0) of member {key.member_id} has acknowledgements: send them with the "
                "session that acquired the records, or let the locks of these records run out"
            )
        if self._removed_members.is_over(key, request.member_epoch, now_ms):
            raise UnknownMemberIdError(
                f"group {key.group_id!r} has removed its member {key.member_id}; join again, with a heartbeat of epoch "
                "0, before fetching"
            )
        if key not in self._sessions and len(self._sessions) >= self._sessions_max:
            raise ShareSessionLimitReachedError(
                f"this leader holds {len(self._sessions)} share sessions, as many as group.share.max.share.sessions "
                "allows; try again later"
            )
        # Replaced, not ended: the group keeps a session, so its share-partitions stay (12.6).
        closed = self._remove(key, replaced=True) if key in self._sessions else None
        session = _Session(new_session_id, None, now_ms, requests_running=1, empty_fetches=1)
        session.member_epoch, session.principal = request.member_epoch, request.principal
        session.partitions = dict.fromkeys(request.topics, True)
        self._sessions[key] = session
        self._group_sizes[key.group_id] = self._group_sizes.get(key.group_id, 0) + 1
        if request.connection_id is not None:
            self._bind(key, session, request.connection_id)
        return SessionStep(key, OPENING_EPOCH, new_session_id, tuple(session.partitions), closed)

    def _continued(self, request: SessionRequest, now_ms: int) -> _Session:
        """Find the session that a request belongs to, check the request's epoch, advance the session's epoch, and
        return the session."""
        key = request.key
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFoundError(
                f"no share session of member {key.member_id} in group {key.group_id!r} here; open one with epoch 0"
            )
        _check_principal(request, session)
        if request.session_id is not None:
            foreign = request.session_id != session.session_id
        else:
            foreign = request.connection_id != session.connection_id
        if foreign:
            raise InvalidShareSessionEpochError(
                f"the request belongs to another share session of member {key.member_id} than the one open here; "
                "open a new one with epoch 0"
            )
        if request.epoch not in (session.epoch, CLOSING_EPOCH):
            raise InvalidShareSessionEpochError(
                f"share session epoch {request.epoch} of member {key.member_id}; expected {session.epoch}; open a "
                "new session with epoch 0"
            )
        session.epoch = next_epoch(request.epoch)
        session.last_request_ms = now_ms
        if request.connection_id is not None and request.connection_id != session.connection_id:
            self._bind(key, session, request.connection_id)
        return session

    def _bind(self, key: SessionKey, session: _Session, connection_id: int) -> None:
        """Bind a session to the stream of its newest request; the end of its previous stream no longer ends it
        (PL-533)."""
        self._unbind(key, session)
        session.connection_id = connection_id
        self._by_connection.setdefault(connection_id, set()).add(key)

    def _unbind(self, key: SessionKey, session: _Session) -> None:
        if session.connection_id is None:
            return
        keys = self._by_connection[session.connection_id]
        keys.discard(key)
        if not keys:
            del self._by_connection[session.connection_id]

    def _check_partitions(self, request: SessionRequest) -> None:
        """Limit the partitions of a session, because one response may name all of them (CM-91). Raises
        InvalidRequestError."""
        session = self._sessions.get(request.key)
        if session is None or len(session.partitions) + len(request.topics) <= SESSION_PARTITIONS_MAX:
            return
        left = session.partitions.keys() - set(request.forgotten)
        count = len(left.union(request.topics))
        if count > SESSION_PARTITIONS_MAX:
            raise InvalidRequestError(
                f"the share session of member {request.key.member_id} would have {count} partitions; at most "
                f"{SESSION_PARTITIONS_MAX} are fetched from one leader"
            )

    def check_current(self, step: SessionStep) -> None:
        """Check, before a response is built, that the session of its request still exists (PL-505).

        Raises InvalidShareSessionEpochError if it was removed or replaced. The caller must then release what the
        request acquired.
        """
        if step.is_final:
            return
        session = self._sessions.get(step.key)
        if session is None or session.session_id != step.session_id:
            raise InvalidShareSessionEpochError(
                f"the share session of member {step.key.member_id} ended while its request of epoch {step.epoch} ran; "
                "open a new one with epoch 0"
            )

    def report(self, step: SessionStep, outcomes: Mapping[TopicIdPartition, Outcome]) -> tuple[TopicIdPartition, ...]:
        """Return the partitions of `outcomes` that the response contains: in fetch order, then those that were only
        acknowledged (PL-511). Partitions with records go to the end of the session's order (PL-512).

        `outcomes` has every partition that was attempted or acknowledged. A partition that could not be locked is
        absent.
        """
        session = self._sessions.get(step.key)
        if session is None or session.session_id != step.session_id:
            return tuple(outcomes)
        reported: list[TopicIdPartition] = []
        partitions, opening = session.partitions, step.epoch == OPENING_EPOCH
        for partition in dict.fromkeys((*step.fetch, *outcomes)):
            outcome = outcomes.get(partition)
            if outcome is None:
                continue
            owed = partitions.get(partition)
            if owed or opening or outcome != CLEAN:
                reported.append(partition)
            if owed is not None:
                if outcome.has_records:
                    session.empty_fetches = 0
                    del partitions[partition]
                partitions[partition] = outcome.has_error
        return tuple(reported)

    def finished(self, step: SessionStep, now_ms: int) -> None:
        """Note that the request got its response or was abandoned: its session's idle time starts when no request is
        left (PL-524)."""
        session = self._sessions.get(step.key)
        if session is not None and session.session_id == step.session_id and session.requests_running:
            session.requests_running -= 1
            session.last_request_ms = now_ms

    # Ends.

    def connection_lost(self, connection_id: int) -> tuple[ClosedSession, ...]:
        """End the sessions of a stream that has ended (PL-522): those whose newest request came over it (PL-533)."""
        closed = tuple(self._remove(key) for key in sorted(self._by_connection.get(connection_id, ())))
        self.evictions += len(closed)
        return closed

    def member_removed(self, key: SessionKey, group_epoch: int, now_ms: int) -> tuple[Removed, ClosedSession | None]:
        """End the session of a member that the coordinator has removed, if the session belongs to the membership that
        the removal ended (PL-528), and for a while refuse to open another session for that membership (PL-529).
        `group_epoch`: the epoch that the removal gave the group."""
        self._removed_members.note(key, group_epoch, now_ms)
        session = self._sessions.get(key)
        if session is None:
            return Removed.NO_SESSION, None
        if session.member_epoch is None:
            return Removed.NO_EPOCH, None
        if session.member_epoch >= group_epoch:
            return Removed.LATER_LIFE, None
        return Removed.ENDED, self._remove(key)

    def expire_idle(self, now_ms: int, idle_ms: Mapping[str, int], default_idle_ms: int) -> tuple[ClosedSession, ...]:
        """End sessions without a stream that have had no request in flight for their group's idle time (PL-524).

        The idle time is max(session timeout, lock duration), in ms; `idle_ms` is by group id.
        """
        idle = [
            key
            for key, session in self._sessions.items()
            if session.connection_id is None
            and not session.requests_running
            and now_ms - session.last_request_ms >= idle_ms.get(key.group_id, default_idle_ms)
        ]
        return tuple(self._remove(key) for key in idle)

    def _remove(self, key: SessionKey, replaced: bool = False) -> ClosedSession:
        session = self._sessions.pop(key)
        left = self._group_sizes[key.group_id] - 1
        if left:
            self._group_sizes[key.group_id] = left
        else:
            del self._group_sizes[key.group_id]
        self._unbind(key, session)
        return ClosedSession(key, tuple(session.partitions), not left and not replaced)


def _check_principal(request: SessionRequest, session: _Session) -> None:
    """Raise UnknownMemberIdError for another principal than the one that opened the session (PL-530)."""
    if request.principal != session.principal:
        raise UnknownMemberIdError(
            f"the share session of member {request.key.member_id} was opened by another principal; join with a member "
            "id of your own"
        )


def _rotated(partitions: tuple[TopicIdPartition, ...], empty_fetches: int) -> tuple[TopicIdPartition, ...]:
    """Start one partition further on after each fetch without records, so that a partition without records does not
    block the others (PL-204)."""
    if not empty_fetches or len(partitions) < 2:
        return partitions
    by = empty_fetches % len(partitions)
    return partitions[by:] + partitions[:by]
