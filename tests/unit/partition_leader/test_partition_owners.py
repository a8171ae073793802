"""Owners of topic-partitions count who is turned away meanwhile (CM-12)."""

import pytest

from kip932.errors import NotLeaderOrFollowerError
from partition_leader.partition_owners import topic_shard
from tests.unit.partition_leader.share.worlds import World, part, run


@pytest.mark.rule("CM-12")
def test_requests_for_a_partition_that_is_not_led_are_its_owners_demand_until_it_is() -> None:
    async def scenario(world: World) -> None:
        owner = world.leader.owner(topic_shard(part()))
        assert owner.demand == 0
        world.lose()
        for _ in range(3):
            with pytest.raises(NotLeaderOrFollowerError):
                world.leader.led.lead(part())
        assert owner.demand == 3
        await world.lead()
        assert owner.demand == 0

    run(scenario)
