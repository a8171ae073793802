"""A pytest plugin, used by `make test`, that decides which tests run in the same process if pytest has several.

Tests that need the same expensive resource form a row, and one process runs a whole row. So no two experiments compete
for the machine, and Spark is rarely started. The Spark tests form two rows: those that start it in separate processes
(jobs, clusters, commands), and those that share one session. Every other module is a unit by itself, so no module's
cluster is started twice. A process that has finished a unit takes the next one.

A failure is named as soon as it occurs: a run that is cut off prints no summary.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT: Final = "tests/"
_PIPELINE: Final = "integration/share_metrics/"
#: For each row, folders below tests/ or prefixes of file names; a module belongs to the first row that matches.
ROWS: Final = {
    "waiting": ("attack/", "chaos/", "integration/scenarios/", "upgrade/"),
    "jobs of Spark": tuple(
        f"{_PIPELINE}test_{name}."
        for name in (
            "checked_history", "cluster", "demo_report", "executor_pods", "ingest", "ingest_ends", "ingest_kills",
            "kept_history", "standalone", "starting", "stopping", "store_away", "workload",
        )
    ),
    "spark": (_PIPELINE,),
}  # fmt: skip
#: The folders with the slowest modules; these start right after the rows, so that none is left to the end.
LONG: Final = ("integration/share_node/", "simulation/")


def unit_of(nodeid: str) -> str:
    """Return the name of a test's row, or of its module if it is in none."""
    module = nodeid.partition("::")[0]
    within = module.removeprefix(ROOT)
    return next((row for row, folders in ROWS.items() if within.startswith(folders)), module)


def turn_of(nodeid: str) -> int:
    """Return the turn of a test's unit; units with a lower turn start first."""
    if unit_of(nodeid) in ROWS:
        return 0
    return 1 if nodeid.removeprefix(ROOT).startswith(LONG) else 2


class RowScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Distributes rows first, then modules.

    xdist's own groups (`xdist_group`) cannot be used: with pytest 9.2 and xdist 3.8, a test's id does not get its
    group, so every test was a group by itself, in whichever process was free.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Take a test whose process has died for finished (it has failed); xdist would run it again, and end process
        after process."""
        units = self.assigned_work[node].values()
        crashed: str | None = next((test for unit in units for test, done in unit.items() if not done), None)
        if crashed is not None:
            self.assigned_work[node][unit_of(crashed)][crashed] = True
        super().remove_node(node)
        return crashed


class FailuresAtOnce:
    """Names each failure, and its reason, when it occurs."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the name of a test that failed, and the first line of the reason."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(report.longrepr if crash is None else crash.message).partition("\n")[0]
            self._terminal.write_line(f"\nfailed: {report.nodeid}: {reason}")


@pytest.hookimpl(trylast=True)  # once there is a terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    """Have failures named at once where the summary may come too late: by the process that distributes tests."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(FailuresAtOnce(terminal))


@pytest.hookimpl(optionalhook=True)  # without xdist, the hook does not exist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RowScheduling:
    """Replace every other kind of distribution by rows."""
    config.option.loadscopereorder = False  # would sort by the number of tests, which does not predict their time
    return RowScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests by the turns of their units; a single process keeps the order of the folders."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid))
