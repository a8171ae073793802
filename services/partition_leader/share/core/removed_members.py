"""Members that their group coordinator has removed: which of their lives is over (PL-528, PL-529).

A removal gives the group a new epoch. The member epochs of the life that it ended are lower, those with which a later
life is assigned partitions are not. So no clock is needed to tell the two apart, and a removal that is heard of late,
twice, or from a coordinator of the past says nothing about a later life. Pure and bounded.
"""

from __future__ import annotations

from typing import Final

#: For how long an opening request of a life that is over is refused. Longer would help nobody: a member that runs hears
#: from its coordinator, and a group whose epochs fell, as a store that lost its last writes has them, must go on.
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
        """The coordinator has removed the member, which gave the group this epoch."""
        self._forget(now_ms)
        known = self._removed.pop(key, None)
        newest = group_epoch if known is None else max(group_epoch, known[0])
        self._removed[key] = (newest, now_ms)

    def is_over(self, key: Member, member_epoch: int | None, now_ms: int) -> bool:
        """Whether the life of the member that this epoch is of is known to be over. Of a request without an epoch
        nothing is known."""
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
