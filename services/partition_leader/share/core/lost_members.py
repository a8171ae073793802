"""Which members this leader has lost, until their group coordinators have been told (PL-527).

Pure: one report for each member, the newest; all of it bounded. A report that was not told in ten seconds is dropped:
the session time-out of the group does then what the report would have done sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from partition_leader.share.core.session import SessionKey

#: How many members wait to be told at most, and how many are remembered as told.
MEMBERS_MAX: Final = 10_000
#: For how long a report is worth telling.
WORTH_MS: Final = 10_000
#: For how long a member that was told as lost is told as back when it is.
REMEMBERED_MS: Final = 60_000


class Report(NamedTuple):
    """What is to be told of a member. `returned` False: its connection was lost, at `at_ms`; True: it is back."""

    key: SessionKey
    returned: bool
    at_ms: int


class LostMembers:
    """The reports that wait. `dropped` counts those that were never told."""

    def __init__(self) -> None:
        self._waiting: dict[SessionKey, Report] = {}
        self._told: dict[SessionKey, int] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def lost(self, key: SessionKey, now_ms: int) -> None:
        """The member's session ended with its stream."""
        if key not in self._waiting and len(self._waiting) >= MEMBERS_MAX:
            self.dropped += 1
            return
        self._waiting[key] = Report(key, False, now_ms)

    def back(self, key: SessionKey, now_ms: int) -> None:
        """The member has opened a session over a stream. It is told only if its loss was, or may have been."""
        self._waiting.pop(key, None)
        if key in self._told and len(self._waiting) < MEMBERS_MAX:
            self._waiting[key] = Report(key, True, now_ms)

    def take(self, now_ms: int, limit: int) -> list[Report]:
        """At most `limit` reports that are worth telling, oldest first. They count as told from now on."""
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
        """These could not be told: they wait again, unless there is something newer to tell of their members."""
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
            if len(self._told) < MEMBERS_MAX and now_ms - self._told[key] < REMEMBERED_MS:
                return
            del self._told[key]
