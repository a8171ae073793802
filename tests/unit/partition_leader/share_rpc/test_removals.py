"""A leader that is notified of removed members (PL-528, PL-529)."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kip932.errors import InvalidRequestError
from kip932.internal.v1 import end_member_sessions_pb2 as pb
from partition_leader.sessions.core.session import Removed
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_partition.partitions import DEFERRED_SLICE
from partition_leader.share_rpc.removals import LOG_AFTER_S
from partition_leader.share_rpc.service_removals import REMOVALS_MAX
from shard_runtime.config.group_config import Backoff
from tests.unit.partition_leader.share_partition.test_stream import Stream
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, code, part, run, settle

EPOCH = 5


async def removed(world: World, *members: tuple[str, int], group: str = GROUP) -> None:
    """Notify the leader that members were removed, as their coordinator does."""
    request = pb.EndMemberSessionsRequest()
    for member_id, group_epoch in members:
        request.members.add(group_id=group, member_id=member_id, group_epoch=group_epoch)
    await world.leader.member_sessions.end_member_sessions(request, Stream().context)


def outcomes(world: World) -> dict[str, float]:
    found = world.registry.get_sample_value
    name = "sharegroups_share_session_removed_members_total"
    return {outcome: count for outcome in Removed if (count := found(name, {"outcome": outcome}))}


@pytest.mark.rule("PL-528")
def test_what_a_removed_member_holds_goes_to_the_others_at_once_and_the_log_says_so() -> None:
    async def scenario(world: World) -> None:
        world.configure(backoff=Backoff(5_000, 2.0, 60_000, 0.0))
        await world.produce(4)
        await world.produce(3, 1)
        frozen, other = world.member("frozen", connection=1), world.member("other")
        assert await frozen.fetch(0, 1, member_epoch=EPOCH).ranges() == [(0, 3, 1)]
        await frozen.fetch(forgotten=(part(1),), max_wait_ms=0, member_epoch=EPOCH).answer()
        parked = other.fetch(0, 1, max_wait_ms=60_000)
        await settle()
        assert not parked.done
        with capture_logs() as said:
            await removed(world, ("frozen", EPOCH + 1))
            await settle()
        answer = await parked.answer()
        assert sorted((one.partition.partition, *one.fetched.ranges) for one in answer.partitions if one.fetched) == [
            (0, (0, 3, 2)),
            (1, (0, 2, 2)),
        ], "no back-off, and what it forgot too"
        (line,) = [each for each in said if each["event"] == "removed_member_session_ended"]
        assert (line["group"], line["member"], line["records"], line["share_partitions"]) == (GROUP, "frozen", 7, 2)
        assert outcomes(world) == {"ended": 1}

    run(scenario)


@pytest.mark.rule("PL-528")
def test_of_more_share_partitions_than_one_turn_asks_the_log_line_has_all_that_was_released() -> None:
    async def scenario(world: World) -> None:
        many = DEFERRED_SLICE + 5
        world.facts.topics[TOPIC] = many
        await world.lead(*range(1, many))
        for number in (1, many - 1):
            await world.produce(3, number)
        frozen, other = world.member("frozen", connection=1), world.member("other")
        await other.fetch(0, max_wait_ms=0).answer()
        opened = frozen.fetch(*range(many), min_bytes=200, member_epoch=EPOCH)
        assert [await opened.ranges(number) for number in (1, many - 1)] == [[(0, 2, 1)], [(0, 2, 1)]]
        with capture_logs() as said:
            await removed(world, ("frozen", EPOCH + 1))
            await asyncio.sleep(LOG_AFTER_S / 2)
        (line,) = [each for each in said if each["event"] == "removed_member_session_ended"]
        assert (line["records"], line["share_partitions"]) == (6, 2)

    run(scenario)


@pytest.mark.rule("PL-528")
def test_a_share_partition_that_is_dropped_before_its_turn_does_not_keep_the_log_line_back() -> None:
    async def scenario(world: World) -> None:
        many = DEFERRED_SLICE + 5
        world.facts.topics[TOPIC] = many
        await world.lead(*range(1, many))
        await world.produce(3, 1)
        frozen, other = world.member("frozen", connection=1), world.member("other")
        await other.fetch(0, max_wait_ms=0).answer()
        assert await frozen.fetch(*range(many), min_bytes=200, member_epoch=EPOCH).ranges(1) == [(0, 2, 1)]
        with capture_logs() as said:
            await removed(world, ("frozen", EPOCH + 1))
            world.lose(many - 1)
            await asyncio.sleep(2 * LOG_AFTER_S)
        (line,) = [each for each in said if each["event"] == "removed_member_session_ended"]
        assert (line["records"], line["share_partitions"]) == (3, 1)

    run(scenario)


@pytest.mark.rule("PL-528")
def test_its_parked_fetch_ends_without_records_and_its_session_is_gone() -> None:
    async def scenario(world: World) -> None:
        frozen, other = world.member("frozen", connection=1), world.member("other")
        assert await other.fetch(0, max_wait_ms=0).ranges() == []
        await frozen.fetch(0, max_wait_ms=0, member_epoch=EPOCH).answer()
        parked = frozen.fetch(max_wait_ms=300_000, member_epoch=EPOCH)
        await settle()
        await removed(world, ("frozen", EPOCH + 1))
        error = (await parked.answer()).error
        assert code(error) == "INVALID_SHARE_SESSION_EPOCH"
        await world.produce(2)
        await settle()
        assert await other.fetch().ranges() == [(0, 1, 1)], "no other member has acquired them"
        for late in (frozen.fetch(max_wait_ms=0), frozen.accept(0, 0)):
            assert code((await late.answer()).error) == "SHARE_SESSION_NOT_FOUND"

    run(scenario)


@pytest.mark.rule("PL-528")
def test_a_fetch_amid_its_read_gives_back_what_it_acquired() -> None:
    async def scenario(world: World) -> None:
        await world.produce(3)
        frozen = world.member("frozen")
        assert await frozen.fetch(0, member_epoch=EPOCH).ranges() == [(0, 2, 1)]
        await world.produce(2)
        world.persister.hold("write")
        both = frozen.fetch(max_records=2, acks={0: [AckBatch(0, 2, (1,))]}, member_epoch=EPOCH)
        await settle()
        assert not both.done, "it has acquired 3 and 4, and waits for the write of its acknowledgement"
        await removed(world, ("frozen", EPOCH + 1))
        world.persister.let_go("write")
        assert code((await both.answer()).error) == "INVALID_SHARE_SESSION_EPOCH"
        await settle()
        assert await world.member("other").fetch(0).ranges() == [(3, 4, 2)], "what was acknowledged stays so"

    run(scenario)


@pytest.mark.rule("PL-528", "PL-529")
def test_a_member_that_has_joined_again_keeps_what_it_has_and_a_ghost_of_it_gets_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        member = world.member("m")
        assert await member.fetch(0, member_epoch=EPOCH).ranges() == [(0, 1, 1)]
        await removed(world, ("m", EPOCH + 1))
        await settle()
        ghost = world.member("m")
        assert code((await ghost.fetch(0, member_epoch=EPOCH).answer()).error) == "UNKNOWN_MEMBER_ID"
        again = world.member("m")
        assert await again.fetch(0, member_epoch=EPOCH + 2).ranges() == [(0, 1, 2)]
        await removed(world, ("m", EPOCH + 1), ("m", EPOCH + 1))
        assert await again.accept(0, 0).ack_error() is None
        assert code((await world.member("m").fetch(0, member_epoch=EPOCH).answer()).error) == "UNKNOWN_MEMBER_ID"
        assert await again.accept(1, 1).ack_error() is None
        assert outcomes(world) == {"ended": 1, "later_life": 2}

    run(scenario)


@pytest.mark.rule("PL-528")
def test_a_client_that_names_no_epoch_is_left_alone_and_so_is_a_leader_without_sessions() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        older = world.member("older")
        assert await older.fetch(0).ranges() == [(0, 0, 1)]
        with capture_logs() as said:
            await removed(world, ("older", 99), ("stranger", 99))
            await removed(world, ("older", 99), group="another")
        assert said == []
        assert await older.accept(0, 0).ack_error() is None
        assert outcomes(world) == {"no_epoch": 1, "no_session": 2}

    run(scenario)


@pytest.mark.rule("PL-528", "PL-523")
def test_the_last_session_of_a_group_takes_its_share_partitions_with_it() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        assert await world.member("m").fetch(0, member_epoch=EPOCH).ranges() == [(0, 0, 1)]
        await removed(world, ("m", EPOCH + 1))
        await asyncio.sleep(1)
        assert world.host() is None
        assert [state.delivery_state for state in world.persister.writes[-1].batches] == [0]

    run(scenario)


@pytest.mark.rule("PL-528")
def test_the_epoch_travels_with_every_fetch_of_a_stream_and_the_highest_counts() -> None:
    async def scenario(world: World) -> None:
        stream = Stream()
        served = asyncio.get_running_loop().create_task(world.leader.service.share_stream(stream))
        stream.fetch(1, 0, member_epoch=EPOCH, max_wait_ms=0)
        await settle()
        session_id = stream.answers[1].fetch.session_id
        stream.fetch(2, 1, session_id=session_id, member_epoch=EPOCH + 2, max_wait_ms=0)
        stream.fetch(3, 2, session_id=session_id, max_wait_ms=0)
        await settle()
        await removed(world, ("m", EPOCH + 2))
        assert outcomes(world) == {"later_life": 1}
        await removed(world, ("m", EPOCH + 3))
        assert outcomes(world) == {"later_life": 1, "ended": 1}
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)

    run(scenario)


@pytest.mark.rule("PL-528")
def test_a_call_with_more_removals_than_it_may_have_is_refused_whole() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidRequestError, match=f"at most {REMOVALS_MAX}"):
            await removed(world, *[(f"m{number}", 6) for number in range(REMOVALS_MAX + 1)])
        assert outcomes(world) == {}
        await removed(world, *[(f"m{number}", 6) for number in range(REMOVALS_MAX)])
        assert outcomes(world) == {"no_session": REMOVALS_MAX}

    run(scenario)
