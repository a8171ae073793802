"""Which reasons for a skipped test are permitted: on any machine, and in CI, which can install nearly everything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

#: Skip reasons that are permitted on a developer's machine.
PERMITTED = Path("tests/permitted_skips.txt")
#: Skip reasons that are permitted in CI as well, for what `.ci/run` cannot install.
PERMITTED_IN_CI = Path("tests/permitted_skips_in_ci.txt")


def permitted(path: Path) -> list[re.Pattern[str]]:
    """One pattern for each line of `path` that is neither blank nor a comment; none when the file is missing."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = (line.strip() for line in text.splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def matches(reason: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    """Return whether one of the patterns matches the whole reason."""
    return any(pattern.fullmatch(reason) for pattern in patterns)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason that a skipped test gave, as its author wrote it."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
