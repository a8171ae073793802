"""How `ShareRequests` reports members whose sessions ended with their stream, and those that are back (PL-527)."""

from __future__ import annotations

from collections.abc import Iterable

from partition_leader.sessions.core.session import SessionKey


class MemberWatch:
    """Receives members that are lost or back; its methods must not block or raise. This one reports to no
    coordinator."""

    def lost(self, keys: Iterable[SessionKey]) -> None:
        """Take members whose sessions ended with their stream, and not because this process ends."""

    def back(self, key: SessionKey) -> None:
        """Take a member that opened a session over a stream."""
