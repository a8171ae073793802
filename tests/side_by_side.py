"""Which tests run beside which, where pytest has several processes: a plugin of pytest, used by `make test`.

Tests that need the same dear thing form a row, and a row runs in one process from its first test to its last: no two
experiments fight for the machine, and few tests start a Spark. Spark's tests are two rows: those that start it in
processes of their own, as jobs, clusters and commands do, and those that ask one session. Every other module is a unit
by itself; a process that has ended its row takes the next one. So no module's cluster is started twice.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT: Final = "tests/"
_PIPELINE: Final = "integration/share_metrics/"
#: By row, the folders below tests/, or the beginnings of names; the first row that has a module takes it.
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
#: Folders whose modules take longest: they come right after the rows, so that no process is left with one at the end.
LONG: Final = ("integration/share_node/", "simulation/")


def unit_of(nodeid: str) -> str:
    """The name of the row of a test, or of its module when it is in none."""
    module = nodeid.partition("::")[0]
    within = module.removeprefix(ROOT)
    return next((row for row, folders in ROWS.items() if within.startswith(folders)), module)


def turn_of(nodeid: str) -> int:
    """Units of a lower turn start first."""
    if unit_of(nodeid) in ROWS:
        return 0
    return 1 if nodeid.removeprefix(ROOT).startswith(LONG) else 2


class RowScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Rows first, then module by module.

    Not xdist's own groups (`xdist_group`): pytest 9.2 keeps a test's id where xdist 3.8 does not change it, so that
    every test became a group of its own, in whichever process was free.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # without xdist, the hook does not exist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RowScheduling:
    """Rows take the place of every other kind of distribution."""
    config.option.loadscopereorder = False  # it would sort by the number of tests, which says nothing of their time
    return RowScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order of the units is that of the tests; one process alone keeps the order of the folders."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid))
