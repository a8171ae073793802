"""ListShareProgress at a leader, over the real core and log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.acls import ResourceType
from kip932.api.v1.list_share_progress_pb2 import ListShareProgressRequest, ListShareProgressResponse
from kip932.errors import InvalidRequestError
from kip932.ids import CHANGED_TOPICS_MAX, PROGRESS_ROWS_MAX, REQUEST_GROUPS_MAX
from partition_leader.progress import service
from partition_leader.share_partition.core.events import AckBatch
from shard_runtime.rpc.binding import NO_CALLER
from tests.unit.partition_leader.share_partition.worlds import TOPIC, World, run

RELEASE, REJECT = 2, 3


async def listed(world: World, context: Any = NO_CALLER, **fields: Any) -> ListShareProgressResponse:
    answer = await world.leader.service.list_share_progress(ListShareProgressRequest(**fields), context)
    assert answer.error_code == 0, answer.error_message
    return answer


def lags(answer: ListShareProgressResponse) -> list[tuple[str, int, int | None]]:
    return [(row.group_id, row.partition_index, row.lag if row.HasField("lag") else None) for row in answer.rows]


@pytest.mark.rule("PL-951")
def test_the_message_has_every_figure() -> None:
    async def scenario(world: World) -> None:
        await world.produce(6)
        member = world.member("m")
        assert await member.fetch(0, max_wait_ms=100, max_records=6).ranges() == [(0, 5, 1)]
        assert await member.accept(0, 1).ack_error() is None
        assert (
            await member.acknowledge(
                {0: [AckBatch(2, 2, (REJECT,)), AckBatch(3, 3, (RELEASE,), (30_000,))]}
            ).ack_error()
            is None
        )
        await world.leader.progress.round()
        await world.produce(2)
        await asyncio.sleep(2)
        answer = await listed(world)
        (row,) = answer.rows
        assert answer.total == 1
        assert (row.group_id, row.topic_name, row.topic_id, row.partition_index) == ("g", "t", TOPIC, -1)
        assert (row.partitions, row.lag, row.in_flight, row.delayed, row.dead_letters) == (1, 5, 2, 1, 0)
        assert (row.finished, row.archived, row.arrived) == (3, 1, 8)
        assert (row.recent_finished, row.recent_arrived) == (0, 2)
        assert 2_000 <= row.recent_ms < 3_000
        assert row.oldest_ms >= 2_000
        assert row.since_finish_ms >= 2_000
        assert (row.longest_member, row.fetching) == ("m", 1)
        assert row.longest_held_ms >= 2_000

    run(scenario)


@pytest.mark.rule("PL-951")
def test_rows_of_topics_or_of_partitions_the_largest_lag_first() -> None:
    async def scenario(world: World) -> None:
        for number in range(3):
            await world.produce(number + 1, number)
            for group in ("a", "b"):
                member = world.member(f"{group}{number}", group)
                assert await member.fetch(number, max_wait_ms=100).ranges(number)
                if group == "b":
                    assert await member.accept(0, number, number).ack_error(number) is None
        assert lags(await listed(world)) == [("a", -1, 6), ("b", -1, 0)]
        by_partition = await listed(world, by_partition=True, limit=2, group_ids=["a", "unknown"])
        assert lags(by_partition) == [("a", 2, 3), ("a", 1, 2)]
        assert by_partition.total == 3
        assert lags(await listed(world, topic_names=["unknown"])) == []
        assert len((await listed(world, topic_names=["t"], by_partition=True)).rows) == 6

    run(scenario)


@pytest.mark.rule("PL-951")
def test_what_the_caller_may_not_describe_is_left_out() -> None:
    class Caller:
        def __init__(self, *denied: str) -> None:
            self.denied = denied

        def may(self, resource: ResourceType, name: str) -> bool:
            assert resource in {ResourceType.GROUP, ResourceType.TOPIC}
            return name not in self.denied

    async def scenario(world: World) -> None:
        await world.produce(1)
        for group in ("a", "b"):
            assert await world.member(group, group).fetch(0, max_wait_ms=100).ranges()
        found = await listed(world, Caller("a"))
        assert (lags(found), found.total) == ([("b", -1, 1)], 1)
        assert (await listed(world, Caller("t"))).total == 0
        world.facts.names.clear()
        assert (await listed(world)).total == 0, "a deleted topic has no name"

    run(scenario)


@pytest.mark.rule("PL-951", "CM-91")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"limit": PROGRESS_ROWS_MAX + 1}, "limit is 5001; expected 1 to 5000"),
        ({"limit": -1}, "limit is -1"),
        ({"group_ids": ["g"] * (REQUEST_GROUPS_MAX + 1)}, "groups were asked for"),
        ({"topic_names": ["t"] * (CHANGED_TOPICS_MAX + 1)}, "topics"),
    ],
)
def test_a_request_over_a_limit_is_refused_as_a_whole(fields: dict[str, Any], named: str) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidRequestError, match=named):
            await listed(world, **fields)

    run(scenario)


@pytest.mark.rule("PL-951")
def test_share_groups_may_be_switched_off() -> None:
    async def scenario(world: World) -> None:
        answer = await world.leader.service.list_share_progress(ListShareProgressRequest(), NO_CALLER)
        assert (answer.error_code, answer.error_message) == (35, "share groups are switched off here (share.version=0)")

    run(scenario, enabled=lambda: False)


@pytest.mark.rule("PL-951")
def test_many_rows_are_chosen_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_CHECKED", 2)

    async def scenario(world: World) -> None:
        await world.produce(3)
        for number in range(5):
            member = world.member("m", f"g{number}")
            assert await member.fetch(0, max_wait_ms=100).ranges()
            if number % 2:
                assert await member.accept(0, 0).ack_error() is None
        found = await listed(world, limit=3)
        assert (lags(found), found.total) == ([("g0", -1, 3), ("g2", -1, 3), ("g4", -1, 3)], 5)

    run(scenario)
