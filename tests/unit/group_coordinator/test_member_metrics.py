"""The number of members of each group in the metrics."""

from __future__ import annotations

import pytest

from group_coordinator import member_metrics
from tests.support.group_cluster import GroupCluster, play


@pytest.mark.rule("PL-956")
def test_every_group_has_a_series_and_one_without_members_0() -> None:
    async def body(world: GroupCluster) -> None:
        await world.heartbeat("a", 0, ["foo"])
        await world.heartbeat("b", 0, ["foo"])
        await world.heartbeat("m", 0, ["foo"], "other")
        await world.heartbeat("m", -1, None, "other")
        value = world.registry.get_sample_value
        found = [value("sharegroups_share_group_members", {"group": group}) for group in ("grp", "other", "unknown")]
        assert found == [2, 0, None]
        assert value("sharegroups_share_group_members_left_out") == 0

    play(body)


@pytest.mark.rule("PL-956")
def test_beyond_the_bound_groups_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_metrics, "GROUPS_MAX", 2)

    async def body(world: GroupCluster) -> None:
        for number in range(5):
            await world.heartbeat("m", 0, ["foo"], f"g{number}")
        families = {family.name: family for family in world.registry.collect()}
        assert len(families["sharegroups_share_group_members"].samples) == 2
        assert families["sharegroups_share_group_members_left_out"].samples[0].value == 3

    play(body)
