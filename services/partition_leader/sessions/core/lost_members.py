"""Remembers what this leader last reported about members that it lost (PL-527). Pure and bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from partition_leader.sessions.core.session import SessionKey

#: How many members are remembered, and for how long after a reported loss a member's return is reported too.
MEMBERS_MAX: Final = 10_000
REPORTED_KEPT_MS: Final = 60_000


class Report(NamedTuple):
    """A report about a member. `returned`: False if its connection was lost, at `at_ms`; True if it is back. Later
    reports have a higher `newness`."""

    key: SessionKey
    returned: bool
    at_ms: int
    newness: int


class LostMembers:
    """Creates the reports, and remembers the last one that was sent about each member."""

    def __init__(self) -> None:
        self._sent: dict[SessionKey, tuple[Report, int]] = {}
        self._newness = 0

    def report(self, key: SessionKey, returned: bool, now_ms: int) -> Report:
        """Create the newest report about a member."""
        self._newness += 1
        return Report(key, returned, now_ms, self._newness)

    def sent(self, reports: Iterable[Report], now_ms: int) -> None:
        """Note that these reports were sent, or may have been."""
        for report in reports:
            self._sent.pop(report.key, None)
            self._sent[report.key] = report, now_ms
        while self._sent:
            key = next(iter(self._sent))
            if len(self._sent) <= MEMBERS_MAX and now_ms - self._sent[key][1] < REPORTED_KEPT_MS:
                return
            del self._sent[key]

    def was_reported(self, key: SessionKey) -> bool:
        """Return whether the last report about the member said that it was lost."""
        return key in self._sent and not self._sent[key][0].returned

    def is_newest(self, report: Report) -> bool:
        """Return whether no newer report about the member was sent, to this or to another coordinator."""
        return report.key not in self._sent or self._sent[report.key][0].newness <= report.newness
