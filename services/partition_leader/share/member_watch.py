"""What `ShareRequests` tells about members: whose session ended with its stream, and who has one again (PL-527)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from partition_leader.share.core.session import SessionKey


class MemberWatch(Protocol):
    """Hears of members. Its methods must not block or raise."""

    def lost(self, keys: Iterable[SessionKey]) -> None:
        """The sessions of these members ended with their stream, and not because this process ends."""
        ...

    def back(self, key: SessionKey) -> None:
        """The member opened a session over a stream."""
        ...


class _Nobody:
    def lost(self, keys: Iterable[SessionKey]) -> None:
        del keys

    def back(self, key: SessionKey) -> None:
        del key


#: For a leader that tells no coordinator.
UNWATCHED: Final[MemberWatch] = _Nobody()
