"""Figures that may be unknown or partial, and their texts: `?` is unknown, `≥` a sum from which something is
missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

UNKNOWN: Final = "?"
_AT_LEAST: Final = "≥"
_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


class Count(NamedTuple):
    """A whole number; None when it is unknown. `at_least`: some of what it counts is missing."""

    value: int | None
    at_least: bool = False

    @property
    def text(self) -> str:
        """The number with a comma for each thousand."""
        return self._marked("" if self.value is None else f"{self.value:,}")

    @property
    def age_text(self) -> str:
        """The number of milliseconds as a duration."""
        return self._marked("" if self.value is None else duration(self.value))

    def _marked(self, text: str) -> str:
        if self.value is None or (self.at_least and not self.value):  # "at least none" says nothing
            return UNKNOWN
        return f"{_AT_LEAST}{text}" if self.at_least else text


class Rate(NamedTuple):
    """Records per second; None when no window has been measured yet. `at_least` as in `Count`."""

    per_s: float | None
    at_least: bool = False

    @property
    def text(self) -> str:
        """The rate, below ten with one digit after the point."""
        if self.per_s is None or (self.at_least and not self.per_s):
            return UNKNOWN
        text = f"{self.per_s:.1f}" if 0 < self.per_s < 9.95 else f"{self.per_s:,.0f}"
        text = "<0.1" if text == "0.0" else text
        return f"{_AT_LEAST}{text}" if self.at_least else text


def total(counts: Iterable[Count]) -> Count:
    """Return the sum. It is partial when one of the counts is unknown or partial, and unknown when all are."""
    listed = tuple(counts)
    known = [count.value for count in listed if count.value is not None]
    if not known:
        return Count(None)
    return Count(sum(known), any(count.value is None or count.at_least for count in listed))


def age(duration_ms: int | None) -> str | None:
    """Return a duration as text, in its two largest units; None for None."""
    if duration_ms is None:
        return None
    seconds = duration_ms // 1_000
    for unit, name, part, part_name in _UNITS:
        if seconds >= unit:
            return f"{seconds // unit} {name} {seconds % unit // part} {part_name}"
    return f"{duration_ms / 1_000:.1f} s"


def duration(duration_ms: int) -> str:
    """Return a duration as short text: as `age`, but whole seconds, and no second unit that is 0."""
    seconds = duration_ms // 1_000
    if not seconds:
        return "<1 s" if duration_ms > 0 else "0 s"
    for unit, name, part, part_name in _UNITS:
        if seconds >= unit:
            rest = seconds % unit // part
            return f"{seconds // unit} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{seconds} s"
