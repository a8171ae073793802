"""How `ShareRequests` reports members whose sessions ended with their stream, and those that are back (PL-527)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from partition_leader.sessions.core.session import SessionKey


class MemberWatch(Protocol):
    """Receives members that are lost or back. Its methods must not block or raise."""

    def lost(self, keys: Iterable[SessionKey]) -> None:
        """Take members whose sessions ended with their stream, and not because this process ends."""
        ...

    def back(self, key: SessionKey) -> None:
        """Take a member that opened a session over a stream."""
        ...


class _NoWatch:
    def lost(self, keys: Iterable[SessionKey]) -> None:
        del keys

    def back(self, key: SessionKey) -> None:
        del key


#: For a leader that reports to no coordinator.
UNWATCHED: Final[MemberWatch] = _NoWatch()
