"""A pytest plugin that selects the tests of `make test` and of `make test-slow`.

`--tier daily` and `--tier slow` select by tests/tiers.txt, in which the longest matching line decides; tests that no
line matches are daily. Files without a test of the tier are not imported. Without the option everything runs, so a file
given by name runs completely. `--durations-to FILE` writes the durations that tests/packaging/test_tiers.py checks.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

DAILY, SLOW, LONG = "daily", "slow", "long"
ROOT: Final = Path(__file__).parent
LIST: Final = ROOT / "tiers.txt"
#: In seconds: shorter tests are not recorded; one that takes longer than `LONG_S` needs a reason to be daily.
RECORDED_S: Final = 1.0
LONG_S: Final = 2.0


class Line(NamedTuple):
    """A line of tests/tiers.txt: the kind of all tests whose name below tests/ starts with `prefix`, and the reason."""

    kind: str
    prefix: str
    reason: str


def lines(text: str) -> list[Line]:
    """Parse `daily|slow|long  prefix  reason`; raises ValueError for any other line, and for a repeated prefix."""
    found: dict[tuple[bool, str], Line] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(maxsplit=2)
        if len(parts) != 3 or parts[0] not in (DAILY, SLOW, LONG):
            raise ValueError(f"tests/tiers.txt:{number}: {line!r}; expected `{DAILY}|{SLOW}|{LONG}  prefix  reason`")
        key = parts[0] == LONG, parts[1]
        if key in found:
            raise ValueError(f"tests/tiers.txt:{number}: {parts[1]} has a line already")
        found[key] = Line(*parts)
    return list(found.values())


@cache
def listed() -> tuple[Line, ...]:
    """Return the lines of tests/tiers.txt."""
    return tuple(lines(LIST.read_text(encoding="utf-8")))


def tier_of(nodeid: str) -> str:
    """Return the tier of a test, given as `tests/path.py::test[parameters]`."""
    return _tier(nodeid.removeprefix("tests/"))


def _tier(name: str) -> str:
    best = ""
    tier = DAILY
    for kind, prefix, _ in listed():
        if kind != LONG and name.startswith(prefix) and len(prefix) > len(best):
            best, tier = prefix, kind
    return tier


def has_tests_of(tier: str, path: str) -> bool:
    """Return whether a file, or a folder that ends with a slash, may have tests of the tier."""
    return _tier(path) == tier or any(kind == tier and prefix.startswith(path) for kind, prefix, _ in listed())


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=(DAILY, SLOW), help="run the tests of one tier alone; see tests/tiers.txt")
    group.addoption("--durations-to", metavar="FILE", help=f"write the tests that took at least {RECORDED_S} s")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--durations-to") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(Path(config.getoption("--durations-to"))), "durations-to")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files and folders that have no test of the tier, without importing them; pytest decides about the rest."""
    tier = config.getoption("--tier")
    if tier is None or not collection_path.is_relative_to(ROOT) or collection_path == ROOT:
        return None
    name = collection_path.relative_to(ROOT).as_posix() + ("/" if collection_path.is_dir() else "")
    if collection_path.suffix != ".py" and not collection_path.is_dir():
        return None
    return None if collection_path.name == "__init__.py" or has_tests_of(tier, name) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    if tier is None:
        return
    left_out = [item for item in items if tier_of(item.nodeid) != tier]
    items[:] = [item for item in items if tier_of(item.nodeid) == tier]
    config.hook.pytest_deselected(items=left_out)


class Durations:
    """Records the duration of each test without its fixtures, and writes the longest case of each test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # The set-up and teardown of a module's fixtures are left out: they would count for whichever test runs first or
        # last.
        if report.when == "call":
            self._taken[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        longest: dict[str, float] = defaultdict(float)
        for nodeid, seconds in self._taken.items():
            name = nodeid.partition("[")[0]
            longest[name] = max(longest[name], seconds)
        rows = [f"{seconds:6.1f}  {name}" for name, seconds in sorted(longest.items()) if seconds >= RECORDED_S]
        self._path.write_text("\n".join([*HEADER, *rows]) + "\n", encoding="utf-8")


HEADER: Final = (
    "# Tests of a second or more, with the seconds of its longest case on two cores; `make durations` writes this.",
)


def recorded(text: str) -> dict[str, float]:
    """Parse what `Durations` wrote: seconds by test, as `tests/path.py::test`."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {name: float(seconds) for seconds, name in rows}
