"""Which groups an administrator's change is under way for: one at a time for each group (GC-107, GC-108).

Soft state: a new owner begins without it, and what it forgets is repeated by the administrator, by the sweep (OP-6) or
by a heartbeat (GC-72). Each call has an end by the clock, so that one whose outcome is never heard holds nothing up for
ever.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from group_coordinator.core.lifecycle import Lifecycle
from kip932.errors import CoordinatorLoadInProgressError


class AdminKind(Enum):
    """The calls that change a group; the value is the RPC's name."""

    DELETE_GROUP = "DeleteGroups"
    DELETE_OFFSETS = "DeleteShareGroupOffsets"
    ALTER_OFFSETS = "AlterShareGroupOffsets"


class AdminCall(NamedTuple):
    """A change under way. `topics`: whose state is being deleted; `before`: the lists before an alteration (GC-103)."""

    kind: AdminKind
    attempt: int
    until_ms: int
    topics: frozenset[bytes] = frozenset()
    before: Lifecycle | None = None


class AdminCalls:
    """The calls of one shard, by group."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[str, AdminCall] = {}

    def under_way(self, group_id: str, now_ms: int) -> AdminCall | None:
        """The group's call; one whose time has run out is forgotten (GC-108)."""
        call = self._calls.get(group_id)
        if call is not None and call.until_ms <= now_ms:
            del self._calls[group_id]
            return None
        return call

    def require_none(self, group_id: str, now_ms: int) -> None:
        """Refuse a second change of the group while one is under way (GC-107)."""
        if (call := self.under_way(group_id, now_ms)) is not None:
            raise CoordinatorLoadInProgressError(
                f"{call.kind.value} of group {group_id} is under way, and a group is changed by one call at a time; "
                "try again when it has ended"
            )

    def require_joinable(self, group_id: str, now_ms: int) -> None:
        """Refuse a join while the group is being deleted (GC-93, OP-16)."""
        call = self.under_way(group_id, now_ms)
        if call is not None and call.kind is AdminKind.DELETE_GROUP:
            raise CoordinatorLoadInProgressError(f"group {group_id} is being deleted; join again when that has ended")

    def begin(self, group_id: str, call: AdminCall) -> None:
        """A change begins, or goes into its next round."""
        self._calls[group_id] = call

    def of_attempt(self, group_id: str, attempt: int, now_ms: int) -> AdminCall | None:
        """The group's call, if it is this attempt (GC-76a)."""
        call = self.under_way(group_id, now_ms)
        return call if call is not None and call.attempt == attempt else None

    def end(self, group_id: str, attempt: int) -> None:
        """A change has ended; a late one of another attempt ends nothing."""
        if (call := self._calls.get(group_id)) is not None and call.attempt == attempt:
            del self._calls[group_id]

    def forget(self, group_id: str) -> None:
        """A record of the group was undone: no order was given for it."""
        self._calls.pop(group_id, None)
