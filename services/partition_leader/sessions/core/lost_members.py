"""Members that this leader has lost, until their group coordinators are notified (PL-527).

Pure and bounded; it keeps the newest report of each member. A report that was not sent within ten seconds is dropped:
the group's session timeout then does what the report would have done sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from partition_leader.sessions.core.session import SessionKey

#: How many reports wait at most, and how many members are remembered as reported lost.
MEMBERS_MAX: Final = 10_000
#: How long a report is worth sending.
WORTH_MS: Final = 10_000
#: How long after its loss was reported a member's return is reported too.
REPORTED_KEPT_MS: Final = 60_000


class Report(NamedTuple):
    """A report about a member. `returned`: False when its connection was lost, at `at_ms`; True when it is back."""

    key: SessionKey
    returned: bool
    at_ms: int


class LostMembers:
    """The waiting reports. `dropped` counts those that were never sent."""

    def __init__(self) -> None:
        self._waiting: dict[SessionKey, Report] = {}
        self._told: dict[SessionKey, int] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def lost(self, key: SessionKey, now_ms: int) -> None:
        """Queue a report that the member's session ended with its stream."""
        if key not in self._waiting and len(self._waiting) >= MEMBERS_MAX:
            self.dropped += 1
            return
        self._waiting[key] = Report(key, False, now_ms)

    def back(self, key: SessionKey, now_ms: int) -> None:
        """Note that the member has opened a session over a stream. Reported only if its loss was, or may have been."""
        self._waiting.pop(key, None)
        if key in self._told and len(self._waiting) < MEMBERS_MAX:
            self._waiting[key] = Report(key, True, now_ms)

    def take(self, now_ms: int, limit: int) -> list[Report]:
        """Take at most `limit` reports, oldest first; return those still worth sending. They count as sent from now
        on."""
        taken = list(islice(self._waiting.values(), limit))
        for report in taken:
            del self._waiting[report.key]
        fresh = [report for report in taken if now_ms - report.at_ms < WORTH_MS]
        self.dropped += len(taken) - len(fresh)
        self._forget(now_ms)
        for report in fresh:
            self._told.pop(report.key, None)
            if not report.returned:
                self._told[report.key] = now_ms
        return fresh

    def failed(self, reports: Iterable[Report]) -> None:
        """Put unsent reports back, unless a newer report of the same member waits."""
        for report in reports:
            if report.key in self._waiting:
                continue
            if len(self._waiting) >= MEMBERS_MAX:
                self.dropped += 1
            else:
                self._waiting[report.key] = report

    def _forget(self, now_ms: int) -> None:
        while self._told:
            key = next(iter(self._told))
            if len(self._told) < MEMBERS_MAX and now_ms - self._told[key] < REPORTED_KEPT_MS:
                return
            del self._told[key]
