"""The period of a page: its windows, and the time up to which everything was read (PM-37). Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from share_metrics.replay.progress_rows import STALL_AFTER_S

#: All rows from this long before the page's start on are read; older rows only if they give the state then (PM-32).
READ_BACK: Final = timedelta(hours=1)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_US: Final = timedelta(microseconds=1)


class Known(NamedTuple):
    """The time up to which everything was read. `behind_s`: how much earlier that is than the requested end, or than
    now, s."""

    until: datetime
    behind_s: int = 0


class Period(NamedTuple):
    """A page's windows of `window_s` seconds, from `begin` to `end` (exclusive), both edges of windows.

    `read_until`: everything before it was read. `known_end`: the end of the windows that can be judged.
    """

    begin: datetime
    end: datetime
    window_s: int
    read_until: datetime
    known_end: datetime

    @property
    def before(self) -> datetime:
        """The start of the preceding period that the page compares itself with (PM-93)."""
        return self.begin - min(self.end - self.begin, READ_BACK)

    @property
    def read_s(self) -> int:
        """How many seconds of it were completely read."""
        return max(0, int((self.read_until - self.begin).total_seconds()))


def period_of(begin: datetime, end: datetime, window_s: int, known: Known | None) -> Period:
    """The period with whole windows: `begin` is rounded down and `end` up. Without `known`, everything was read."""
    begin, end = whole_windows(begin, end, window_s)
    if known is None:
        return Period(begin, end, window_s, end, end)
    known_end = min(end, known_end_of(known.until, window_s))
    return Period(begin, end, window_s, min(end, known.until), known_end)


def whole_windows(begin: datetime, end: datetime, window_s: int) -> tuple[datetime, datetime]:
    """The start of the first and the end of the last window that overlap this period, in UTC."""
    first, last = begin.timestamp() // window_s, -(-end.timestamp() // window_s)
    return datetime.fromtimestamp(first * window_s, UTC), datetime.fromtimestamp(last * window_s, UTC)


def known_end_of(known_until: datetime, window_s: int) -> datetime:
    """The end of the windows that can be judged. A partly read window is included if the read part is long enough."""
    whole, part_s = divmod(known_until.timestamp(), window_s)
    return datetime.fromtimestamp((whole + (part_s >= STALL_AFTER_S)) * window_s, UTC)


def us_of(at: datetime) -> int:
    """The microseconds since 1970."""
    return (at - _EPOCH) // _US


def time_text(us: int) -> str:
    """A time in microseconds since 1970 as the page's tables show it, in whole seconds, UTC."""
    return f"{_EPOCH + us // 1_000_000 * timedelta(seconds=1):%Y-%m-%d %H:%M:%S}"
