"""The evidence for each cell of the table in docs/guarantees.md; `test_cells.py` checks that both agree.

A cell that says "can be lost", "not tested" or "–" needs no evidence; any other needs some for every store that its
column is about: an experiment from `catalogue` on exactly that shape, or a test in the suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The shapes of store that each column of the page is about.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "One store, `always`": ("embedded-always", "own-always"),
    "One store, `everysec`": ("embedded-everysec", "own-everysec"),
    "Replicas, one copy confirms": ("sentinel-1", "cluster-1"),
    "Replicas, two of three copies confirm": ("sentinel-2",),
    "Replicas, every copy confirms": ("sentinel-3", "cluster-2"),
}

_KILLS: Final = "tests/chaos/test_kill.py"
_DEATHS: Final = "tests/chaos/test_embedded.py::test_clients_and_services_die_and_all_restart_in_good_order"
_BAD_START: Final = "tests/integration/scenarios/test_bad_start.py"
_WIPED: Final = (
    f"{_BAD_START}::test_a_store_of_another_cluster_or_a_wiped_one",
    "tests/contracts/test_append.py::test_a_wiped_store_is_not_written_to",
)
_WIPED_EMBEDDED: Final = (f"{_BAD_START}::test_an_embedded_store_that_was_wiped_is_not_taken_for_a_new_one",)


@dataclass(frozen=True, slots=True)
class Row:
    """The evidence for a row: a play on every shape that has it, and tests by shape. `only`: the shapes to which the
    row applies."""

    play: str = ""
    tests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only: str = ""

    def concerns(self, shape: str) -> bool:
        """Return whether the row applies to a store of this shape."""
        return shape.startswith(self.only)

    def evidence(self, shape: str) -> list[str]:
        """Return the experiments and tests that are the evidence for a shape."""
        played = [f"{shape}/{self.play}"] if self.play and not shape.startswith("embedded") else []
        return [*played, *self.tests.get(shape, ())]


def _embedded(*always: str) -> dict[str, tuple[str, ...]]:
    return {"embedded-always": (_DEATHS, *always), "embedded-everysec": (_DEATHS,)}


ROWS: Final[Mapping[str, Row]] = {
    "a client dies": Row("services_die", _embedded()),
    "any service is killed, or all of them": Row(
        "services_die", _embedded(f"{_KILLS}::test_sigkill_of_one_process_again_and_again")
    ),
    "a service is paused for longer than its lease": Row(
        "services_die",
        _embedded(f"{_KILLS}::test_an_owner_paused_beyond_its_lease_confirms_nothing_when_it_goes_on"),
    ),
    "the only store process is stopped cleanly, and started again": Row("store_restarted", _embedded()),
    "the only store process is killed": Row(
        "store_killed",
        {
            "embedded-always": (
                f"{_KILLS}::test_sigkill_of_one_process_again_and_again",
                f"{_KILLS}::test_sigkill_of_everything_and_a_restart_on_the_same_data",
            )
        },
    ),
    "a replica is killed, and comes back": Row("replica_lost"),
    "a master is stopped cleanly, and started again": Row("store_restarted"),
    "a master is killed, and a replica takes over": Row("master_killed"),
    "the same, and the replicas lagged": Row("lagging_replicas"),
    "the same, and one replica of two lagged": Row("one_lagging_replica", only="sentinel"),
    "a master is cut off from all other store nodes, and replaced": Row("master_cut_off"),
    "a master that is well, or only slow, is given up for dead, and replaced": Row("master_hidden"),
    "`CLUSTER FAILOVER`, or `SENTINEL FAILOVER … COORDINATED` (Valkey 9)": Row("hand_over"),
    "`SENTINEL FAILOVER` without that word": Row("forced_fail_over", only="sentinel"),
    "Redis Cluster: slots move to another master": Row("slot_moved", only="cluster"),
    "a killed master is started again before a replica takes over": Row(),
    "all copies of the store are killed at the same moment": Row("store_lost_and_back"),
    "the machine of the store loses power": Row(),
    "the store is wiped, or another one is at its address": Row(
        tests={
            "embedded-always": _WIPED_EMBEDDED,
            "embedded-everysec": _WIPED_EMBEDDED,
            **{shape: _WIPED for shapes in COLUMNS.values() for shape in shapes if "embedded" not in shape},
        }
    ),
}
