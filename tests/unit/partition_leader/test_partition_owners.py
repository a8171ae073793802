"""Owners of topic-partitions count the requests refused while they do not lead (CM-12), and suspect a log without a
history (CM-47)."""

import pytest
from structlog.testing import capture_logs

from kip932.errors import NotLeaderOrFollowerError
from partition_leader.partition_owners import topic_shard
from tests.unit.partition_leader.share_partition.worlds import TOPIC, World, part, run


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


@pytest.mark.rule("CM-47")
def test_a_topic_older_than_the_stores_history_whose_log_has_no_owner_record_may_have_lost_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        world.facts.topics[TOPIC] = 9
        present = world.record_log.history
        for number, under, end in ((7, present, 0), (8, "the one before a fail-over", 1_000_000)):
            monkeypatch.setattr(world.facts, "created_under", lambda topic_id, under=under: under)
            with capture_logs() as lines:
                await world.lead(number)
            reported = [line["log_level"] for line in lines if line["event"].startswith("log_end_jumped")]
            assert (world.log(number).high_watermark, reported) == (end, ["error"] if end else [])
            assert world.registry.get_sample_value("sharegroups_topic_log_end_jumps_total") == bool(end)
        assert await world.produce(1, 8) == 1_000_000

    run(scenario)
