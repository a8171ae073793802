"""The table of recovery times at the end of a run: a pytest plugin that reads the times recorded by the tests.

The times are stored as properties of tests, because pytest returns those from parallel worker processes.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Final, NamedTuple

import pytest

#: The name of a test's property that holds a `Recovery`, as a list.
PROPERTY: Final = "recovery"


class Recovery(NamedTuple):
    """The time from a fault until an acknowledgement that was sent after it got NONE; and the same for the partition
    that waited longest."""

    fault: str
    target: str
    next_ms: int
    slowest_ms: int


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the times from each fault to the next acknowledged record, and for the partition that waited longest."""
    times: defaultdict[tuple[str, str], list[Recovery]] = defaultdict(list)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                for name, value in report.user_properties:
                    if name == PROPERTY and isinstance(value, list):
                        recovery = Recovery(*value)
                        times[recovery.fault, recovery.target].append(recovery)
    if not times:
        return
    terminalreporter.section("recovery, in ms")
    terminalreporter.write_line(f"{'fault':<40}{'times':>6}{'next record':>20}{'every partition':>20}")
    for (fault, target), found in times.items():
        first, all_of_them = [one.next_ms for one in found], [one.slowest_ms for one in found]
        terminalreporter.write_line(
            f"{fault + ' ' + target:<40}{len(found):>6}"
            f"{f'{median(first):.0f} / {max(first)}':>20}{f'{median(all_of_them):.0f} / {max(all_of_them)}':>20}"
        )
    terminalreporter.write_line("median / worst")
