"""Observers of the reports about members between coordinators and leaders."""

from __future__ import annotations

from typing import Any

from group_coordinator.core.commands import ConnectionBack, ConnectionLost, MemberExpired
from partition_leader.sessions.core.session import OPENING_EPOCH, Removed, SessionKey, SessionRequest, SessionStep
from tests.simulation.edge import Edge
from tests.simulation.member_events import (
    ClocksRestarted,
    LossTaken,
    MemberRemoved,
    RemovalHeard,
    ReturnTaken,
    SessionOpened,
)


def watch_clocks(edge: Edge, shard: Any) -> None:
    """Record when a shard of a group coordinator restarts all session clocks."""
    restart = shard._restart_sessions

    def restarted(now_ms: int) -> None:
        edge.report(ClocksRestarted)
        restart(now_ms)

    vars(shard).update(_restart_sessions=restarted)


def report_decided(edge: Edge, command: object, decision: Any) -> None:
    """Record what a shard of a group coordinator decided about a member."""
    for effect in decision.effects:
        if isinstance(effect, MemberExpired):
            edge.report(MemberRemoved, effect.group_id, effect.member.member_id, effect.group_epoch)
    if isinstance(command, ConnectionLost) and decision.reply:
        edge.report(LossTaken, command.group_id, command.member_id, command.ago_ms)
    elif isinstance(command, ConnectionBack) and decision.reply:
        edge.report(ReturnTaken, command.group_id, command.member_id)


class Removals:
    """Observes when one leader's share sessions are opened, and when they end because their members were removed."""

    def __init__(self, edge: Edge, service: Any) -> None:
        self._edge = edge
        removals = service._removals
        sessions = removals._requests.sessions
        self._removed = removals.removed
        self._fetch = sessions.fetch
        vars(removals).update(removed=self.removed)
        vars(sessions).update(fetch=self.fetch)

    def removed(self, key: SessionKey, group_epoch: int) -> Removed:
        """Replaces `MemberRemovals.removed`."""
        outcome: Removed = self._removed(key, group_epoch)
        self._edge.report(RemovalHeard, *key, group_epoch, outcome is Removed.ENDED)
        return outcome

    def fetch(self, request: SessionRequest, new_session_id: int, now_ms: int) -> SessionStep:
        """Replaces `SessionCache.fetch`."""
        step: SessionStep = self._fetch(request, new_session_id, now_ms)
        if request.epoch == OPENING_EPOCH:
            self._edge.report(SessionOpened, *request.key, request.member_epoch or 0, step.closed is not None)
        return step
