"""Keeps track of administrators' changes in progress: at most one per group (GC-107, GC-108).

Soft state: a new owner starts without it, and forgotten changes are repeated by the administrator, by the sweep (OP-6)
or by a heartbeat (GC-72). Each call has a deadline, so that a call without an outcome does not block its group for
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
    """A change in progress. `topics`: those whose state is being deleted; `before`: the lists before an alteration
    (GC-103)."""

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
        """Return the group's call in progress, or None; forget the call if its deadline has passed (GC-108)."""
        call = self._calls.get(group_id)
        if call is not None and call.until_ms <= now_ms:
            del self._calls[group_id]
            return None
        return call

    def require_none(self, group_id: str, now_ms: int) -> None:
        """Refuse a second change to the group while one is in progress (GC-107)."""
        if (call := self.under_way(group_id, now_ms)) is not None:
            raise CoordinatorLoadInProgressError(
                f"{call.kind.value} of group {group_id} is in progress, and a group is changed by one call at a time; "
                "try again when it has ended"
            )

    def require_joinable(self, group_id: str, now_ms: int) -> None:
        """Refuse a join while the group is being deleted (GC-93, OP-16)."""
        call = self.under_way(group_id, now_ms)
        if call is not None and call.kind is AdminKind.DELETE_GROUP:
            raise CoordinatorLoadInProgressError(f"group {group_id} is being deleted; join again when that has ended")

    def begin(self, group_id: str, call: AdminCall) -> None:
        """Note the start of a change, or of its next round."""
        self._calls[group_id] = call

    def with_attempt(self, group_id: str, attempt: int, now_ms: int) -> AdminCall | None:
        """Return the group's call if it has this attempt number (GC-76a)."""
        call = self.under_way(group_id, now_ms)
        return call if call is not None and call.attempt == attempt else None

    def end(self, group_id: str, attempt: int) -> None:
        """Note that a change has ended; a late end of another attempt has no effect."""
        if (call := self._calls.get(group_id)) is not None and call.attempt == attempt:
            del self._calls[group_id]

    def forget(self, group_id: str) -> None:
        """Forget the group's call: its record was undone, so its order was not given."""
        self._calls.pop(group_id, None)
