"""`sharegroups acls explain`: its decisions, their reasons, and what it prints about the nodes' settings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from kip932.errors import ClusterAuthorizationFailedError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import READ, turn_on


def explain(*words: str, principal: str = "User:bob") -> Any:
    result = sharegroups("acls", "explain", "--principal", principal, "--operation", "Write", *words)
    assert result.exit_code == (0 if "Denied" not in result.stdout and '"allowed": false' not in result.stdout else 1)
    return result


@pytest.mark.rule("CT-137")
def test_the_transcript(entries: FakeCluster) -> None:
    check(
        "acls-explain",
        [
            "acls explain --principal User:alice --operation Read --topic orders",
            "acls explain --principal User:alice --operation describe --operation delete --topic orders --group work-7",
            "acls explain --principal User:bob --operation Write --topic orders --host 10.0.0.1",
            "acls explain --principal User:bob --operation Write --topic orders",
            "acls explain --principal User:root --operation Alter --cluster",
            "acls explain --principal User:bob --operation Write --topic orders --host 10.0.0.2 --output json",
            "acls explain --principal User:* --operation Read --topic orders",
            "acls explain --principal User:a --operation All --topic orders",
            "acls explain --principal User:a --operation Create --group work",
            "acls explain --principal User:a --operation Read",
            "acls explain --principal User:a --operation Read --topic '*'",
            "acls explain --principal User:a --operation Read --topic a/b",
            "acls explain --principal User:a --host '*' --operation Read --topic orders",
        ],
    )


@pytest.mark.rule("CT-137")
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--operation Write --topic orders", 0),
        ("--operation Read --topic orders", 1),
        ("--operation Write --operation Read --topic orders", 1),
        ("--operation Reed --topic orders", 2),
        ("--operation Read", 2),
        ("--no-such-option", 2),
    ],
)
def test_a_script_learns_the_answer_from_the_status(entries: FakeCluster, words: str, status: int) -> None:
    assert sharegroups("acls", "explain", "--principal", "User:bob", *words.split()).exit_code == status


@pytest.mark.rule("CT-137", "CM-206")
def test_the_command_that_it_proposes_changes_exactly_what_decided(entries: FakeCluster) -> None:
    """Run what is proposed until it is allowed: of a denial by a prefix for everyone, its removal, and nothing else."""
    denials = [
        Acl(ResourceType.TOPIC, "or", PatternType.PREFIXED, "User:*", "*", Operation.ALL, Permission.DENY),
        Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:bob", "*", Operation.READ, Permission.DENY),
    ]
    entries.add_topic("orders", 1)
    turn_on(entries)
    before = frozenset(entries.acls)
    entries.acls |= set(denials)
    words = ("acls", "explain", "--principal", "User:bob", "--operation", "Read", "--topic", "orders")
    proposed: list[list[str]] = []
    while (said := sharegroups(*words)).exit_code != 0:
        assert len(proposed) < 4, said.output
        (line,) = said.stderr.splitlines()
        proposed.append(shlex.split(line.partition(": sharegroups ")[2]))
        assert sharegroups(*proposed[-1], *(["--yes"] if proposed[-1][1] == "remove" else [])).exit_code == 0
    assert [words[:2] for words in proposed] == [["acls", "remove"]] * 2 + [["acls", "add"]]
    added = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:bob", "*", Operation.READ, Permission.ALLOW)
    assert entries.acls == before | {added}


@pytest.mark.rule("CT-137")
def test_an_error_has_another_status_than_a_denial(entries: FakeCluster) -> None:
    entries.errors["describe_acls"].append(ClusterAuthorizationFailedError.code)
    words = ("acls", "explain", "--principal", "User:bob", "--operation", "Write", "--topic", "orders")
    assert sharegroups(*words).exit_code == 2


@pytest.mark.rule("CT-137")
def test_while_access_control_is_off_it_says_that_entries_have_no_effect(entries: FakeCluster) -> None:
    turn_on(entries, enabled=False)
    said = explain("--topic", "t")
    assert said.stdout == "Denied: User:bob from any host: WRITE on TOPIC 't'. No entry allows it.\n"
    assert said.stderr == (
        "Note: access.control.enable is false: entries have no effect, and every caller may do everything, until it is "
        "turned on.\n"
        "To allow it: sharegroups acls add --allow-principal User:bob --operation Write --topic t\n"
    )
    assert json.loads(explain("--topic", "t", "--output", "json").stdout)["access_control"] is False


@pytest.mark.rule("CT-137")
def test_without_the_nodes_settings_it_says_that_super_users_are_not_known(entries: FakeCluster) -> None:
    entries.errors["describe_configs"].extend([ClusterAuthorizationFailedError.code] * 2)
    said = explain("--topic", "orders", "--host", "::1")
    assert said.stdout.startswith("Allowed: User:bob from ::1: WRITE on TOPIC 'orders'. By the entry ALLOW User:bob")
    assert said.stderr == (
        "Note: the super users are not known (CLUSTER_AUTHORIZATION_FAILED: Not authorised for the cluster), and "
        "neither is whether access control is on there.\n"
    )
    found = json.loads(explain("--topic", "orders", "--output", "json").stdout)
    assert (found["access_control"], found["super_users_known"]) == (None, False)


@pytest.mark.rule("CT-137")
def test_an_answer_that_is_another_one_for_some_addresses_is_noted(entries: FakeCluster) -> None:
    assert (
        explain("--topic", "orders").stderr == "Note: WRITE on 'orders' is denied from 10.0.0.1; --host says by what.\n"
    )
    assert "Note: " not in explain("--topic", "t").stderr, "it is denied from everywhere"
    entries.acls |= {READ._replace(host=f"10.0.1.{n}", operation=Operation.WRITE, principal="User:c") for n in range(7)}
    said = explain("--topic", "orders", principal="User:c").stderr
    assert said.startswith(
        "Note: WRITE on 'orders' is allowed from 10.0.1.0, 10.0.1.1, 10.0.1.2, 10.0.1.3, 10.0.1.4, …;"
    )


@pytest.mark.rule("CT-137")
def test_nodes_that_differ_are_named(entries: FakeCluster) -> None:
    entries.nodes = [0, 1, 2]
    turn_on(entries, "User:root; User:c", 1, enabled=False)
    turn_on(entries, "User:root", 2)
    off = (
        "Note: access.control.enable is false on node 1: entries have no effect there, and every caller may do "
        "everything, until it is turned on.\n"
    )
    said = explain("--topic", "t", principal="User:root")
    assert said.stdout.endswith("A super user may do everything.\n")
    assert said.stderr == off
    said = explain("--topic", "t", principal="User:c")
    assert said.stdout.endswith("No entry allows it.\n")
    assert said.stderr.startswith(
        off + "Note: User:c is in super.users of node 1 alone, where it may do everything.\nTo allow it: "
    )
    assert json.loads(explain("--topic", "t", "--output", "json").stdout)["access_control"] is None


@pytest.mark.rule("CT-137")
def test_a_node_whose_settings_cannot_be_read_hides_no_other(entries: FakeCluster) -> None:
    entries.nodes = [0, 1]
    turn_on(entries, "User:root", 1)
    entries.errors["describe_configs"].append(ClusterAuthorizationFailedError.code)
    said = explain("--topic", "t", principal="User:root")
    assert said.stdout.endswith("A super user may do everything.\n")
    assert said.stderr.startswith("Note: the super users of node 0 are not known (CLUSTER_AUTHORIZATION_FAILED: ")


@pytest.mark.rule("CT-137")
def test_a_node_without_the_settings_has_no_access_control(
    entries: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharegroups.cli.acls.node_settings._ENABLED", "a.setting.of.a.later.version")
    assert "access.control.enable is false" in explain("--topic", "t").stderr


@pytest.mark.rule("CT-171")
def test_the_command_that_it_proposes_has_the_callers_own_file_and_works(fake: FakeCluster, tmp_path: Path) -> None:
    turn_on(fake)
    file = tmp_path / "my admin.properties"
    file.write_text("client.id=administrator\n")
    fake.add_topic("orders", 1)
    denied = explain("--topic", "orders", "--command-config", str(file))
    (line,) = denied.stderr.splitlines()
    assert line.endswith(f"--topic orders --command-config {shlex.quote(str(file))}")
    assert sharegroups(*shlex.split(line.removeprefix("To allow it: sharegroups "))).exit_code == 0
    assert explain("--topic", "orders").exit_code == 0
