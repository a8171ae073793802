"""The table of CM-61 in the specification, the rows of `rpc.table`, and the questions of the matrix agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kip932.acls import Operation, ResourceType
from kip932.api.v1 import cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2
from shard_runtime.rpc.table import RPCS, Port, Rpc
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.ask import Ask
from tests.scenarios.access.cases import cases
from tests.scenarios.access.test_matrix import QUESTIONS, served

SPECIFICATION: Final = Path(__file__).parents[3] / "docs" / "spec" / "cluster.md"
SERVICES: Final = (
    cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"],
    group_coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinatorService"],
    partition_leader_service_pb2.DESCRIPTOR.services_by_name["PartitionLeaderService"],
)
#: The only RPC of a service for clients that no client may call (CM-80).
BETWEEN_NODES: Final = {"WriteTxnMarkers"}
_RESOURCE: Final = "|".join(each.name for each in ResourceType if each.name != "ANY")
_OPERATION: Final = "|".join(sorted((each.name for each in Operation), key=len, reverse=True))
_WITHOUT: Final = re.compile(r"\b[GTXC]AF\b|left out|not set|−1")

Pair = tuple[Operation, ResourceType]


class Row(NamedTuple):
    """A row of the specification."""

    needs: str
    without: str

    @property
    def rights(self) -> list[Pair]:
        """The permissions that it names, in order: `TOPIC READ`, or `DESCRIBE on TOPIC or GROUP`."""
        on = re.match(rf"({_OPERATION}) on ", self.needs)
        if on:
            return [(Operation[on[1]], ResourceType[name]) for name in re.findall(rf"\b({_RESOURCE})\b", self.needs)]
        found = re.findall(rf"\b({_RESOURCE}) ({_OPERATION})\b", f"{self.needs}; {self.without}")
        return [(Operation[operation], ResourceType[resource]) for resource, operation in found]

    @property
    def refusals(self) -> set[str]:
        """The errors in a response if a permission is missing."""
        return set(_WITHOUT.findall(self.without))


def rows() -> dict[str, Row]:
    """Return the table of the specification, by RPC."""
    _, table = SPECIFICATION.read_text(encoding="utf-8").split("| RPC | needs | without it |\n|---|---|---|\n")
    found = {}
    for line in table.splitlines():
        if not line.startswith("|"):
            break
        name, needs, without = (cell.strip() for cell in line.strip("|").split("|"))
        assert name not in found, name
        found[name] = Row(needs, without)
    copied = "as ShareFetch and ShareAcknowledge"
    return {
        name: row._replace(without=row.without.replace(copied, f"{found['ShareFetch'].without}"))
        for name, row in found.items()
    }


ROWS: Final = rows()


@pytest.mark.rule("CM-61", "GC-139")
def test_the_table_has_a_row_for_each_rpc_of_the_services_for_clients() -> None:
    assert set(ROWS) == {method.name for service in SERVICES for method in service.methods} - BETWEEN_NODES


def _row_in_code(name: str) -> Rpc:
    return RPCS[METHODS[name].path]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.rule("CM-61", "GC-139")
def test_a_row_of_the_code_is_the_row_of_the_specification(name: str) -> None:
    """For each type of resource, the code has the operation that the specification names first."""
    first: dict[ResourceType, Operation] = {}
    for operation, resource in ROWS[name].rights:
        first.setdefault(resource, operation)
    assert dict(_row_in_code(name).needs) == first


@pytest.mark.parametrize("name", [name for name, row in RPCS.items() if Port.NODES in row.ports])
@pytest.mark.rule("CM-61")
def test_what_only_nodes_call_needs_cluster_action(name: str) -> None:
    if Port.CLIENTS not in RPCS[name].ports:
        assert RPCS[name].needs == {ResourceType.CLUSTER: Operation.CLUSTER_ACTION}


def _asks(name: str) -> list[type[Ask]]:
    return [ask for ask in QUESTIONS.values() if ask.rpc == name]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.rule("CM-61", "GC-139")
def test_the_questions_ask_for_each_permission_of_the_specification_and_for_no_other(name: str) -> None:
    clauses = [clause for ask in _asks(name) for clause in ask.clauses if not clause.rule]
    asked = {(right.operation, right.resource) for clause in clauses for right in clause.rights}
    assert asked == set(ROWS[name].rights)
    assert {clause.without.what for clause in clauses} == ROWS[name].refusals


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.rule("CM-61")
def test_what_is_not_in_a_row_is_in_the_clause_that_it_names(name: str) -> None:
    text = re.sub(r"\s+", " ", SPECIFICATION.read_text(encoding="utf-8"))
    for clause in (clause for ask in _asks(name) for clause in ask.clauses if clause.rule):
        assert clause.rule in ROWS[name].needs
        (said,) = re.findall(rf"- {re.escape(clause.rule)} \[P\] To name a group's dead-letter topic[^-]*", text)
        assert all(right.operation.name in said for right in clause.rights)


def test_an_rpc_that_is_served_has_questions_and_one_that_is_not_served_is_written_down() -> None:
    """An RPC that is not served has its questions too: they are asked as soon as it is served."""
    assert all(_asks(name) for name in ROWS)
    assert {name for name in ROWS if not served(_asks(name)[0])} == {
        name for name in ROWS if _row_in_code(name).unserved
    }


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_asked_by_a_caller_with_each_single_permission(name: str) -> None:
    ask = QUESTIONS[name]()
    entries = [case.entries for case in cases(ask)]
    single = {(entry.operation, entry.resource_type) for (entry, *more) in filter(None, entries) if not more}
    assert len(single) == 27, "each operation that its type of resource has, and ALL"
