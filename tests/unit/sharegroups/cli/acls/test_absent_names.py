"""`acls add` and `acls explain` about a topic or a group that does not exist."""

from __future__ import annotations

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.unit.sharegroups.cli.conftest import sharegroups

from .conftest import turn_on

TYPO = "Note: topic 'ordres' does not exist (yet). Did you mean 'orders'?"
NEW = "Note: group 'mailers' does not exist (yet)."


@pytest.mark.rule("CT-171")
@pytest.mark.parametrize(
    ("words", "notes"),
    [
        (("--topic", "ordres", "--group", "mailers"), [TYPO, NEW]),
        (("--topic", "ordres", "--topic", "orders"), [TYPO]),
        (("--topic", "ordr", "--resource-pattern-type", "prefixed"), []),
        (("--topic", "*", "--transactional-id", "ordres"), []),
    ],
)
def test_add_names_what_does_not_exist_and_adds_it_all_the_same(
    fake: FakeCluster, words: tuple[str, ...], notes: list[str]
) -> None:
    turn_on(fake)
    fake.add_topic("orders", 1)
    result = sharegroups("acls", "add", "--allow-principal", "User:a", "--operation", "Describe", *words)
    assert (result.exit_code, result.stderr.splitlines()) == (0, notes)
    assert fake.acls


@pytest.mark.rule("CT-171")
def test_explain_names_what_does_not_exist_before_it_proposes_an_entry(fake: FakeCluster) -> None:
    turn_on(fake)
    fake.add_topic("orders", 1)
    words = ("acls", "explain", "--principal", "User:a", "--operation", "Read", "--operation", "Write")
    result = sharegroups(*words, "--topic", "ordres", "--topic", "orders")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == TYPO
    assert [line.partition(":")[0] for line in lines[1:]] == ["To allow it"] * 4


@pytest.mark.rule("CT-171")
def test_nothing_is_said_of_what_the_caller_may_not_see(fake: FakeCluster) -> None:
    turn_on(fake)
    fake.denied = {"DESCRIBE on topic 'ordres'", "DESCRIBE on group 'mailers'"}
    words = ("--topic", "ordres", "--group", "mailers", "--operation", "Read")
    result = sharegroups("acls", "add", "--allow-principal", "User:a", *words)
    assert (result.exit_code, result.stderr) == (0, "")
