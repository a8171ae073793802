"""Planted bugs about members that are lost or removed: dead members stay, or share sessions end wrongly or not at
all."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_LOST: Final = "group_coordinator.core.lost_connections"
_REMOVALS: Final = "group_coordinator.member_removals"
_SESSIONS: Final = "partition_leader.sessions.core.session"

REMOVED_MEMBERS: Final[tuple[Mutant, ...]] = (
    Mutant(
        "loss-noted-only",
        "a coordinator notes that a leader lost a member, and waits for the session time-out all the same",
        ("INV-16",),
        (Edit(_LOST, "            self._sessions.restart(key, deadline_ms)\n", ""),),
    ),
    Mutant(
        "longer-of-grace-and-session",
        "a member that a leader lost goes at the later of the two ends, its grace's and its session's",
        ("INV-16",),
        (
            Edit(
                _LOST,
                "deadline_ms = min(session_ms, now_ms + grace_ms)",
                "deadline_ms = max(session_ms, now_ms + grace_ms)",
            ),
        ),
    ),
    Mutant(
        "removal-not-reported",
        "no leader learns that a member was removed: its share sessions stay as long as its connections",
        ("INV-16",),
        (Edit(_REMOVALS, "for leader in self._leaders():", "for leader in ():"),),
    ),
    Mutant(
        "removal-reported-to-one",
        "only one leader learns that a member was removed",
        ("INV-16",),
        (Edit(_REMOVALS, "for leader in self._leaders():", "for leader in sorted(self._leaders())[:1]:"),),
    ),
    Mutant(
        "removal-one-epoch-low",
        "a leader gets the group's epoch before the removal: the newest sessions of the member stay",
        ("INV-16",),
        (
            Edit(
                "group_coordinator.core.shard",
                "*why, draft.group.epoch)",
                "*why, group.epoch)",
            ),
        ),
    ),
    Mutant(
        "any-life-ends",
        "a removal that is heard of late ends the share session of a member that has joined again since",
        ("PL-528",),
        (Edit(_SESSIONS, "if session.member_epoch >= group_epoch:", "if session.member_epoch < 0:"),),
        ("tests/unit/partition_leader/share_partition/core/test_removed_members.py",),
    ),
    Mutant(
        "first-epoch-counts",
        "a session keeps the member epoch that it was opened with: one that went on into a later life is ended",
        ("PL-528",),
        (Edit(_SESSIONS, "request.member_epoch > (session.member_epoch or 0)", "session.member_epoch is None"),),
        ("tests/unit/partition_leader/share_partition/core/test_removed_members.py",),
    ),
    Mutant(
        "ghosts-are-let-in",
        "a member that was removed opens a session again with the epoch of the life that is over",
        ("PL-529",),
        (Edit(_SESSIONS, "        self._removed_members.note(key, group_epoch, now_ms)\n", ""),),
        ("tests/unit/partition_leader/share_partition/core/test_removed_members.py",),
    ),
    Mutant(
        "forgotten-stays-locked",
        "what a removed member holds of partitions that it fetches no more stays locked",
        ("PL-528",),
        (
            Edit(
                "partition_leader.share_rpc.removals",
                "self._partitions.of_group(key.group_id)",
                "[each for each in self._partitions.of_group(key.group_id) if each[1:] in closed.partitions]",
            ),
        ),
        ("tests/unit/partition_leader/share_rpc/test_removals.py",),
    ),
)
