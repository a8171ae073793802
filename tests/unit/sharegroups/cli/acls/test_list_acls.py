"""`sharegroups acls list`: its table, its JSON, and the entries that its options choose."""

from __future__ import annotations

import json

import pytest

from kip932.acls import Acl, Operation, Permission, ResourceType
from kip932.errors import ClusterAuthorizationFailedError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import DENIED, GROUP, READ, WRITE


@pytest.mark.rule("CT-137")
def test_the_transcript(entries: FakeCluster) -> None:
    check(
        "acls-list",
        [
            "acls list",
            "acls --list --principal User:alice --output json",
            "acls list --topic orders --resource-pattern-type match",
            "acls list --topic order",
            "acls list --topic order --output json",
            "acls list --resource-pattern-type all",
            "acls list --resource-pattern-type match",
        ],
    )


def row(acl: dict[str, str]) -> tuple[str, ...]:
    return acl["resource_type"], acl["resource_name"], acl["principal"], acl["operation"], acl["permission_type"]


def expected_row(acl: Acl) -> tuple[str, ...]:
    kind, operation = ResourceType(acl.resource_type), Operation(acl.operation)
    return kind.name, acl.resource_name, acl.principal, operation.name, Permission(acl.permission_type).name


@pytest.mark.rule("CT-137")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--topic orders", [READ, WRITE]),
        ("--topic orders --topic *", [DENIED, READ, WRITE]),
        ("--topic orders --operation Write", [WRITE]),
        ("--topic orders --resource-pattern-type prefixed", []),
        ("--group work-1", []),
        ("--group work-1 --resource-pattern-type match", [GROUP]),
        ("--group work- --resource-pattern-type any", [GROUP]),
        ("--resource-pattern-type prefixed", [GROUP]),
        ("--operation Read", [READ, GROUP]),
        ("--operation Read --operation Write", [DENIED, READ, WRITE, GROUP]),
        ("--principal User:*", [DENIED]),
        ("--allow-principal User:*", []),
        ("--allow-principal User:alice --deny-principal User:*", [DENIED, READ, GROUP]),
        ("--deny-host 10.0.0.1", [DENIED]),
        ("--allow-host 10.0.0.1", []),
        ("--deny-host pc7", []),
        ("--cluster", []),
    ],
)
def test_what_is_not_given_matches_everything(entries: FakeCluster, words: str, expected: list[Acl]) -> None:
    result = sharegroups("acls", "list", *words.split(), "--output", "json")
    assert result.exit_code == 0, result.output
    assert [row(acl) for acl in json.loads(result.stdout)] == [expected_row(acl) for acl in expected]
    assert len(entries.acl_requests) == 1


@pytest.mark.rule("CT-137")
def test_it_says_when_access_control_is_off(fake: FakeCluster) -> None:
    result = sharegroups("acls", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("No such entry.\nNote: access control is off in this cluster")


@pytest.mark.rule("CT-137")
def test_a_refusal_is_an_error(entries: FakeCluster) -> None:
    entries.errors["describe_acls"].append(ClusterAuthorizationFailedError.code)
    result = sharegroups("acls", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Listing access control entries failed: Not authorised")
