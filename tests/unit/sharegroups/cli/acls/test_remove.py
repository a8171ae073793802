"""`sharegroups acls remove`: shows what will be removed, asks, removes exactly that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kip932.acls import Operation
from kip932.errors import ClusterAuthorizationFailedError
from sharegroups.admin import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import DENIED, GROUP, READ, WRITE


def remove(*words: str, status: int = 0, stdin: str | None = None) -> Any:
    result = sharegroups("acls", "remove", *words, stdin=stdin)
    assert result.exit_code == status, result.output
    return result


@pytest.mark.rule("CT-137")
def test_the_transcript(entries: FakeCluster) -> None:
    check(
        "acls-remove",
        [
            "acls remove --topic orders",
            "acls remove --topic orders --output json",
            "acls remove --topic orders --allow-principal User:alice --force",
            "acls --remove --topic orders --resource-pattern-type match --force --output json",
            "acls remove --topic orders --force",
            "acls remove --topic orders --force --output json",
            "acls remove --principal User:alice --force",
            "acls remove --topic orders --operation Reed --force",
        ],
    )
    assert entries.acls == set()


@pytest.mark.rule("CT-137")
def test_one_that_names_nothing_is_refused_before_any_request(entries: FakeCluster) -> None:
    for words in ((), ("--operation", "Read"), ("--resource-pattern-type", "any")):
        said = remove(*words, "--force", status=1)
        assert "nothing says which entries; expected --topic, " in said.stderr
        assert "or --principal for all entries of a principal" in said.stderr
    assert entries.acl_requests == []


@pytest.mark.rule("CT-137")
def test_a_star_is_the_name_of_the_entries_for_all_and_it_says_so(entries: FakeCluster) -> None:
    note = "Note: --topic '*' means the entries that are written for all names, not those of every topic; leave out "
    assert note not in sharegroups("acls", "list", "--topic", "*").stderr
    for words in (("--topic", "*", "--resource-pattern-type", "any"), ("--topic", "*", "--principal", "User:x")):
        assert note in sharegroups("acls", "list", *words).stderr
    said = sharegroups("acls", "list", "--topic", "*", "--resource-pattern-type", "match")
    assert "match means what applies to a name, and '*' is none" in said.stderr
    said = remove("--topic", "*", "--resource-pattern-type", "any", "--force")
    assert note in said.stderr
    assert entries.acls == {READ, GROUP, WRITE}


@pytest.mark.rule("CT-137")
@pytest.mark.parametrize(("answer", "status", "left"), [("y\n", 0, {GROUP, DENIED}), ("n\n", 1, None), ("", 1, None)])
def test_it_asks(
    entries: FakeCluster, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, left: set[Any] | None
) -> None:
    monkeypatch.setattr("sharegroups.cli.acls.remove.can_ask", lambda: True)
    before = set(entries.acls)
    said = remove("--topic", "orders", status=status, stdin=answer)
    assert "User:bob" in said.stdout
    assert "Remove them?" in said.stderr
    assert entries.acls == (before if left is None else left)
    assert ("Removed 2 access control entries." in said.stdout) is (status == 0)


@pytest.mark.rule("CT-137")
def test_an_entry_that_is_added_while_a_person_thinks_stays(
    entries: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = READ._replace(operation=Operation.ALTER)

    def thinking(*_words: object, **_more: object) -> bool:
        entries.acls.add(late)
        return True

    monkeypatch.setattr("sharegroups.cli.acls.remove.can_ask", lambda: True)
    monkeypatch.setattr("sharegroups.cli.acls.remove.click.confirm", thinking)
    remove("--topic", "orders")
    assert entries.acls == {GROUP, DENIED, late}


@pytest.mark.rule("CT-137")
def test_each_failure_is_reported(entries: FakeCluster) -> None:
    entries.errors["delete_acls"].append(ClusterAuthorizationFailedError.code)
    said = remove("--topic", "orders", "--force", status=1)
    assert "Error: not removed: ALLOW User:alice from *: READ on TOPIC 'orders': CLUSTER_AUTH" in said.stderr
    assert said.stdout.endswith("Removed 1 access control entry.\n")
    assert entries.acls == {READ, GROUP, DENIED}
    entries.errors["delete_acls"].append(ClusterAuthorizationFailedError.code)
    said = remove("--topic", "orders", "--force", "--output", "json", status=1)
    assert [each["error"] for each in json.loads(said.stdout)] == ["CLUSTER_AUTHORIZATION_FAILED"]


@pytest.mark.rule("CT-137")
def test_many_are_removed_in_several_requests_and_what_was_removed_before_one_fails_is_reported(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {READ._replace(principal=f"User:{number}") for number in range(5)}
    fake.acls |= many
    monkeypatch.setattr("sharegroups.cli.acls.remove._AT_ONCE", 2)
    ask, asked = Admin.delete_acls, []

    def refused_at_last(admin: Admin, filters: Any) -> Any:
        asked.append(len(filters))
        if len(asked) == 3:
            raise ClusterAuthorizationFailedError
        return ask(admin, filters)

    monkeypatch.setattr(Admin, "delete_acls", refused_at_last)
    said = remove("--topic", "orders", "--force", status=1)
    assert (asked, len(fake.acls)) == ([2, 2, 1], 1)
    assert said.stdout.endswith("Removed 4 access control entries.\n")
    assert "Error: not removed: ALLOW User:4 from *" in said.stderr


@pytest.mark.rule("CT-137")
@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("--topic orders --operation Write", {READ, GROUP, DENIED}),
        ("--topic orders --allow-principal User:bob", {READ, GROUP, DENIED}),
        ("--topic orders --deny-principal User:bob", {READ, GROUP, DENIED, WRITE}),
        ("--principal User:bob", {READ, GROUP, DENIED}),
        ("--deny-principal User:*", {READ, GROUP, WRITE}),
        ("--deny-host 10.0.0.1", {READ, GROUP, WRITE}),
        ("--topic * --deny-host 10.0.0.1", {READ, GROUP, WRITE}),
        ("--topic orders --producer", {READ, GROUP, DENIED}),
        ("--topic orders --group work- --consumer --resource-pattern-type any", {DENIED, WRITE}),
    ],
)
def test_only_what_fits_is_removed(entries: FakeCluster, words: str, left: set[Any]) -> None:
    remove(*words.split(), "--yes", status=int(len(left) == 4))  # 1 where nothing fits
    assert entries.acls == left


@pytest.mark.rule("CT-171")
@pytest.mark.parametrize(("option", "name"), [("--principal", "User:alise"), ("--allow-principal", "User:alcie")])
def test_one_that_finds_nothing_is_an_error_with_the_most_similar_principal(
    entries: FakeCluster, option: str, name: str
) -> None:
    before = set(entries.acls)
    said = remove("--topic", "orders", option, name, "--force", status=1)
    wanted = "Error: there is no such entry. Did you mean 'User:alice'? All entries: sharegroups acls list\n"
    assert (said.stdout, said.stderr) == ("", wanted)
    said = remove("--topic", "other", option, "User:alice", "--force", "--output", "json", status=1)
    assert json.loads(said.stdout) == []
    assert said.stderr == "Error: there is no such entry. All entries: sharegroups acls list\n"
    assert entries.acls == before
