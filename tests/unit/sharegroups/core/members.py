"""Steps of a membership that several of its tests take."""

from __future__ import annotations

from sharegroups.core.membership import Heartbeat, Membership, MemberState


def beat(m: Membership, now_ms: int) -> Heartbeat:
    """The heartbeat that is due."""
    request = m.heartbeat(now_ms)
    assert request is not None
    return request


def state(m: Membership) -> MemberState:
    """Asked by a call, so that a type checker does not take an earlier answer for the present one."""
    return m.state
