"""Steps of a membership that several tests share."""

from __future__ import annotations

from sharegroups.consuming.core.membership import Heartbeat, Membership, MemberState


def beat(m: Membership, now_ms: int) -> Heartbeat:
    """The next heartbeat, which must be due."""
    request = m.heartbeat(now_ms)
    assert request is not None
    return request


def state(m: Membership) -> MemberState:
    """The member's state, by a call, so that a type checker does not reuse an earlier answer."""
    return m.state
