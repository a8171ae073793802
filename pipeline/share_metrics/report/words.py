"""Times, durations, numbers and names as the page writes them, each in one way (PM-102). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from kip932.printable import printable

#: What stands for a value that does not exist or is not known.
NONE: Final = "–"
_LEAST: Final = "≥\N{NO-BREAK SPACE}"
#: Units of durations: name, seconds, and the smaller unit that follows.
_UNITS: Final = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))
_WITHOUT_SECONDS: Final = len("2026-11-22 08:00")


def instant(time: float | str) -> str:
    """A time in UTC as `2026-11-22 08:00:00`, from seconds since 1970 or from text with or without seconds."""
    if isinstance(time, str):
        return f"{time}:00" if len(time) == _WITHOUT_SECONDS else time
    return f"{datetime.fromtimestamp(int(time), UTC):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float) -> str:
    """A duration in at most two units: `230 ms`, `12.4 s`, `6 min 55 s`, `2 h 1 min`, `11 d 13 h`."""
    if round(seconds * 1_000) < 1_000:
        return f"{round(seconds * 1_000)} ms" if seconds else "0 s"
    if round(seconds * 10) < 600:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    name, size, smaller, part = next(unit for unit in _UNITS if whole >= unit[1])
    rest = whole % size // part
    return f"{whole // size:,} {name}" + (f" {rest} {smaller}" if rest else "")


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number and what it counts: `1 record`, `1,200 records`."""
    return f"{number:,} {plural(number, thing, things)}"


def plural(number: int, thing: str, things: str | None = None) -> str:
    """The word for `number` things; `things` is its plural, if that is not formed with an s."""
    return thing if number == 1 else things or f"{thing}s"


def bounded(number: float | None, least: bool) -> str:
    """A number; with "≥" if it is a lower bound; "unknown" without one."""
    if number is None:
        return "unknown"
    exact = f"{number:,.0f}" if abs(number) >= 10 or number == int(number) else f"{number:.2f}"
    return _LEAST * least + exact


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` names, and how many there are besides: `a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def text(value: object) -> str:
    """Any text as HTML: markup is escaped, and control characters and marks of direction are shown as escapes."""
    return escape(printable(str(value)))
