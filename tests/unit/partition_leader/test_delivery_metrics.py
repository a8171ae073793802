"""A leader's delivery metrics, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import re

import pytest

from kip932.errors import CoordinatorNotAvailableError
from kip932.ids import topic_id_text
from partition_leader.fetch.core.fetch_policy import FetchLimits
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_partition.core.status import PartitionMetrics
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, Member, World, code, part, run, settle

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
OTHER = bytes(15) + b"\x09"


async def holding(world: World, records: int, connection: int | None = None) -> Member:
    await world.produce(records)
    member = world.member(connection=connection)
    assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, records - 1, 1)]
    return member


def acknowledged(world: World) -> dict[str, float | None]:
    name = "sharegroups_record_acknowledgements_total"
    kinds = ("accept", "release", "reject", "renew")
    return {kind: world.registry.get_sample_value(name, {"ack_type": kind}) for kind in kinds}


def requests(world: World, what: str, topic: str = "t") -> tuple[float | None, float | None]:
    """Return a topic's (total, failed) requests."""
    total, failed = (
        world.registry.get_sample_value(f"sharegroups_topic_{kind}share_{what}_requests_total", {"topic": topic})
        for kind in ("", "failed_")
    )
    return total, failed


@pytest.mark.rule("PL-413", "PL-1004")
def test_records_are_counted_by_type_when_their_acknowledgement_takes_effect() -> None:
    async def scenario(world: World) -> None:
        assert acknowledged(world) == dict.fromkeys(("accept", "release", "reject", "renew"), 0)
        member = await holding(world, 10)
        world.persister.hold("write")
        pending = member.acknowledge(
            {0: [AckBatch(0, 3, (ACCEPT,)), AckBatch(4, 6, bytes([RELEASE, REJECT, 0])), AckBatch(7, 9, (RENEW,))]},
            is_renew_ack=True,
        )
        await settle()
        assert sum(number or 0 for number in acknowledged(world).values()) == 0, "nothing is durable yet"
        world.persister.let_go("write")
        assert await pending.ack_error() is None
        assert acknowledged(world) == {"accept": 4, "release": 1, "reject": 1, "renew": 3}, "the gap is not counted"
        renewal = member.acknowledge({0: [AckBatch(7, 9, (RENEW,))]}, is_renew_ack=True)
        assert await renewal.ack_error() is None
        assert acknowledged(world)["renew"] == 6, "no write backs it"
        assert await member.accept(0, 3).ack_error() is None
        assert acknowledged(world)["accept"] == 4, "a duplicate is not counted again"
        assert code(await member.accept(0, 4).ack_error()) == "INVALID_RECORD_STATE"
        world.persister.fail("write", CoordinatorNotAvailableError())
        assert await member.accept(7, 9).ack_error() is not None
        assert acknowledged(world)["accept"] == 4

    run(scenario)


@pytest.mark.rule("PL-413", "PL-411")
def test_a_renewal_that_the_lapsed_lease_refuses_is_not_counted() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world, 4)
        await world.produce(1, 1)
        assert await member.fetch(1).ranges(1) == [(0, 0, 1)]
        world.persister.hold("write")
        both = member.acknowledge({0: [AckBatch(0, 3, (RENEW,))], 1: [AckBatch(0, 0, (ACCEPT,))]}, is_renew_ack=True)
        await settle()
        world.lapse()
        world.persister.let_go("write")
        assert code(await both.ack_error(0)) == "NOT_LEADER_OR_FOLLOWER"
        assert acknowledged(world) == {"accept": 1, "release": 0, "reject": 0, "renew": 0}
        world.renewed()

    run(scenario)


@pytest.mark.rule("PL-1004")
def test_requests_are_counted_once_for_each_topic_and_those_that_failed_there_apart() -> None:
    async def scenario(world: World) -> None:
        assert requests(world, "fetch") == (None, None), "a topic's series begin with its first request"
        member = await holding(world, 4)
        await world.produce(4, 1)
        await member.fetch(1, 2, max_wait_ms=100).answer()
        assert requests(world, "fetch") == (2, 0), "three partitions, one request"
        assert requests(world, "acknowledgement") == (None, None)
        assert await member.accept(0, 3).ack_error() is None
        assert requests(world, "acknowledgement") == (1, 0)
        assert code(await member.accept(90, 99).ack_error()) == "INVALID_RECORD_STATE"
        assert requests(world, "acknowledgement") == (2, 1)
        await world.produce(1)
        await member.fetch(max_wait_ms=100, acks={1: [AckBatch(0, 3, (ACCEPT,))]}).answer()
        assert requests(world, "acknowledgement") == (3, 1)
        assert requests(world, "fetch") == (3, 0)
        world.lose(3)
        await member.fetch(3, max_wait_ms=100).answer()
        assert requests(world, "fetch") == (4, 1)
        refused = await member.fetch(epoch=77).answer()
        assert refused.error is not None
        assert requests(world, "fetch") == (4, 1), "a refused request is not counted for any topic"

    run(scenario)


@pytest.mark.rule("PL-1004")
def test_series_of_topics_are_those_of_the_cluster_whatever_clients_name() -> None:
    async def scenario(world: World) -> None:
        async def fetch(topic_id: bytes) -> None:
            limits = FetchLimits(0, 1, 1 << 20, 500)
            answer = await world.member()._send((part(0, topic_id),), limits, {}).answer()
            assert answer.error is None

        def topics() -> set[str]:
            families = [family for family in world.registry.collect() if re.search("_topic_.*_requests", family.name)]
            return {sample.labels["topic"] for family in families for sample in family.samples}

        for number in range(20):
            await fetch(bytes(14) + bytes([1, number]))
        assert requests(world, "fetch", "") == (20, 20)
        assert topics() == {""}
        world.facts.topics[OTHER], world.facts.names[OTHER] = 1, "other"
        await fetch(OTHER)
        assert requests(world, "fetch", "other") == (1, 1), "it is led elsewhere"
        del world.facts.topics[OTHER], world.facts.names[OTHER]
        world.leader.topics_changed(frozenset([OTHER]))
        assert topics() == {""}
        assert requests(world, "fetch", "") == (20, 20)
        await fetch(OTHER)
        assert requests(world, "fetch", "") == (21, 21)

    run(scenario)


@pytest.mark.rule("PL-303", "PL-130", "PL-1004")
def test_a_share_partition_shows_what_is_in_flight_and_how_many_locks_ran_out() -> None:
    async def scenario(world: World) -> None:
        names = {"group": GROUP, "topic_id": topic_id_text(TOPIC), "partition": "0"}

        def shown() -> PartitionMetrics:
            metrics = (
                "in_flight_messages",
                "in_flight_batches",
                "acquisition_lock_timeouts_total",
                "deliveries_taken_back_total",
                "deliveries_not_taken_back_total",
            )
            found = [world.registry.get_sample_value(f"sharegroups_share_partition_{name}", names) for name in metrics]
            return PartitionMetrics(*[-1 if number is None else int(number) for number in found])

        assert shown() == (-1,) * 5
        await world.produce(3)
        await world.produce(2)
        member = world.member()
        assert await member.fetch(0, batch_size=1).ranges() == [(0, 2, 1), (3, 4, 1)]
        assert shown() == (5, 2, 0, 0, 0)
        assert await member.accept(0, 1).ack_error() is None
        await asyncio.sleep(31)
        assert shown() == (3, 2, 3, 0, 0)
        world.lose()
        assert shown() == (-1,) * 5

    run(scenario)


@pytest.mark.rule("PL-522", "PL-1004")
def test_sessions_that_a_lost_connection_ends_are_counted() -> None:
    async def scenario(world: World) -> None:
        name = "sharegroups_share_session_evictions_total"
        connection = world.leader.requests.connection_made()
        await holding(world, 2, connection)
        assert world.registry.get_sample_value(name) == 0
        world.leader.requests.connection_lost(connection)
        assert world.registry.get_sample_value(name) == 1

    run(scenario)


@pytest.mark.rule("PL-1005")
def test_the_time_of_a_load_is_observed_once_whether_it_succeeds_or_fails() -> None:
    async def scenario(world: World) -> None:
        def observed(what: str) -> float | None:
            return world.registry.get_sample_value(f"sharegroups_share_partition_load_time_seconds_{what}")

        world.persister.hold("read")
        await world.produce(1)
        pending = world.member().fetch(0, max_wait_ms=5_000)
        await asyncio.sleep(0.25)
        assert observed("count") == 0
        world.persister.let_go("read")
        assert await pending.ranges() == [(0, 0, 1)]
        assert (observed("count"), observed("sum")) == (1, 0.25)
        world.persister.fail("read", CoordinatorNotAvailableError())
        assert await world.member("n").fetch(1, max_wait_ms=500).error(1) is not None
        assert observed("count") == 2

    run(scenario)
