"""`sharegroups groups delete`: the groups deleted, and the messages about those that are not."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kip932.errors import InQuarantineError
from sharegroups.admin import Admin
from sharegroups.admin_values import GroupListing, ListGroupsResult
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check


@pytest.mark.rule("CT-26", "CT-29")
def test_the_transcript(fake: FakeCluster) -> None:
    produce(fake, 5)
    consumed(fake, "t", 0, 2)
    fake.groups |= dict.fromkeys(("a", "b", "orders-workers"))
    fake.add_member("m1", "busy")
    check(
        "groups-delete",
        [
            "groups delete --group a --group b --group a",
            "groups delete --group g --group busy --group orders-worker",
            "groups delete --all-groups --output json",
            "groups list",
            "groups delete --group busy",
            "groups delete",
            "groups delete --group a --all-groups",
            "groups delete --group a --topic t",
        ],
    )


@pytest.mark.scenario("S-103")
@pytest.mark.rule("CT-26")
def test_what_the_coordinator_refuses_is_reported_beside_what_was_deleted(fake: FakeCluster) -> None:
    fake.groups |= {"a": None}
    fake.errors["delete_groups"].append(0)
    fake.errors["delete_groups"].append(-1)
    result = sharegroups("groups", "delete", "--group", "a", "--group", "g")
    assert result.exit_code == 1
    assert result.stdout == "These share groups were deleted successfully: 'a'\n"
    first, second = result.stderr.splitlines()
    assert first == "Error: Deletion of some share groups failed:"
    assert second.startswith("* Group 'g' could not be deleted due to: UNKNOWN_SERVER_ERROR")
    assert list(fake.groups) == ["g"]


@pytest.mark.scenario("S-103")
@pytest.mark.rule("CT-26")
def test_what_cannot_be_deleted_is_not_asked_for(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ListGroupsResult([
        GroupListing("c", "Stable", "share"),
        GroupListing("d", "Empty", "consumer"),
        GroupListing("e", "Dead", "share"),
        GroupListing("f", "Unknown", "share"),
    ])  # fmt: skip
    monkeypatch.setattr(Admin, "list_groups", lambda *_: listed)
    damaged = InQuarantineError("what is stored of group f is in quarantine")
    monkeypatch.setattr(Admin, "delete_share_groups", lambda _, names: {"f": damaged} if names == ["f"] else None)
    result = sharegroups("groups", "delete", "--group", "d", "--group", "c", "--group", "e", "--group", "f")
    assert (result.exit_code, result.stdout) == (1, "")
    first, c, d, e, f = result.stderr.splitlines()
    assert first == "Error: Deletion of some share groups failed:"
    assert c.startswith("* Group 'c' could not be deleted due to: Share group 'c' is not EMPTY. ")
    assert d == "* Group 'd' could not be deleted due to: Group 'd' is not a share group."
    assert e == "* Group 'e' could not be deleted due to: Share group 'e' is being deleted already."
    assert f.endswith("due to: COORDINATOR_NOT_AVAILABLE: what is stored of group f is in quarantine")


@pytest.mark.rule("CT-26", "CT-21")
def test_of_a_list_that_is_not_complete_no_group_is_called_unknown(fake: FakeCluster) -> None:
    fake.unserved = {3: 16}
    short = ("--timeout", "300")
    fake.errors["delete_groups"].append(68)
    result = sharegroups("groups", "delete", "--group", "away", *short)
    assert "Group 'away' could not be deleted due to: NON_EMPTY_GROUP" in result.stderr, "its coordinator was asked"
    result = sharegroups("groups", "delete", "--group", "away", "--group", "g", *short)
    assert result.exit_code == 1
    assert result.stdout == "These share groups were deleted successfully: 'g'\n"
    assert result.stderr.splitlines() == [
        "Error: Deletion of some share groups failed:",
        "* Group 'away' could not be deleted due to: Group away not found. All groups: sharegroups groups list",
    ]
    fake.groups["h"] = None
    every = sharegroups("groups", "delete", "--all-groups", *short)
    assert (every.exit_code, every.stdout) == (1, "Deletion of requested share groups ('h') was successful.\n")
    incomplete = "Error: The list of groups is not complete. No node serves shard 3 of the group log"
    assert every.stderr.startswith(incomplete)
    none = sharegroups("groups", "delete", "--all-groups", *short)
    assert (none.exit_code, none.stdout) == (1, "")
    first, second = none.stderr.splitlines()
    assert first.startswith(incomplete)
    assert second == "Nothing was deleted."


@pytest.mark.rule("CT-26")
def test_that_no_group_is_there_is_said(fake: FakeCluster) -> None:
    fake.groups.clear()
    result = sharegroups("groups", "delete", "--all-groups")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "There is no share group; nothing was deleted.\n"


@pytest.mark.rule("CL-46")
def test_another_change_of_the_group_is_waited_for_within_the_timeout(fake: FakeCluster) -> None:
    fake.errors["delete_groups"].extend([14, 14])
    assert sharegroups("groups", "delete", "--group", "g").exit_code == 0
    fake.groups |= {"g": None}
    fake.errors["delete_groups"].extend([14] * 100)
    result = sharegroups("groups", "delete", "--group", "g", "--timeout", "300")
    assert result.exit_code == 1
    assert "has refused for 0.3 s" in result.stderr


@pytest.mark.scenario("S-103")
@pytest.mark.rule("CT-16")
@pytest.mark.parametrize("words", [(), ("--group", "g", "--all-groups")])
def test_what_is_to_be_deleted_is_said_once(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["groups", "delete", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Option [delete] takes the options [group] or [all-groups]" in result.stderr


@pytest.mark.rule("CT-16")
@pytest.mark.parametrize("word", ["--topic", "--all-topics"])
def test_a_deletion_of_groups_takes_no_topics(word: str) -> None:
    assert f"No such option '{word}'" in CliRunner().invoke(main, ["groups", "delete", "--group", "g", word]).stderr
    kafkas = CliRunner().invoke(main, ["groups", "--delete", "--group", "g", word])
    assert kafkas.exit_code == 1
    assert f'Option "[{word[2:]}]" can\'t be used with option "[delete]"' in kafkas.stderr
