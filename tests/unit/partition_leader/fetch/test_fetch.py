"""Fetches: order, budgets, the acknowledgements that they carry, and the batches in their responses."""

from __future__ import annotations

import gc
import weakref

import pytest

from kip932.api.v1 import share_acknowledge_pb2 as ack_pb
from kip932.api.v1 import share_fetch_pb2 as fetch_pb
from kip932.errors import CoordinatorNotAvailableError, InvalidRequestError
from kip932.ids import ACKNOWLEDGED_RANGES_MAX
from partition_leader.fetch.fetch import ShareFetchOperation
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_rpc.codec import acknowledge_request, fetch_request
from tests.support.virtual_time import now_s
from tests.unit.partition_leader.share_partition.wire import ACCEPT, CONTEXT, Ack, name
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, key, part, run, settle


# Covers of CM-62 the bound on acknowledged ranges, which two partitions exceed together.
@pytest.mark.rule("CM-62")
@pytest.mark.parametrize("message", [fetch_pb.ShareFetchRequest(), ack_pb.ShareAcknowledgeRequest()])
def test_a_request_that_acknowledges_too_many_ranges_is_refused(
    message: fetch_pb.ShareFetchRequest | ack_pb.ShareAcknowledgeRequest,
) -> None:
    topic = message.topics.add(topic_id=TOPIC)
    for number in range(2):
        batches = topic.partitions.add(partition_index=number).acknowledgement_batches
        for offset in range(ACKNOWLEDGED_RANGES_MAX // 2):
            batches.add(first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT])

    def decoded() -> None:
        if isinstance(message, fetch_pb.ShareFetchRequest):
            fetch_request(message, None)
        else:
            acknowledge_request(message, None)

    decoded()
    batches.add(first_offset=ACKNOWLEDGED_RANGES_MAX, last_offset=ACKNOWLEDGED_RANGES_MAX, acknowledge_types=[ACCEPT])
    with pytest.raises(InvalidRequestError, match=f"acknowledges {ACKNOWLEDGED_RANGES_MAX + 1} ranges of offsets"):
        decoded()


async def started(world: World, name: str = "m", *, records: int = 0) -> tuple[object, object]:
    """Open a member's session on an active share-partition; return the member and the ranges that it acquired."""
    if records:
        await world.produce(records)
    member = world.member(name)
    ranges = await member.fetch(0, max_wait_ms=50).ranges()
    return member, ranges


@pytest.mark.rule("PL-420", "P-5")
def test_an_acknowledgement_does_not_wait_behind_the_parked_fetch_of_its_session() -> None:
    async def scenario(world: World) -> None:
        member, _ = await started(world, records=2)
        parked = member.fetch(max_wait_ms=5_000)  # type: ignore[attr-defined]
        acknowledged = member.accept(0, 1)  # type: ignore[attr-defined]
        await settle()
        assert acknowledged.done
        assert not parked.done
        assert await parked.ranges() == []

    run(scenario)


@pytest.mark.rule("PL-420")
def test_a_fetch_applies_its_acknowledgements_first_and_answers_both_as_one() -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=2)
        await world.produce(2)
        await world.produce(2)
        member, _ = await started(world)
        world.persister.hold("write")
        pending = member.fetch(acks={0: [AckBatch(0, 1, (1,))]}, max_wait_ms=5_000)  # type: ignore[attr-defined]
        await settle()
        assert not pending.done
        world.persister.let_go("write")
        await settle()
        assert await pending.ranges() == [(2, 3, 1)]
        assert await pending.ack_error() is None

    run(scenario)


@pytest.mark.rule("PL-425")
@pytest.mark.parametrize(
    ("hit", "expected", "came"),
    [
        pytest.param("no write succeeds", "COORDINATOR_NOT_AVAILABLE", [[], [], [(0, 1, 1)]], id="no write succeeds"),
        pytest.param("nothing is held", "UNKNOWN_TOPIC_OR_PARTITION", [[(0, 1, 1)]] * 3, id="nothing is held here"),
    ],
)
def test_an_error_of_all_acknowledgements_is_that_of_each_partition_that_had_some_and_records_come_beside_it(
    hit: str, expected: str, came: list[list[Ack]]
) -> None:
    async def scenario(world: World) -> None:
        await world.lead(0, 1, 2)
        for number in range(3):
            await world.produce(2, number)
        holder = world.member("m")
        opened = holder.fetch(0, 1, max_wait_ms=50) if hit == "no write succeeds" else holder.fetch(max_wait_ms=50)
        await opened.answer()
        for _ in range(2):
            world.persister.fail("write", CoordinatorNotAvailableError(), unknown=False)
        request = fetch_pb.ShareFetchRequest(
            group_id=GROUP,
            member_id="m",
            share_session_epoch=1,
            session_id=holder.session_id,
            max_wait_ms=1_000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
        )
        parts = request.topics.add(topic_id=TOPIC).partitions
        for number in range(3):
            asked = parts.add(partition_index=number)
            if number < 2:
                asked.acknowledgement_batches.add(first_offset=0, last_offset=1, acknowledge_types=[ACCEPT])
        answer = await world.leader.service.share_fetch(request, CONTEXT)
        assert name(answer.error_code) == "NONE"
        found = {one.partition_index: one for topic in answer.responses for one in topic.partitions}
        assert [name(found[number].acknowledge_error_code) for number in range(3)] == [expected, expected, "NONE"]
        assert [name(found[number].error_code) for number in range(3)] == ["NONE"] * 3
        assert [
            [(each.first_offset, each.last_offset, each.delivery_count) for each in found[number].acquired_records]
            for number in range(3)
        ] == came

    run(scenario)


@pytest.mark.rule("PL-204", "PL-507", "PL-511")
def test_the_partition_that_waited_longest_is_first_to_share_the_record_budget() -> None:
    async def scenario(world: World) -> None:
        for number in (0, 1):
            for _ in range(3):
                await world.produce(4, number)
        member = world.member()
        first = member.fetch(0, 1, max_records=4, mode=1)
        await settle()
        assert [len(await first.ranges(n)) for n in (0, 1)] == [1, 0]
        second = member.fetch(max_records=6, mode=1)
        assert (await second.ranges(0), await second.ranges(1)) == ([], [(0, 5, 1)])
        third = member.fetch(max_records=10, mode=1)
        assert (await third.ranges(0), await third.ranges(1)) == ([(4, 11, 1)], [(6, 7, 1)])

    run(scenario)


@pytest.mark.rule("PL-507")
def test_a_partition_that_is_named_and_forgotten_at_once_is_acknowledged_then_removed_and_not_fetched() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        await world.produce(2, 1)
        member = world.member()
        assert await member.fetch(0, 1, max_wait_ms=100).ranges(0) == [(0, 1, 1)]
        await world.produce(3)
        both = member.fetch(0, acks={0: [AckBatch(0, 1, (1,))]}, forgotten=(part(0),), max_wait_ms=100)
        assert await both.ack_error() is None
        assert world.persister.stored[key()].start == 2
        assert await both.ranges() == [], "records of it are there"
        assert await member.fetch(max_wait_ms=100).ranges() == [], "it is no longer in the session"
        assert await world.member("n").fetch(0, max_wait_ms=100).ranges() == [(2, 4, 1)], "and nothing of it is locked"

    run(scenario)


@pytest.mark.rule("PL-207")
def test_no_more_partitions_are_read_than_there_are_bytes() -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            await world.produce(1, number)
        answer = await world.member().fetch(0, 1, 2, 3, max_bytes=2).answer()
        with_records = [one.partition for one in answer.partitions if one.fetched and one.fetched.ranges]
        assert with_records == [part(0), part(1)]
        assert all(world.host(n).core.overview().fetch_lock is None for n in range(4))

    run(scenario)


@pytest.mark.rule("PL-201")
def test_a_fetch_for_nothing_is_answered_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        member = world.member()
        assert await member.fetch(0, max_records=0, max_wait_ms=9_000).ranges() == []
        assert await member.fetch(max_bytes=0, max_wait_ms=9_000).ranges() == []
        assert now_s() == 0

    run(scenario)


@pytest.mark.rule("PL-250", "PL-251", "P-7")
def test_the_answer_holds_the_whole_batches_that_cover_what_was_acquired() -> None:
    async def scenario(world: World) -> None:
        for _ in range(3):
            await world.produce(10)
        await started(world)
        member = world.member("n")
        world.host().release("m")
        await settle()
        pending = member.fetch(0, max_records=3, mode=1)
        assert await pending.ranges() == [(0, 2, 2)]
        fetched = (await pending.answer()).partitions[0].fetched
        assert fetched is not None
        assert [(one.base_offset, one.last_offset) for one in fetched.batches] == [(0, 9)]
        held = world.log().read_cached(0, 1, 1)
        assert held is not None
        assert fetched.batches[0].data is held.batches[0].data, "no copy is made"

    run(scenario)


@pytest.mark.rule("PL-252", "PL-620", "PL-610")
def test_a_log_start_found_by_reading_moves_the_share_partition_and_answers_empty() -> None:
    async def scenario(world: World) -> None:
        await world.produce(5)
        await world.produce(5)
        world.persister.first_offset = 2
        world.persister.hold("read")
        member = world.member()
        began = member.fetch(0, max_wait_ms=0)
        await world.log().move_log_start(5)
        world.persister.let_go("read")
        await settle()
        assert await began.ranges() == []
        assert world.host().core.start_offset == 5
        assert await member.fetch().ranges() == [(5, 9, 1)]

    run(scenario)


@pytest.mark.rule("PL-423")
@pytest.mark.parametrize("batch_size", [1, 0, -5])
def test_a_batch_size_below_one_counts_as_one(batch_size: int) -> None:
    async def scenario(world: World) -> None:
        for _ in range(3):
            await world.produce(2)
        member = world.member()
        await member.fetch(0, batch_size=batch_size).ranges()
        assert world.host().core.overview().batch_count == 3

    run(scenario)


def test_an_answered_fetch_leaves_no_cycle_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    fetches: list[weakref.ref[ShareFetchOperation]] = []
    start = ShareFetchOperation.start

    def noted(self: ShareFetchOperation) -> None:
        fetches.append(weakref.ref(self))
        start(self)

    async def scenario(world: World) -> None:
        member, _ = await started(world, records=2)
        parked = member.fetch(acks={0: [AckBatch(0, 1, (1,))]}, max_wait_ms=50)  # type: ignore[attr-defined]
        await parked.ranges()
        del member, parked
        assert [fetch() for fetch in fetches] == [None] * 2

    monkeypatch.setattr(ShareFetchOperation, "start", noted)
    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()


@pytest.mark.rule("PL-243")
def test_a_fetch_brings_what_has_failed_often_without_records_of_other_share_partitions() -> None:
    async def scenario(world: World) -> None:
        world.configure(delivery_count_limit=3)
        member = world.member()
        for number in (0, 1):
            await world.produce(2, number)
        for _ in range(2):
            pending = member.fetch(0, 1)
            assert [len(await pending.ranges(n)) for n in (0, 1)] == [1, 1]
            release = {n: [AckBatch(0, 1, (2,))] for n in (0, 1)}
            await member.acknowledge(release).answer()
        await world.produce(5, 0)
        await world.produce(5, 1)
        got = []
        for _ in range(8):
            pending = member.fetch()
            found = [(n, one) for n in (0, 1) for one in await pending.ranges(n)]
            got.append(found)
            if all(count > 1 for _, (_, _, count) in found):
                assert len(found) <= 1, "at its last delivery alone"
            else:
                assert all(count == 1 for _, (_, _, count) in found)
        flat = [one for found in got for one in found]
        assert sorted(flat) == [(n, one) for n in (0, 1) for one in ((0, 0, 3), (1, 1, 3), (2, 6, 1))]

    run(scenario)


@pytest.mark.rule("PL-258")
def test_answers_say_the_groups_limit_and_dead_letter_topic_of_the_moment() -> None:
    async def scenario(world: World) -> None:
        member, _ = await started(world, records=1)
        world.configure(delivery_count_limit=7, dlq_enabled=True, dead_letter_topic="letters")
        fetched = await member.fetch().answer()  # type: ignore[attr-defined]
        acknowledged = await member.accept(0, 0).answer()  # type: ignore[attr-defined]
        for answer in (fetched, acknowledged):
            assert (answer.delivery_count_limit, answer.dead_letter_topic) == (7, "letters")

    run(scenario)
