"""Checks whether a leader has released delivered records because their session has ended (CL-33, PL-520)."""

from __future__ import annotations

from sharegroups.consuming.share_session import ShareSession
from sharegroups.messages import Delivered


def session_of(part: Delivered) -> ShareSession:
    """Return the session that delivered these records."""
    session = part.session
    assert isinstance(session, ShareSession)
    return session


def has_session_ended(part: Delivered) -> bool:
    """Return whether the session that delivered the records has ended, even if nothing has been sent since."""
    session = session_of(part)
    return part.generation != session.generation or session.link.has_ended
