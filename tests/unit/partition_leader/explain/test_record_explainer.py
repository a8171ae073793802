"""ExplainRecord at its leader, over the real core and log: what it reads, what it refuses, what it leaves unchanged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.errors import CoordinatorNotAvailableError, InQuarantineError, InvalidRequestError
from kip932.ids import ACK_RENEW, EXPLAINED_OFFSETS_MAX, STATE_ARCHIVED
from partition_leader.explain import record_explainer
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.topic_rpc.log_directory import Leader
from shard_runtime.rpc.binding import NO_CALLER
from tests.unit.partition_leader.share_partition.persister import Stored
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, key, run, settle
from tests.unit.partition_leader.topic_log.harness import batch

Response = pb.ExplainRecordResponse
CONTEXT = NO_CALLER


async def explain(world: World, first: int = 0, last: int | None = None, **fields: Any) -> Response:
    given: dict[str, Any] = {"group_id": GROUP, "topic_id": TOPIC, "partition_index": 0} | fields
    request = pb.ExplainRecordRequest(offset=first, last_offset=last, **given)
    return await world.leader.service.explain_record(request, CONTEXT)


def reported(response: Response) -> list[tuple[int, int, str, str]]:
    assert response.error_code == 0, response.error_message
    return [
        (
            record.first_offset,
            record.last_offset,
            pb.RecordState.Name(record.state).removeprefix("RECORD_STATE_"),
            pb.DeliveryObstacle.Name(record.obstacle).removeprefix("DELIVERY_OBSTACLE_"),
        )
        for record in response.records
    ]


def refused(response: Response) -> tuple[int, str]:
    assert not response.records
    return response.error_code, response.error_message


@pytest.mark.rule("PL-820")
def test_the_message_has_everything_that_the_leader_knows() -> None:
    async def scenario(world: World) -> None:
        await world.produce(3)
        await world.produce(3)
        member = world.member()
        assert await member.fetch(0, max_wait_ms=100, max_records=3, min_bytes=1).ranges() == [(0, 2, 1)]
        await asyncio.sleep(10)
        found = await explain(world, 0, 6)
        assert reported(found) == [
            (0, 2, "ACQUIRED", "HELD"),
            (3, 5, "AVAILABLE", "NONE"),
            (6, 6, "BEYOND_END", "NO_RECORD"),
        ]
        held, waiting, missing = found.records
        assert (held.member_id, held.delivery_count) == ("m", 1)
        assert 19_900 <= held.lock_remaining_ms <= 20_000
        assert (held.lock_renewed, held.HasField("write")) == (False, False)
        assert 10_000 <= held.held_ms <= 10_100
        assert held.explanation.startswith("Member m has held it for 10.")
        assert waiting.delivery_count == 0
        assert not waiting.HasField("lock_remaining_ms")
        assert not waiting.HasField("held_ms")
        assert waiting.append_time_ms > 0
        assert not missing.HasField("append_time_ms")
        assert not missing.HasField("delivery_count")
        assert (found.loaded, found.start_offset, found.end_offset, found.high_watermark) == (True, 0, 3, 6)
        assert (found.log_start_offset, found.state_epoch, found.in_flight_offsets, found.held_records) == (0, 1, 3, 3)
        assert (found.delivery_count_limit, found.max_record_locks, found.fetching_members) == (5, 2_000, 1)
        world.persister.hold("write")
        world.persister.attempts = 2
        member.accept(0, 2)
        await asyncio.sleep(1)
        (pending,) = (await explain(world, 1)).records
        assert pending.write == Response.PendingWrite(running_ms=1_000, attempts=2)
        assert pending.becomes == pb.RECORD_STATE_ACKNOWLEDGED
        world.persister.let_go("write")
        await settle()
        assert await member.fetch(0, max_wait_ms=100).ranges() == [(3, 5, 1)]
        assert (await member.accept(4, 4).ack_error()) is None
        found = await explain(world, 4)
        assert (found.start_offset, found.in_flight_offsets, found.held_records) == (3, 3, 2), "one is finished"

    run(scenario)


@pytest.mark.rule("PL-822", "PL-953")
def test_a_member_that_renews_its_lock_has_held_the_record_since_it_got_it() -> None:
    """Of PL-953 this shows that a renewal does not begin a new holding."""

    async def scenario(world: World) -> None:
        await world.produce(3)
        member = world.member()
        assert await member.fetch(0, max_wait_ms=100, min_bytes=1).ranges() == [(0, 2, 1)]
        for _ in range(4):
            await world.leader.progress.round()
            await asyncio.sleep(20)
            renewal = {0: [AckBatch(0, 2, (ACK_RENEW,))]}
            assert await member.acknowledge(renewal, is_renew_ack=True).ack_error() is None
        (held,) = (await explain(world, 0, 2)).records
        assert held.lock_renewed
        assert 80_000 <= held.held_ms <= 81_000
        assert "has held it for 80." in held.explanation

    run(scenario)


@pytest.mark.rule("PL-824", "PL-825")
def test_a_question_about_what_is_not_loaded_is_answered_from_the_store_and_loads_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.produce(6)
        stored = world.persister.stored[key()] = Stored(2, fence=(9, 9), ranks={3: (5, STATE_ARCHIVED)})
        found = await explain(world, 0, 5)
        assert reported(found) == [
            (0, 1, "FINISHED", "FINISHED"),
            (2, 2, "AVAILABLE", "NOT_FETCHED"),
            (3, 3, "ARCHIVED", "DELIVERY_LIMIT"),
            (4, 5, "AVAILABLE", "NOT_FETCHED"),
        ]
        assert (found.loaded, found.start_offset, found.fetching_members, found.held_records) == (False, 2, 0, 0)
        assert [call for call, _, _ in world.persister.calls] == ["summary"]
        assert stored.fence == (9, 9), "a leader with a higher epoch is not fenced"
        assert len(world.leader.share_partitions) == 0
        assert world.persister.writes == []

    run(scenario)


@pytest.mark.rule("PL-824")
def test_a_question_keeps_no_share_partition_loaded_and_moves_no_lock() -> None:
    async def scenario(world: World) -> None:
        await world.produce(4)
        member = world.member(connection=7)
        assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, 3, 1)]
        deadline = world.host().core.next_deadline()
        for _ in range(3):
            await asyncio.sleep(5)
            await explain(world, 0, 3)
        assert world.host().core.next_deadline() == deadline
        world.leader.requests.connection_lost(7)
        await explain(world, 0)
        await asyncio.sleep(1)
        await settle()
        assert world.host() is None, "the group's last session has ended (PL-523)"
        assert reported(await explain(world, 0)) == [(0, 0, "AVAILABLE", "NOT_FETCHED")]

    run(scenario)


@pytest.mark.rule("PL-825")
def test_a_share_partition_that_is_being_loaded_says_so() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        world.persister.stored[key()] = Stored(0)
        world.persister.hold("read")
        world.member().fetch(0, max_wait_ms=100)
        await settle()
        assert reported(await explain(world, 0)) == [(0, 0, "AVAILABLE", "LOADING")]
        world.persister.let_go("read")

    run(scenario)


@pytest.mark.rule("PL-825")
def test_stored_state_that_cannot_be_read_is_an_error_and_one_loaded_meanwhile_is_the_answer() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        world.persister.stored[key()] = Stored(0)
        world.persister.fail("summary", CoordinatorNotAvailableError("gone"))
        code, text = refused(await explain(world, 0))
        assert code == CoordinatorNotAvailableError.code
        assert text.startswith("the stored state of g:")
        assert text.endswith("gone; ask again")
        world.persister.fail("summary", InQuarantineError("the stored state of g is in quarantine: settle it"))
        code, text = refused(await explain(world, 0))
        assert (code, text) == (InQuarantineError.code, "the stored state of g is in quarantine: settle it")
        world.persister.hold("summary")
        asked = asyncio.get_running_loop().create_task(explain(world, 0))
        await settle()
        assert await world.member().fetch(0, max_wait_ms=100).ranges() == [(0, 1, 1)]
        world.persister.let_go("summary")
        assert reported(await asked) == [(0, 0, "ACQUIRED", "HELD")]

    run(scenario)


@pytest.mark.rule("PL-825")
def test_without_state_the_group_has_not_begun() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        assert reported(await explain(world, 0)) == [(0, 0, "NOT_INITIALIZED", "NO_STATE")]
        world.persister.stored[key()] = Stored(-1)
        assert reported(await explain(world, 0)) == [(0, 0, "NOT_INITIALIZED", "START_NOT_SET")]

    run(scenario)


@pytest.mark.rule("PL-826")
def test_what_is_refused_by_name() -> None:
    async def scenario(world: World) -> None:
        world.facts.leader = lambda partition: Leader(4, 8, "far", 77)  # type: ignore[method-assign]
        for fields, number, part in (
            ({"group_id": ""}, 42, "group_id is empty"),
            ({"group_id": "g" * 2_000}, 42, "has 2000 characters"),
            ({"first": -1}, 42, "offset -1 is negative"),
            ({"first": 5, "last": 4}, 42, "last offset 4 is before the first, 5"),
            ({"last": EXPLAINED_OFFSETS_MAX}, 42, "at most 1000 go into one request"),
            ({"topic_id": bytes(range(16))}, 100, "is not known to this node"),
            ({"partition_index": 4}, 3, "has partitions 0…3"),
            ({"partition_index": -1}, 3, "has partitions 0…3"),
        ):
            code, text = refused(await explain(world, **fields))
            assert code == number, fields
            assert part in text, (part, text)
        with pytest.raises(InvalidRequestError, match="expected 16"):  # INVALID_ARGUMENT, as for every request
            await explain(world, topic_id=b"x")
        world.lose(3)
        elsewhere = await explain(world, partition_index=3)
        assert refused(elsewhere)[0] == 6
        assert (elsewhere.current_leader.leader_id, elsewhere.current_leader.leader_epoch) == (4, 8)
        assert [(node.node_id, node.host, node.port) for node in elsewhere.node_endpoints] == [(4, "far", 77)]

    run(scenario)


@pytest.mark.rule("PL-826")
def test_switched_off() -> None:
    async def scenario(world: World) -> None:
        assert refused(await explain(world))[0] == 35

    run(scenario, enabled=lambda: False)


@pytest.mark.rule("PL-826")
def test_leadership_that_is_lost_while_the_question_runs() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        world.persister.stored[key()] = Stored(0)
        world.persister.hold("summary")
        asked = asyncio.get_running_loop().create_task(explain(world, 0))
        await settle()
        world.lose(0)
        world.persister.let_go("summary")
        assert refused(await asked)[0] == 6

    run(scenario)


@pytest.mark.rule("PL-826")
def test_questions_are_bounded_in_number_and_time() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        world.persister.stored[key()] = Stored(0)
        world.persister.hold("summary")
        loop = asyncio.get_running_loop()
        began = loop.time()
        asked = [loop.create_task(explain(world, 0)) for _ in range(record_explainer.AT_A_TIME + 5)]
        await settle()
        assert world.persister.running == record_explainer.AT_A_TIME == 16
        answers = await asyncio.gather(*asked)
        assert {refused(answer)[0] for answer in answers} == {7}
        assert loop.time() - began == pytest.approx(10)
        world.persister.let_go("summary")
        assert reported(await explain(world, 0)) == [(0, 0, "AVAILABLE", "NOT_FETCHED")]

    run(scenario)


@pytest.mark.rule("PL-820")
def test_records_that_are_appended_meanwhile_are_no_holes() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        log = world.log()
        reads = log.batches_between

        async def slow(first: int, last: int) -> Any:
            found = await reads(first, last)
            if log.high_watermark < 4:
                await world.produce(1)
            return found

        log.batches_between = slow  # type: ignore[method-assign]
        world.persister.stored[key()] = Stored(0)
        found = reported(await explain(world, 0, 9))
        assert found[0][2:] == ("AVAILABLE", "NOT_FETCHED")
        assert [state for _, _, state, _ in found] == ["AVAILABLE", "BEYOND_END"]

    run(scenario)


@pytest.mark.rule("PL-823")
def test_records_of_transactions_are_reported_by_what_the_log_knows_of_them() -> None:
    async def scenario(world: World) -> None:
        world.configure(read_committed=True)
        world.persister.stored[key()] = Stored(0)
        log = world.log()
        for producer in (71, 72):
            log.transactions.join(producer, 0)
            inside = batch(2, producer=producer, epoch=0, sequence=0)
            await log.append([inside._replace(is_transactional=True, transactional_id=f"t{producer}")], 1_000)
            if producer == 71:
                await log.transactions.end(producer, 0, commit=False)
        await world.produce(1)
        found = await explain(world, 0, 5)
        assert reported(found) == [
            (0, 1, "AVAILABLE", "NO_RECORD"),
            (2, 2, "HOLE", "NO_RECORD"),
            (3, 4, "AVAILABLE", "UNCOMMITTED"),
            (5, 5, "AVAILABLE", "UNCOMMITTED"),
        ]
        aborted, marker, own, after = (record.explanation for record in found.records)
        assert aborted.startswith("This belongs to an aborted transaction")
        assert marker.startswith("This is a transaction's marker")
        assert own.startswith("It is part of the open transaction of transactional id 't72', open for")
        assert "it follows when that ends" in after
        assert await world.member().fetch(0, max_wait_ms=100).ranges() == [(2, 2, 1)], "nothing else is delivered"
        assert reported(await explain(world, 0, 1))[0][2] == "FINISHED"

    run(scenario)
