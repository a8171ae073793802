"""Parses the times and durations in options of `dlq`, and formats times (CT-122)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from sharegroups.cli.output import UsageFailure

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_DATETIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?(Z|[+-]\d\d(:\d\d)?)?", re.ASCII)
_MS_MAX: Final = 253_402_300_799_999
_DURATION_FORM: Final = "expected a number with s, m, h or d, as in 90s, 15m, 2h or 7d"
_TIME_FORM: Final = (
    "expected YYYY-MM-DDThh:mm:ss, as in 2025-07-20T01:20:38, UTC or with Z, +hh or +hh:mm at its end; or how long "
    "ago, as in 90s, 15m, 2h or 7d"
)


def duration_ms(option: str, text: str) -> int:
    """Parse `90s`, `15m`, `2h` or `7d` into ms. Raises UsageFailure."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageFailure(f"{option} {text!r} is not a duration; {_DURATION_FORM}")
    return int(found[1]) * _UNITS_MS[found[2]]


def time_ms(option: str, text: str, now_ms: int) -> int:
    """Parse a date and time, or a duration before `now_ms`, into ms since 1970. Raises UsageFailure."""
    if _DURATION.fullmatch(text.strip()) is not None:
        return now_ms - duration_ms(option, text)
    if _DATETIME.fullmatch(text.strip()) is None:
        raise UsageFailure(f"{option} {text!r} is not a time; {_TIME_FORM}")
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageFailure(f"{option} {text!r} is not a date and time: {error}; {_TIME_FORM}") from error
    return int((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def time_text(moment_ms: int) -> str:
    """Return a time in the form that `--since` takes: UTC, whole seconds. A time outside the years 1970 to 9999 is
    returned as a number."""
    if not 0 <= moment_ms <= _MS_MAX:
        return f"{moment_ms}ms"
    return datetime.fromtimestamp(moment_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
