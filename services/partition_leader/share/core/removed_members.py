"""Members that their group coordinator has removed, and which of their lives is over (PL-528, PL-529).

A life is one membership of a member id. A removal gives the group a new epoch. The member epochs of the life that it
ended are lower; those of a later life are not. So no clock is needed to distinguish the two, and a removal that arrives
late, twice, or from a former coordinator does not affect a later life. Pure and bounded.
"""

from __future__ import annotations

from typing import Final

#: How long an opening request of a life that is over is refused. Longer would not help: a running member is notified by
#: its coordinator, and a group whose epochs fell, as after its store lost its last writes, must be able to continue.
REMEMBERED_MS: Final = 60_000
#: How many members are remembered.
MEMBERS_MAX: Final = 10_000

Member = tuple[str, str]
"""Group id and member id."""


class RemovedMembers:
    """The newest removal of each member, for a minute."""

    def __init__(self) -> None:
        self._removed: dict[Member, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._removed)

    def note(self, key: Member, group_epoch: int, now_ms: int) -> None:
        """Note that the coordinator has removed the member, which gave the group `group_epoch`."""
        self._forget(now_ms)
        known = self._removed.pop(key, None)
        newest = group_epoch if known is None else max(group_epoch, known[0])
        self._removed[key] = (newest, now_ms)

    def is_over(self, key: Member, member_epoch: int | None, now_ms: int) -> bool:
        """Return whether the member's life with this epoch is known to be over; False for a request without an
        epoch."""
        if member_epoch is None or not self._removed:
            return False
        self._forget(now_ms)
        known = self._removed.get(key)
        return known is not None and member_epoch < known[0]

    def _forget(self, now_ms: int) -> None:
        while self._removed:
            key = next(iter(self._removed))
            if len(self._removed) < MEMBERS_MAX and now_ms - self._removed[key][1] < REMEMBERED_MS:
                return
            del self._removed[key]
