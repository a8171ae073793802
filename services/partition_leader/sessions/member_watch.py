"""The interface by which `ShareRequests` reports members whose sessions ended with their stream, and those that are
back (PL-527)."""

from __future__ import annotations

from collections.abc import Iterable

from partition_leader.sessions.core.session import SessionKey


class MemberWatch:
    """Callbacks for members that are lost or back; they must not block or raise. In this base class they do nothing."""

    def lost(self, keys: Iterable[SessionKey]) -> None:
        """Handle members whose sessions ended with their stream, but not because this process shuts down."""

    def back(self, key: SessionKey) -> None:
        """Handle a member that opened a session over a stream."""
