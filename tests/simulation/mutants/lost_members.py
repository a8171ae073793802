"""Planted bugs about members that a leader has lost: live ones are removed, or dead ones stay."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_LOST: Final = "group_coordinator.core.lost_connections"
_TESTS: Final = ("tests/unit/group_coordinator/core/test_lost_connections.py",)

LOST_MEMBERS: Final[tuple[Mutant, ...]] = (
    Mutant(
        "heartbeat-does-not-save",
        "a member that a leader has lost is expelled at the end of its grace, whether it heartbeats or not",
        ("INV-16",),
        (
            Edit(
                _LOST,
                "if found is not None and now_ms - found.lost_ms < UNDER_WAY_MS:",
                "if found is not None:",
            ),
            Edit(
                _LOST,
                "found.deadline_ms = session_ms = min(session_ms, now_ms + found.grace_ms)",
                "session_ms = found.deadline_ms",
            ),
        ),
    ),
    Mutant(
        "grace-without-interval",
        "a member that a leader has lost has a second for its heartbeat, though it sends one in an interval only",
        ("INV-16",),
        (
            Edit(
                "group_coordinator.core.shard",
                "max(grace_ms, self._configs(command.group_id).heartbeat_interval_ms + SLACK_MS)",
                "max(grace_ms, SLACK_MS // 2)",
            ),
            Edit(
                _LOST,
                "max(grace_ms, heard.interval_ms + SLACK_MS if heard is not None else 0)",
                "grace_ms",
            ),
        ),
    ),
    Mutant(
        "heartbeat-under-way-saves",
        "a heartbeat that was sent before the connection was lost counts as one after it: the dead stay a session long",
        ("GC-37",),
        (Edit(_LOST, "UNDER_WAY_MS: Final = 1_000", "UNDER_WAY_MS: Final = 0"),),
        _TESTS,
    ),
    Mutant(
        "late-report-counts",
        "a report of a loss from before the member's last heartbeat makes the coordinator expect another one",
        ("GC-36",),
        (Edit(_LOST, " or (heard is not None and now_ms - ago_ms + UNDER_WAY_MS < heard.at_ms)", ""),),
        _TESTS,
    ),
    Mutant(
        "back-is-not-believed",
        "a member that has a session again is expelled all the same",
        ("GC-37",),
        (
            Edit(
                _LOST, "self._sessions.restart(key, found.session_ms)", "self._sessions.restart(key, found.deadline_ms)"
            ),
        ),
        _TESTS,
    ),
)
