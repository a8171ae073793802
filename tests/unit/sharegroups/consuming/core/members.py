"""Steps of a membership that several tests share."""

from __future__ import annotations

from sharegroups.consuming.core.membership import Heartbeat, Membership, MemberState


def beat(m: Membership, now_ms: int) -> Heartbeat:
    """The next heartbeat, which must be due."""
    request = m.heartbeat(now_ms)
    assert request is not None
    return request


def state(m: Membership) -> MemberState:
    """Return the member's state; this is a function so that a type checker does not reuse an earlier value."""
    return m.state
