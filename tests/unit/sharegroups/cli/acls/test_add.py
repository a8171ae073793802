"""`sharegroups acls add`: the entries that it makes, its output and its refusals."""

from __future__ import annotations

import json

import pytest

from kip932.acls import Operation, refused_binding
from kip932.errors import ClusterAuthorizationFailedError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import turn_on

ALICE = ("--allow-principal", "User:alice")


@pytest.mark.rule("CT-137")
def test_the_transcript(fake: FakeCluster) -> None:
    turn_on(fake)
    check(
        "acls-add",
        [
            "acls add --allow-principal User:alice --operation Read --operation describe_configs --topic orders",
            "acls add --allow-principal User:alice --topic orders- --group work- --resource-pattern-type prefixed",
            "acls add --deny-principal User:* --deny-host 10.0.0.1 --operation write --topic '*' --output json",
            "acls --add --allow-principal User:c --consumer --topic orders --group work",
            "acls add --allow-principal User:w --worker --topic orders --group work --dead-letter-topic dlq.orders",
            "acls add --allow-principal User:o --operator --topic '*' --group '*' --transactional-id '*' --cluster "
            "--dead-letter-topic dlq.orders",
            "acls add --allow-principal User:r --redrive --topic orders --group work --dead-letter-topic dlq.orders",
            "acls add --allow-principal User:p --producer --idempotent --topic orders --transactional-id shop-1",
        ],
    )


@pytest.mark.rule("CT-137")
def test_every_combination_is_an_entry_in_one_request(fake: FakeCluster) -> None:
    result = sharegroups(
        "acls", "add", "--allow-principal", "User:a", "--allow-principal", "User:b", "--deny-principal", "User:c",
        "--allow-host", "10.0.0.1", "--allow-host", "::1", "--operation", "Read", "--operation", "Delete",
        "--topic", "t", "--group", "g", "--group", "g",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert len(fake.acls) == len(result.stdout.splitlines()) == (2 * 2 + 1) * 2 * 2
    assert {acl.host for acl in fake.acls if acl.principal == "User:c"} == {"*"}
    assert [type(each).__name__ for each in fake.acl_requests] == ["DescribeAclsRequest", "CreateAclsRequest"]


@pytest.mark.rule("CT-137")
def test_those_that_existed_are_named(fake: FakeCluster) -> None:
    turn_on(fake)
    words = ("acls", "add", *ALICE, "--operation", "Read", "--topic", "a")
    assert sharegroups(*words).stdout == "Added: ALLOW User:alice from *: READ on TOPIC 'a'\n"
    assert sharegroups(*words, "--topic", "b").stdout == (
        "Exists already: ALLOW User:alice from *: READ on TOPIC 'a'\n"
        "Added: ALLOW User:alice from *: READ on TOPIC 'b'\n"
    )
    found = json.loads(sharegroups(*words, "--topic", "c", "--output", "json").stdout)
    assert [each["existed"] for each in found] == [True, False]
    fake.errors["describe_acls"].append(ClusterAuthorizationFailedError.code)
    assert sharegroups(*words).exit_code == 0, "a denial of DESCRIBE must not prevent additions"


@pytest.mark.rule("CT-137")
def test_each_failure_is_reported_and_stops_no_other(fake: FakeCluster) -> None:
    turn_on(fake)
    fake.errors["create_acls"].append(ClusterAuthorizationFailedError.code)
    words = ("acls", "add", *ALICE, "--operation", "Read", "--topic", "a", "--topic", "b")
    result = sharegroups(*words)
    assert result.exit_code == 1
    assert result.stdout == "Added: ALLOW User:alice from *: READ on TOPIC 'b'\n"
    said = "Error: not added: ALLOW User:alice from *: READ on TOPIC 'a': CLUSTER_AUTHORIZATION_FAILED: "
    assert result.stderr.startswith(said)
    fake.errors["create_acls"].append(ClusterAuthorizationFailedError.code)
    result = sharegroups(*words, "--output", "json")
    outcomes = {each["resource_name"]: each["error"] for each in json.loads(result.stdout)}
    assert (result.exit_code, outcomes) == (1, {"a": "CLUSTER_AUTHORIZATION_FAILED", "b": None})


@pytest.mark.rule("CT-137")
@pytest.mark.parametrize(("given", "written"), [("2001:DB8:0::1", "2001:db8::1"), ("::ffff:10.0.0.1", "10.0.0.1")])
def test_an_address_is_written_as_nodes_write_it(fake: FakeCluster, given: str, written: str) -> None:
    sharegroups("acls", "add", *ALICE, "--allow-host", given, "--group", "g")
    assert [acl.host for acl in fake.acls] == [written]


@pytest.mark.rule("CT-137")
def test_it_says_when_access_control_is_off_and_when_it_is_not_known_says_nothing(fake: FakeCluster) -> None:
    words = ("acls", "add", *ALICE, "--operation", "Read", "--group", "g")
    note = "Note: access control is off in this cluster (access.control.enable=false); entries change nothing until "
    assert sharegroups(*words).stderr == note + "it is turned on.\n"
    fake.errors["describe_configs"].append(ClusterAuthorizationFailedError.code)
    assert sharegroups(*words).stderr == ""
    turn_on(fake)
    assert sharegroups(*words).stderr == ""


@pytest.mark.rule("CT-137")
def test_without_an_operation_it_says_that_an_entry_is_about_all(fake: FakeCluster) -> None:
    turn_on(fake)
    fake.add_topic("u", 1)
    added = sharegroups("acls", "add", *ALICE, "--topic", "t")
    assert added.stdout == "Added: ALLOW User:alice from *: ALL on TOPIC 't'\n"
    assert added.stderr.startswith("Note: without --operation, or a shorthand such as --producer")
    assert sharegroups("acls", "add", *ALICE, "--producer", "--topic", "t").stderr == ""
    assert sharegroups("acls", "add", *ALICE, "--operation", "All", "--topic", "u").stderr == ""


@pytest.mark.rule("CT-137")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--allow-principal alice --topic t", "'alice' is not a principal; expected User:NAME, or User:* for everyone. "
         "Did you mean 'User:alice'?"),
        ("--allow-principal user:alice --topic t", "'user:alice' is not a principal"),
        ("--allow-principal Usr:alice --topic t", "Did you mean 'User:alice'?"),
        ("--deny-principal User: --topic t", "'User:' is not a principal"),
        ("--allow-principal Group:staff --topic t", "'Group:staff' is not a principal; expected User:NAME, or User:* "
         "for everyone.\n"),
        ("--allow-principal User:a --operation Reed --topic t", "'Reed' is not an operation; expected one of All, "
         "Alter, AlterConfigs, ClusterAction, "
         "Create, Delete, Describe, DescribeConfigs, IdempotentWrite, Read, Write. Did "
         "you mean 'Read'?"),
        ("--allow-principal User:a --operation Any --topic t", "'Any' is not an operation"),
        ("--allow-principal User:a --operation Create --group g", "CREATE is not an operation on GROUP; expected one "
         "of ALL, READ,"),
        ("--allow-principal User:a --operation Read", "no resource is given; expected --topic, --group, "
         "--transactional-id or --cluster"),
        ("--operation Read --topic t", "no principal is given; expected --allow-principal or --deny-principal"),
        ("--deny-host ::1 --allow-principal User:a --topic t", "--deny-host is given without --deny-principal"),
        ("--allow-host pc7 --allow-principal User:a --topic t", "'pc7' is not an IP address; expected the address that "
         "calls come from, or * for any"),
        ("--allow-principal User:a --topic orders*", "no topic can be named 'orders*': a name has 1 to 249 of a-z, "
         "A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'; for all that begin with 'orders': --topic orders "
         "--resource-pattern-type prefixed"),
        ("--allow-host fe80::1%eth0 --allow-principal User:a --topic t", "'fe80::1%eth0' is not an IP address"),
        ("--allow-principal User:a --topic or/ders", "no topic can be named 'or/ders'"),
        ("--allow-principal User:a --topic a/ --resource-pattern-type prefixed", "no topic's name begins with 'a/'"),
        ("--allow-principal User:a --group * --resource-pattern-type prefixed", "prefixed '*' means names that begin "
         "with that character; for all names leave out --resource-pattern-type"),
        ("--allow-principal User:a --topic t --resource-pattern-type match", "'match' is not one of 'literal', "
         "'prefixed'"),
        ("--allow-principal User:a --topic \udcff", "it is not UTF-8"),
        ("--allow-principal User:a --producer --topic t --operation Read", "--operation does not go with --producer"),
        ("--deny-principal User:a --consumer --topic t --group g", "--deny-principal does not go with --consumer"),
        ("--allow-principal User:a --worker --topic t", "--worker needs --group"),
        ("--allow-principal User:a --consumer --group g", "--consumer needs --topic"),
        ("--allow-principal User:a --producer --topic t --group g", "--group does not go with --producer"),
        ("--allow-principal User:a --consumer --topic t --group g --cluster", "--cluster does not go with --consumer; "
         "give it in a command of its own"),
        ("--allow-principal User:a --topic t --idempotent", "--idempotent goes with --producer, which is not given"),
        ("--allow-principal User:a --topic t --dead-letter-topic d", "--dead-letter-topic goes with one of "
         "--worker, --operator, --redrive, but none is given"),
        ("--allow-principal User:a --producer --topic t --dead-letter-topic d", "--dead-letter-topic goes with one of"),
        ("--allow-principal User:a --redrive --topic t", "--redrive needs --dead-letter-topic"),
        ("--allow-principal User:a --redrive --dead-letter-topic d", "--redrive needs --topic"),
        ("--allow-principal User:a --redrive --topic t --dead-letter-topic d --cluster", "--cluster does not go with "
         "--redrive"),
        ("--allow-principal User:a --operator --dead-letter-topic d", "--operator needs --topic, --group, "
         "--transactional-id or --cluster"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_before_any_request(fake: FakeCluster, words: str, said: str) -> None:
    result = sharegroups("acls", "add", *words.split(" "))
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert (fake.acl_requests, fake.metadata_requests) == ([], 0)


@pytest.mark.rule("CT-137")
def test_an_operator_may_change_nothing_and_read_no_record_but_dead_letters(fake: FakeCluster) -> None:
    sharegroups("acls", "add", *ALICE, "--operator", "--topic", "*", "--group", "*", "--transactional-id", "*",
                "--cluster", "--dead-letter-topic", "d")  # fmt: skip
    shown = {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
    assert {acl.operation for acl in fake.acls if acl.resource_name != "d"} == shown
    assert {acl.operation for acl in fake.acls if acl.resource_name == "d"} == {*shown, Operation.READ}
    assert [refused_binding(acl) for acl in fake.acls] == [""] * 10


@pytest.mark.rule("CT-137")
def test_what_it_adds_can_be_added(fake: FakeCluster) -> None:
    sharegroups("acls", "add", *ALICE, "--producer", "--consumer", "--worker", "--idempotent", "--topic", "a.",
                "--group", "b", "--transactional-id", "c", "--resource-pattern-type", "prefixed")  # fmt: skip
    sharegroups("acls", "add", *ALICE, "--cluster", "--resource-pattern-type", "prefixed")
    assert len(fake.acls) == 10
    assert [refused_binding(acl) for acl in fake.acls] == [""] * 10
