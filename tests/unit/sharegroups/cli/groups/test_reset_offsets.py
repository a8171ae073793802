"""`sharegroups groups reset-offsets`: what it prints and sets, and that a refusal sets nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

RESET = ("groups", "reset-offsets", "--group", "g")


def altered(fake: FakeCluster) -> list[dict[tuple[str, int], int]]:
    """The offsets in each AlterShareGroupOffsets request."""
    return [
        {
            (topic.topic_name, part.partition_index): part.start_offset
            for topic in request.topics.values
            for part in topic.partitions
        }
        for request in fake.alterations
    ]


@pytest.fixture
def world(fake: FakeCluster) -> FakeCluster:
    """Group `g` has finished 2 of 5 records in both partitions of `t`; `other` has 3 records and no group."""
    for number in (0, 1):
        produce(fake, 5, partition=number)
        consumed(fake, "t", number, 2)
    fake.add_topic("other")
    produce(fake, 3, "other")
    fake.add_topic("empty")
    return fake


@pytest.mark.rule("CT-6", "CT-7", "CT-11", "CT-12", "CT-13", "CT-23g", "CT-24", "CT-25", "CT-29")
def test_the_transcript(world: FakeCluster, tmp_path: Path) -> None:
    plan, groups, wrong = tmp_path / "plan.csv", tmp_path / "groups.csv", tmp_path / "wrong.csv"
    plan.write_text("t,0,1\nt,1,9\n")
    groups.write_text("g,t,0,1\nh,t,1,2\n")
    wrong.write_text("t,0,1\nt,one,1\n")
    world.add_member("m1", "busy")
    reset = "groups reset-offsets --group g"
    check(
        "groups-reset-offsets",
        [
            f"{reset} --to-earliest --topic t --dry-run",
            f"{reset} --to-current --all-topics --dry-run",
            f"{reset} --to-current --topic other --dry-run",
            f"{reset} --to-latest --topic t:1 --topic other --execute",
            f"{reset} --to-offset 4 --topic t:0 --topic other --execute --output json",
            f"{reset} --to-datetime 1970-01-01T00:00:01.000 --topic t --dry-run",
            f"{reset} --to-datetime 2030-01-01T00:00:00.000+02:00 --topic t:0 --topic empty --dry-run",
            f"{reset} --from-file {plan} --execute",
            f"{reset} --from-file {groups} --dry-run --export",
            f"{reset} --from-file {wrong} --execute",
            f"groups reset-offsets --group k --from-file {groups} --execute",
            f"{reset} --to-earliest --topic tt --topic t --execute",
            f"{reset} --to-earliest --topic t:0,7 --execute",
            "groups reset-offsets --group gg --to-earliest --topic t --execute",
            "groups reset-offsets --group gg --to-earliest --all-topics --execute --create",
            "groups reset-offsets --group gg --to-earliest --topic t:0 --execute --create",
            "groups reset-offsets --group busy --to-earliest --topic t --dry-run",
            f"{reset} --to-earliest --topic t",
            f"{reset} --to-datetime 2020-01-01T00:00:00 --topic t --execute",
        ],
        [(f"{tmp_path}/", "")],
    )


@pytest.mark.scenario("S-104")
@pytest.mark.rule("CT-24")
def test_one_call_sets_all_partitions(world: FakeCluster) -> None:
    assert sharegroups(*RESET, "--to-latest", "--topic", "t", "--topic", "other", "--execute").exit_code == 0
    assert sharegroups(*RESET, "--to-earliest", "--all-topics", "--execute").exit_code == 0
    assert altered(world) == [
        {("t", 0): 5, ("t", 1): 5, ("other", 0): 3},
        {("t", 0): 0, ("t", 1): 0, ("other", 0): 0},
    ]


@pytest.mark.scenario("S-105")
@pytest.mark.rule("CT-11", "CT-24")
@pytest.mark.parametrize("group", ["g", "new"])
def test_a_dry_run_sets_nothing_and_makes_no_group(world: FakeCluster, group: str) -> None:
    words = ("--to-offset", "3", "--topic", "t:0", "--dry-run", "--create")
    result = sharegroups("groups", "reset-offsets", "--group", group, *words)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].split() == [group, "t", "0", "3"]
    assert (altered(world), list(world.groups)) == ([], ["g"])


@pytest.mark.rule("CT-24")
def test_a_typo_makes_no_group(world: FakeCluster) -> None:
    words = ("--to-earliest", "--topic", "t", "--execute")
    result = sharegroups("groups", "reset-offsets", "--group", "gg", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Group gg not found. Did you mean 'g'?")
    assert "--create" in result.stderr
    assert list(world.groups) == ["g"]
    assert sharegroups("groups", "reset-offsets", "--group", "gg", *words, "--create").exit_code == 0
    assert list(world.groups) == ["g", "gg"]


@pytest.mark.rule("CT-24")
@pytest.mark.parametrize("scope", [("--topic", "t"), ("--topic", "t:1"), ("--all-topics",)])
@pytest.mark.parametrize("target", ["--to-earliest", "--to-current"])
def test_a_partition_without_a_leader_is_named_and_nothing_is_set(
    world: FakeCluster, scope: tuple[str, ...], target: str
) -> None:
    world.leaders[TopicIdPartition(world.topics["t"][0], 1)] = (-1, 1)
    result = sharegroups(*RESET, target, *scope, "--execute")
    assert (result.exit_code, result.stdout) == (1, "")
    assert 'Error: The partitions "t-1" have no leader. Nothing was set.' in result.stderr
    assert altered(world) == []


@pytest.mark.rule("CT-24")
def test_a_leader_that_does_not_return_its_log_is_named_and_nothing_is_set(world: FakeCluster) -> None:
    world.errors["list_offsets"].append(6)
    result = sharegroups(*RESET, "--to-latest", "--topic", "t", "--execute")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Offsets of the log are not known for t-0: NOT_LEADER_OR_FOLLOWER" in result.stderr
    assert altered(world) == []


@pytest.mark.rule("CT-24", "CT-29")
def test_members_that_come_meanwhile_are_reported_as_those_before(world: FakeCluster) -> None:
    world.errors["alter_offsets"].append(68)
    result = sharegroups(*RESET, "--to-latest", "--topic", "t", "--execute")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Share group 'g' is not empty.")


@pytest.mark.rule("CL-46")
def test_another_change_of_the_group_is_waited_for(world: FakeCluster) -> None:
    world.errors["alter_offsets"].extend([14, 14])
    assert sharegroups(*RESET, "--to-latest", "--topic", "t", "--execute").exit_code == 0


@pytest.mark.rule("CT-13", "CT-25")
def test_what_is_exported_can_be_set_again(world: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    exported = sharegroups(*RESET, "--to-current", "--all-topics", "--dry-run", "--export").stdout
    assert exported == "t,0,2\nt,1,2\n"
    file.write_text(exported)
    assert sharegroups(*RESET, "--to-latest", "--all-topics", "--execute").exit_code == 0
    assert sharegroups(*RESET, "--from-file", str(file), "--execute").exit_code == 0
    assert altered(world)[-1] == {("t", 0): 2, ("t", 1): 2}
