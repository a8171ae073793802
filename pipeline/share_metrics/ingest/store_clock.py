"""The time by which an ingest notes what it sees: the store's, where this machine's clock is wrong (PM-110).

Rows have the times of the services, which go by the store's clock. Samples of logs, and the time up to which all was
read, are compared with these. If they were an hour off, a lag of now would be shown as one of an hour ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from share_metrics.reader import Store, StoreReplyError

#: Clocks that differ by no more than this many seconds are both right; a slower answer of the store says nothing.
SKEW_MAX_S: Final = 10.0
#: The store's node that is asked, as the services ask it.
_KEY: Final = "{meta}:log"


class StoreClock:
    """This machine's time, corrected by the store's. `host`: this machine's time, in seconds since 1970."""

    def __init__(self, notify: Callable[[str], None], host: Callable[[], float] = time.time) -> None:
        self._notify = notify
        self._host = host
        self._ahead_s = 0.0

    def ask(self, store: Store) -> None:
        """Compare the clocks, and report once that they differ, or that they no longer do.

        A store that refuses TIME to its user is not asked: then this machine's clock counts. Raises
        StoreUnreachableError.
        """
        before = self._host()
        try:
            seconds, microseconds = store.call(_KEY, "TIME")
        except StoreReplyError:
            return
        after = self._host()
        if not 0 <= after - before <= SKEW_MAX_S:
            return
        ahead_s = (before + after) / 2 - (int(seconds) + int(microseconds) / 1e6)
        ahead_s = 0.0 if abs(ahead_s) <= SKEW_MAX_S else ahead_s
        changed, self._ahead_s = abs(ahead_s - self._ahead_s) > SKEW_MAX_S, ahead_s
        if changed:
            self._notify(_difference(ahead_s))

    def now_s(self) -> float:
        """The present time, in seconds since 1970."""
        return self._host() - self._ahead_s

    def utc(self) -> datetime:
        """The present time."""
        return datetime.fromtimestamp(self.now_s(), UTC)

    def corrected(self, at: datetime) -> datetime:
        """A time that this machine's clock has shown, as it should have been."""
        return at - timedelta(seconds=self._ahead_s)


def _difference(ahead_s: float) -> str:
    if not ahead_s:
        return "this machine's clock and the store's agree again"
    way = "fast" if ahead_s > 0 else "slow"
    return (
        f"this machine's clock is {abs(ahead_s):.0f} s {way} by the store's clock, by which the services go and so "
        "does the ingest; `sharegroups metrics report` goes by this machine's: set it"
    )
