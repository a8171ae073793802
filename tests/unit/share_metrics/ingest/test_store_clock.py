"""The time by which an ingest goes, on a machine whose clock is right, wrong, or set while it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from share_metrics.ingest.store_clock import StoreClock
from share_metrics.reader import StoreReplyError, StoreUnreachableError

NOON_S = 1_764_763_200.0


class Clocks:
    """The store's clock and that of this machine, and what is reported of them. A question takes `takes_s`."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.store_s = NOON_S
        self.ahead_s = ahead_s
        self.takes_s = 0.2
        self.error: Exception | None = None
        self.reported: list[str] = []
        self.clock = StoreClock(self.reported.append, lambda: self.store_s + self.ahead_s)

    def call(self, *words: str) -> list[bytes]:
        """Answer TIME as a store does."""
        assert words == ("{meta}:log", "TIME")
        if self.error is not None:
            raise self.error
        self.store_s += self.takes_s
        return [b"%d" % int(self.store_s - self.takes_s / 2), b"%d" % (self.store_s % 1 * 1_000_000)]

    def ask(self) -> float:
        """Ask, and return by how many seconds the clock is off afterwards."""
        store: Any = self
        self.clock.ask(store)
        return self.clock.now_s() - self.store_s


@pytest.mark.rule("PM-110")
@pytest.mark.parametrize(("ahead_s", "way"), [(3_600.0, "3600 s fast"), (-3_600.0, "3600 s slow")])
def test_a_clock_that_is_an_hour_off_is_corrected_and_reported_once(ahead_s: float, way: str) -> None:
    clocks = Clocks(ahead_s)
    for _ in range(3):
        assert abs(clocks.ask()) < 1.5
    (words,) = clocks.reported
    assert words.startswith(f"this machine's clock is {way} by the store's")
    assert abs(clocks.clock.utc().timestamp() - clocks.store_s) < 1.5
    shown = datetime.fromtimestamp(NOON_S + ahead_s, UTC)
    assert abs(clocks.clock.corrected(shown).timestamp() - NOON_S) < 1.5
    clocks.ahead_s = 0
    assert clocks.ask() == 0
    assert clocks.reported[1:] == ["this machine's clock and the store's agree again"]


@pytest.mark.rule("PM-110")
def test_a_clock_that_is_some_seconds_off_counts_as_it_is() -> None:
    clocks = Clocks(9)
    assert clocks.ask() == 9
    assert clocks.reported == []


@pytest.mark.rule("PM-110")
def test_what_cannot_be_known_changes_nothing() -> None:
    clocks = Clocks(3_600)
    clocks.error = StoreReplyError("NOPERM this user has no permissions to run the 'time' command")
    assert clocks.ask() == 3_600
    clocks.error, clocks.takes_s = None, 20
    assert clocks.ask() == 3_600, "it took long, so which second it means is not known"
    clocks.takes_s = 0.2
    assert abs(clocks.ask()) < 1.5
    clocks.error = StoreUnreachableError("it is away")
    with pytest.raises(StoreUnreachableError):
        clocks.ask()
    assert abs(clocks.clock.now_s() - clocks.store_s) < 1.5
    assert len(clocks.reported) == 1
