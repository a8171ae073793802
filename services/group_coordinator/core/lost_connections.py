"""Members whose connection to a partition leader was lost: each must heartbeat soon, or it is expelled (GC-36 to
GC-39).

A killed process sends nothing, but its connections end at once. So a leader that loses the stream of a member's session
reports this to the coordinator, which then expects the member's next heartbeat within a grace period a little longer
than a heartbeat interval. A live member sends it even if its connection is lost. A member that sends none is expelled
when the grace period ends, not after the session time-out.

Soft state, like the session clocks: after a load, or when the shard could not work for a while, no heartbeat is
expected early, and only the session time-outs apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from group_coordinator.core.sessions import MemberKey, Sessions

#: Added to the heartbeat interval, to allow for a heartbeat's transit and a slow process.
SLACK_MS: Final = 1_000
#: A heartbeat that arrives within this time after the loss may have been sent before it.
UNDER_WAY_MS: Final = 1_000
#: How long after an expected expulsion the other members heartbeat, to get the freed partitions. Also the shortest
#: interval that they are given.
REBALANCE_DELAY_MS: Final = 50
SHORTEST_MS: Final = 250
#: Expulsions within this time of the first are awaited together.
EXPULSIONS_WINDOW_MS: Final = 1_000


class Expelled(NamedTuple):
    """Why a member is removed. `leader`: the leader that lost its connection; None when its session time-out has
    passed. `waited_ms`: how long its heartbeat was awaited."""

    leader: str | None
    waited_ms: int


@dataclass(slots=True)
class _Expected:
    """A heartbeat expected of a member. `lost_ms`: when the leader lost its connection; `since_ms`: when that was
    reported; `session_ms`: when the session would end without the report."""

    leader: str
    lost_ms: int
    since_ms: int
    grace_ms: int
    deadline_ms: int
    session_ms: int


class _Heartbeat(NamedTuple):
    at_ms: int
    interval_ms: int


class LostConnections:
    """The early heartbeats expected of a shard's members. It changes deadlines in `sessions`."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._expected: dict[str, dict[str, _Expected]] = {}
        self._heard: dict[MemberKey, _Heartbeat] = {}

    def lost(self, key: MemberKey, leader: str, now_ms: int, ago_ms: int, grace_ms: int) -> bool:
        """Note that a leader lost the member's session `ago_ms` ago. Returns whether its heartbeat is expected now
        (GC-36).

        `grace_ms`: the setting; the member gets at least its last announced interval plus a second. A report of a loss
        more than `UNDER_WAY_MS` before the member's last heartbeat is ignored; a repeated report changes nothing.
        """
        heard = self._heard.get(key)
        session_ms = self._sessions.deadline(key)
        if session_ms is None or (heard is not None and now_ms - ago_ms + UNDER_WAY_MS < heard.at_ms):
            return False
        group = self._expected.setdefault(key[0], {})
        if key[1] not in group:
            grace_ms = max(grace_ms, heard.interval_ms + SLACK_MS if heard is not None else 0)
            deadline_ms = min(session_ms, now_ms + grace_ms)
            group[key[1]] = _Expected(leader, now_ms - ago_ms, now_ms, grace_ms, deadline_ms, session_ms)
            self._sessions.restart(key, deadline_ms)
        return True

    def back(self, key: MemberKey) -> bool:
        """Note that the member has a session again, so only its session time-out applies. Returns whether an early
        heartbeat was expected (GC-37)."""
        found = self._pop_expected(key)
        if found is None:
            return False
        self._sessions.restart(key, found.session_ms)
        return True

    def heard(self, key: MemberKey, now_ms: int, session_ms: int, interval_ms: int) -> None:
        """Note a heartbeat whose response has this interval; the session lasts until `session_ms` (GC-37).

        A heartbeat that may have been sent before the connection was lost proves nothing: the next one is expected.
        """
        self._heard[key] = _Heartbeat(now_ms, interval_ms)
        found = self._expected.get(key[0], {}).get(key[1])
        if found is not None and now_ms - found.lost_ms < UNDER_WAY_MS:
            found.session_ms = session_ms
            found.deadline_ms = session_ms = min(session_ms, now_ms + found.grace_ms)
        else:
            self._pop_expected(key)
        self._sessions.restart(key, session_ms)

    def expelled(self, key: MemberKey, now_ms: int) -> Expelled | None:
        """Return the lost connection because of which the member is expelled, or None if its session time-out has
        passed; forget its expected heartbeat."""
        found = self._pop_expected(key)
        if found is None or found.session_ms <= now_ms:
            return None
        return Expelled(found.leader, now_ms - found.since_ms)

    def interval_ms(self, group_id: str, now_ms: int, interval_ms: int) -> int:
        """Return the heartbeat interval for the reply to a member. While another member's expulsion is expected it is
        shorter, so that the next heartbeat comes when there are partitions to take over (GC-38)."""
        group = self._expected.get(group_id)
        if not group:
            return interval_ms
        first_ms = min(each.deadline_ms for each in group.values())
        last_ms = max(
            each.deadline_ms for each in group.values() if each.deadline_ms - first_ms <= EXPULSIONS_WINDOW_MS
        )
        return min(interval_ms, max(last_ms + REBALANCE_DELAY_MS - now_ms, SHORTEST_MS))

    def forget(self, key: MemberKey) -> None:
        """Forget a removed member."""
        self._heard.pop(key, None)
        self._pop_expected(key)

    def clear(self) -> None:
        """Forget all expected heartbeats, since all session clocks restart."""
        self._heard.clear()
        self._expected.clear()

    def _pop_expected(self, key: MemberKey) -> _Expected | None:
        group = self._expected.get(key[0])
        found = None if group is None else group.pop(key[1], None)
        if group is not None and not group:
            del self._expected[key[0]]
        return found
