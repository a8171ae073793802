"""Losses that a window allows are forgiven, and nothing else is."""

from __future__ import annotations

import pytest

from tests.chaos.history import Acknowledged, Configured, Delivered, Event, Observed, Produced
from tests.chaos.stores.trial import StoreVerdict, Window, judge

WINDOW = Window(1_000, 2_000)


def produced(offset: int, at_ms: int, value: str = "") -> Produced:
    return Produced("t", 0, offset, value or f"v{offset}", at_ms)


def delivered(offset: int, at_ms: int, count: int = 1) -> Delivered:
    return Delivered("c", "t", 0, offset, f"v{offset}", count, at_ms - 1, at_ms)


def accepted(offset: int, at_ms: int, sent_ms: int = 0) -> Acknowledged:
    return Acknowledged("c", "t", 0, offset, "ACCEPT", 1, "", sent_ms or at_ms - 1, at_ms)


def verdict(*events: Event) -> StoreVerdict:
    """Return the verdict on a history with one undisturbed record that is drained at the end."""
    settings = Configured("g", 2_000, 5, 0)
    whole = [settings, produced(0, 10), delivered(0, 20), accepted(0, 30), *events, Observed("t", 0, 9, 0, 9_000)]
    return judge(sorted(whole, key=lambda event: event.at_ms), [WINDOW])


def test_a_record_confirmed_in_the_window_may_be_lost() -> None:
    found = verdict(produced(1, 1_500))
    assert (found.verdict.violations, found.verdict.lost, found.allowed_lost, found.verdict.records) == ((), 0, 1, 2)


@pytest.mark.parametrize("at_ms", [999, 2_001])
def test_a_record_confirmed_outside_may_not(at_ms: int) -> None:
    found = verdict(produced(1, at_ms))
    assert found.verdict.violations
    assert (found.verdict.lost, found.allowed_lost) == (1, 0)


@pytest.mark.parametrize(
    ("sent_ms", "at_ms", "allowed"),
    [(1_499, 1_500, True), (998, 999, False), (2_001, 2_002, False), (1_900, 2_900, True), (700, 999, False)],
)
def test_a_record_accepted_in_the_window_may_come_again_and_another_may_not(
    sent_ms: int, at_ms: int, allowed: bool
) -> None:
    """If a response was recorded late, its arrival time is unknown, so the time of the request is used."""
    answer = accepted(1, at_ms, sent_ms)
    history = (produced(1, 500), delivered(1, 600), answer, delivered(1, 3_000, 2), accepted(1, 3_100))
    found = verdict(*history)
    assert (not found.verdict.violations) is allowed
    assert (found.verdict.accepted_twice, found.allowed_accepted_twice) == ((0, 1) if allowed else (1, 0))


@pytest.mark.rule("CM-47")
def test_an_offset_that_is_used_twice_is_never_forgiven() -> None:
    lost, again = produced(1, 1_500, "lost"), produced(1, 3_000)
    assert any(
        "INV-2" in found for found in verdict(lost, again, delivered(1, 3_100), accepted(1, 3_200)).verdict.violations
    )
