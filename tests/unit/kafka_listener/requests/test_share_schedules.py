"""Kafka's clients at a leader, in orders of events that go wrong: repeated requests, lost answers and connections, two
members on one connection, sessions that start again, leaders that move, topics that are deleted."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafka_listener.core.pacing import PAUSE_MS
from kafka_listener.ports import Broker
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.kafka_batches import from_native, stored
from partition_leader.topic_log.core.batch import NewBatch
from partition_leader.topic_rpc.log_directory import Leader
from tests.unit.kafka_listener.requests.share_clients import Member, Wire
from tests.unit.partition_leader.share_partition.worlds import TOPIC, World, run, settle

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
NONE, NOT_LEADER, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 0, 6, 42, 100
INVALID_RECORD_STATE, NO_SESSION, WRONG_EPOCH = 121, 122, 123


def played(scenario: Callable[[World, Wire], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a coroutine function: it runs on virtual time, with a leader and a client's connection, which is
    lost in the end."""

    async def whole(world: World) -> None:
        wire = Wire(world, 1, Broker(2, "kafka-2", 9094))
        await scenario(world, wire)
        await wire.lost()

    def test() -> None:
        run(whole)

    return test


@pytest.mark.rule("KL-81")
@played
async def test_a_repeated_request_is_refused_and_acquires_nothing_twice(world: World, wire: Wire) -> None:
    member = Member(wire)
    await world.produce(4)
    assert (await member.fetch(0)).acquired() == [(0, 3, 1)]
    await world.produce(3)
    first, again = member.fetch(), member.fetch(epoch=1)
    assert (await first).acquired() == [(4, 6, 1)]
    refused = await again
    assert (refused.error, refused.response.responses) == (WRONG_EPOCH, [])
    assert (await member.acknowledge({0: [(0, 6, [ACCEPT])]})).partition().error_code == NONE


@pytest.mark.rule("KL-81")
@played
async def test_after_a_lost_answer_the_session_is_gone_and_its_records_come_again(world: World, wire: Wire) -> None:
    again = Wire(world, 2)
    member = Member(wire)
    await member.fetch(0, max_wait_ms=0)
    unread = member.fetch()
    await world.produce(4)
    await settle()
    assert unread.done(), "the leader has answered; the client has not read it"
    await wire.lost()
    member.wire = again
    assert (await member.fetch()).error == NO_SESSION
    member.epoch = 0
    assert (await member.fetch(0)).acquired() == [(0, 3, 2)]
    await again.lost()


@pytest.mark.rule("KL-81")
@played
async def test_a_connection_that_is_lost_between_fetch_and_acknowledgement_frees_the_records(
    world: World, wire: Wire
) -> None:
    other = Wire(world, 2)
    member, second = Member(wire), Member(other, "n")
    await world.produce(4)
    assert (await member.fetch(0)).acquired() == [(0, 3, 1)]
    parked = second.fetch(0, max_wait_ms=5000)
    await settle()
    assert not parked.done()
    await wire.lost()
    assert (await parked).acquired() == [(0, 3, 2)], "without waiting for the lock"
    member.wire = other
    assert (await member.acknowledge({0: [(0, 3, [ACCEPT])]})).error == NO_SESSION
    assert (await second.acknowledge({0: [(0, 3, [ACCEPT])]})).partition().error_code == NONE
    await other.lost()


@pytest.mark.rule("KL-81")
@played
async def test_two_members_on_one_connection_have_sessions_of_their_own(world: World, wire: Wire) -> None:
    one, two = Member(wire, "one"), Member(wire, "two")
    await world.produce(3)
    assert (await one.fetch(0)).acquired() == [(0, 2, 1)]
    parked = two.fetch(0, max_wait_ms=5000)
    assert (await two.acknowledge({0: [(0, 0, [ACCEPT])]})).partition().error_code == INVALID_RECORD_STATE
    assert (await one.acknowledge({0: [(0, 0, [ACCEPT])]})).partition().error_code == NONE
    left = await one.fetch(epoch=-1)
    assert (left.error, left.response.responses, left.delay_ms) == (NONE, [], 0)
    assert (await parked).acquired() == [(1, 2, 2)]
    assert (await two.acknowledge({0: [(1, 2, [ACCEPT])]})).partition().error_code == NONE
    assert (await one.fetch(epoch=2)).error == NO_SESSION


@pytest.mark.rule("KL-81")
@played
async def test_a_session_that_starts_again_frees_what_the_member_held(world: World, wire: Wire) -> None:
    member = Member(wire)
    await world.produce(4)
    assert (await member.fetch(0)).acquired() == [(0, 3, 1)]
    assert (await member.fetch(epoch=5)).error == WRONG_EPOCH
    member.epoch = 0
    assert (await member.fetch(0)).acquired() == [(0, 3, 2)]
    late = await member.acknowledge({0: [(0, 3, [ACCEPT])]}, epoch=7)
    assert late.error == WRONG_EPOCH
    assert (await member.acknowledge({0: [(0, 3, [ACCEPT])]})).partition().error_code == NONE


@pytest.mark.rule("KL-81")
@played
async def test_a_session_is_not_continued_over_another_connection(world: World, wire: Wire) -> None:
    elsewhere = Wire(world, 2)
    member = Member(wire)
    await world.produce(2)
    assert (await member.fetch(0)).acquired() == [(0, 1, 1)]
    stranger = Member(elsewhere)
    refused = await stranger.acknowledge({0: [(0, 1, [ACCEPT])]}, epoch=1)
    assert (refused.error, refused.response.responses) == (WRONG_EPOCH, [])
    await elsewhere.lost()
    assert (await member.acknowledge({0: [(0, 1, [ACCEPT])]})).partition().error_code == NONE


@pytest.mark.rule("KL-80", "KL-85")
@played
async def test_a_partition_whose_leader_has_moved_names_the_new_one(world: World, wire: Wire) -> None:
    member = Member(wire)
    await world.produce(3)
    assert (await member.fetch(0, 1)).acquired() == [(0, 2, 1)]
    world.facts.leader = lambda partition: Leader(2, 9, "grpc-2", 7002)  # type: ignore[method-assign]
    world.lose()
    await settle()
    moved = await member.fetch()
    found = moved.partition()
    assert (found.error_code, found.current_leader.leader_id, found.current_leader.leader_epoch) == (
        NOT_LEADER,
        2,
        9,
    )
    assert [(each.node_id, each.host, each.port) for each in moved.response.node_endpoints] == [(2, "kafka-2", 9094)]
    assert (bytes(found.records), moved.delay_ms) == (b"", 0)
    late = (await member.acknowledge({0: [(0, 2, [ACCEPT])]})).partition()
    assert (late.error_code, late.current_leader.leader_id) == (NOT_LEADER, 2)
    await world.lead(0)


@pytest.mark.rule("KL-80", "KL-85")
@played
async def test_a_partition_without_a_known_leader_is_held_back(world: World, wire: Wire) -> None:
    member = Member(wire)
    await member.fetch(0, max_wait_ms=0)
    world.lose()
    await settle()
    moved = await member.fetch()
    found = moved.partition()
    assert (found.error_code, found.current_leader.leader_id, found.current_leader.leader_epoch) == (
        NOT_LEADER,
        -1,
        -1,
    )
    assert (moved.response.node_endpoints, moved.delay_ms) == ([], PAUSE_MS)
    await world.lead(0)


@pytest.mark.rule("KL-85")
@played
async def test_a_topic_that_is_deleted_under_a_consumer_is_its_partitions_error_in_each_held_answer(
    world: World, wire: Wire
) -> None:
    member = Member(wire)
    await world.produce(3)
    assert (await member.fetch(0)).acquired() == [(0, 2, 1)]
    for number in range(4):
        world.lose(number)
    del world.facts.topics[TOPIC], world.facts.names[TOPIC]
    await settle()
    for _ in range(3):
        refused = await member.fetch()
        assert (refused.error, refused.partition().error_code, refused.delay_ms) == (
            NONE,
            UNKNOWN_TOPIC_ID,
            PAUSE_MS,
        )
    late = await member.fetch(acks={0: [(0, 2, [ACCEPT])]})
    assert (late.partition().acknowledge_error_code, late.delay_ms) == (UNKNOWN_TOPIC_ID, 0)
    assert (await member.fetch(epoch=-1)).error == NONE


@pytest.mark.rule("KL-84")
@played
async def test_acknowledgements_in_a_fetch_are_confirmed_beside_new_records(world: World, wire: Wire) -> None:
    member = Member(wire)
    await world.produce(4)
    assert (await member.fetch(0)).acquired() == [(0, 3, 1)]
    await world.produce(2)
    answer = await member.fetch(acks={0: [(0, 1, [ACCEPT]), (2, 3, [RELEASE, REJECT])]})
    assert answer.partition().acknowledge_error_code == NONE
    assert answer.acquired() == [(2, 2, 2), (4, 5, 1)], "what it releases comes again"
    answer = await member.fetch(acks={0: [(3, 3, [ACCEPT])]}, max_wait_ms=0)
    assert answer.partition().acknowledge_error_code == INVALID_RECORD_STATE
    assert (answer.partition().error_code, answer.partition().acquired_records) == (NONE, [])
    assert answer.partition().acknowledge_error_message


@pytest.mark.rule("KL-82", "KL-84")
@played
async def test_renewals_are_in_version_2_alone(world: World, wire: Wire) -> None:
    member = Member(wire)
    await world.produce(2)
    opened = await member.fetch(0)
    lock_ms = opened.response.acquisition_lock_timeout_ms
    assert lock_ms == world.config.lock_ms
    renewed = await member.acknowledge({0: [(0, 1, [RENEW])]}, is_renew_ack=True)
    assert (renewed.partition().error_code, renewed.response.acquisition_lock_timeout_ms) == (NONE, lock_ms)
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    again = await member.fetch(acks={0: [(0, 1, [RENEW])]}, is_renew_ack=True, **limits)
    assert (again.error, again.partition().acknowledge_error_code) == (NONE, NONE)
    member.version = 1
    older = await member.acknowledge({0: [(0, 1, [RENEW])]}, is_renew_ack=True)
    assert (older.partition().error_code, older.response.acquisition_lock_timeout_ms) == (INVALID_REQUEST, 0)
    assert (await member.acknowledge({0: [(0, 1, [ACCEPT])]})).partition().error_code == NONE


@pytest.mark.rule("KL-82")
@played
async def test_the_acquire_mode_of_version_2_bounds_the_records(world: World, wire: Wire) -> None:
    member = Member(wire)
    await world.produce(6)
    answer = await member.fetch(0, max_records=1, share_acquire_mode=1)
    assert answer.acquired() == [(0, 0, 1)]
    assert [(each.base_offset, each.count) for each in answer.headers()] == [(0, 6)], "the whole batch"
    older = Member(wire, "older", version=1)
    assert (await older.fetch(0, max_records=1, share_acquire_mode=1)).acquired() == [(1, 5, 1)]


@pytest.mark.rule("KL-83")
@played
async def test_acquired_ranges_lie_in_the_batches_that_come_with_them(world: World, wire: Wire) -> None:
    native = RecordBatch(base_timestamp_ms=1, records=[Record(value=b"v")] * 3).SerializeToString()
    member = Member(wire)
    await world.produce(4)
    await world.log().append([NewBatch(stored(from_native(native, 3, 77)), 3, 1)], 10_000)
    await world.produce(2)
    answer = await member.fetch(0)
    assert answer.acquired() == [(0, 8, 1)]
    assert [(each.base_offset, each.count) for each in answer.headers()] == [(0, 4), (4, 3), (7, 2)]
    types = [ACCEPT, ACCEPT, RELEASE, ACCEPT, ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT]
    again = await member.fetch(acks={0: [(0, 8, types)]})
    assert again.acquired() == [(2, 2, 2), (5, 5, 2)]
    assert [(each.base_offset, each.count) for each in again.headers()] == [(0, 4), (4, 3)]
