"""Share sessions: epochs, ids, adding and removing partitions, parked fetches, and what ends a session."""

from __future__ import annotations

import asyncio

from tests.integration.scenarios.sessions import ACCEPT, Acks, Session, acquired, part
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import member, opened, other_node, produced, topic

UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, INVALID_REQUEST = 3, 6, 42
UNKNOWN_TOPIC_ID, SESSION_NOT_FOUND, INVALID_SESSION_EPOCH = 100, 122, 123
CLOSE = -1


@contract
async def test_an_opening_fetch_reports_every_partition_and_later_ones_what_changed(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    opening = await session.fetch(epoch=0, min_bytes=0)
    assert opening.HasField("session_id")
    assert opening.acquisition_lock_timeout_ms == 30_000
    assert [one.partition_index for result in opening.responses for one in result.partitions] == [0]
    nothing = await session.fetch(wait_ms=0)
    assert (nothing.error_code, list(nothing.responses)) == (0, [])
    assert nothing.acquisition_lock_timeout_ms == 30_000


@contract
async def test_epochs_count_fetches_and_acknowledgements(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 2)
    assert session.epoch == 1
    assert await session.acquire() == [(0, 1, 1)]
    assert await session.ack(0, 0, ACCEPT) == 0
    for wrong in (session.epoch - 1, session.epoch + 1):
        assert (await session.fetch(epoch=wrong, wait_ms=0)).error_code == INVALID_SESSION_EPOCH
        refused = await session.acknowledge((1, 1, [ACCEPT]), epoch=wrong)
        assert (refused.error_code, list(refused.responses)) == (INVALID_SESSION_EPOCH, [])
    assert await session.ack(1, 1, ACCEPT) == 0, "the refused ones took no effect, and no epoch"


@contract
async def test_requests_of_no_session_and_of_another_one(services: Services) -> None:
    place = await topic(services)
    session = await member(services, place)
    assert (await session.fetch(epoch=1, wait_ms=0)).error_code == SESSION_NOT_FOUND
    assert (await session.acknowledge(epoch=1)).error_code == SESSION_NOT_FOUND
    await session.open()
    right, session.session_id = session.session_id, 12_345
    assert right != 12_345
    assert (await session.fetch(epoch=session.epoch, wait_ms=0)).error_code == INVALID_SESSION_EPOCH
    assert (await session.acknowledge(epoch=CLOSE)).error_code == INVALID_SESSION_EPOCH
    session.session_id = right
    assert (await session.fetch(wait_ms=0)).error_code == 0


@contract
async def test_only_a_fetch_without_acknowledgements_opens_a_session(services: Services) -> None:
    place = await topic(services)
    session = await member(services, place)
    assert (await session.acknowledge(epoch=0)).error_code == INVALID_SESSION_EPOCH
    assert (await session.fetch({0: [(0, 0, [ACCEPT])]}, epoch=0)).error_code == INVALID_REQUEST
    assert (await session.fetch(epoch=1, wait_ms=0)).error_code == SESSION_NOT_FOUND


@contract
async def test_a_session_that_is_opened_again_gives_back_what_it_held(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 3)
    assert await session.acquire() == [(0, 2, 1)]
    former = session.session_id
    again = await session.fetch(epoch=0)
    assert session.session_id != former
    found = acquired(again) or await session.acquire()
    assert found == [(0, 2, 2)]


@contract
async def test_partitions_are_added_and_forgotten(services: Services) -> None:
    place = await topic(services, 4)
    mine = max(
        ([number for number, address in place.leaders.items() if address == one] for one in place.leaders.values()),
        key=len,
    )  # two or more
    session = await member(services, place)
    session.address, session.partitions = place.leaders[mine[0]], (mine[0],)
    await session.open()
    for number in mine:
        await produced(services, place, 1, number)
    assert {one.partition_index for result in (await session.fetch()).responses for one in result.partitions} == {
        mine[0]
    }
    added: set[int] = set()
    early = await session.acknowledge((0, 0, [ACCEPT]), partition=mine[1])
    assert part(early).error_code == UNKNOWN_TOPIC_OR_PARTITION, "the group has fetched nothing of it"
    named: Acks = {number: [] for number in mine[1:]}
    async for _ in attempts():
        answer = await session.fetch(named, wait_ms=0)
        added |= {one.partition_index for result in answer.responses for one in result.partitions if one.records}
        named = {}
        if added == set(mine[1:]):
            break
    assert added == set(mine[1:])
    assert (await session.fetch(forget=(mine[0],), wait_ms=0)).error_code == 0
    for number in mine:
        await produced(services, place, 1, number)
    again: set[int] = set()
    async for _ in attempts():
        answer = await session.fetch(wait_ms=0)
        again |= {one.partition_index for result in answer.responses for one in result.partitions}
        if again >= set(mine[1:]):
            break
    assert again == set(mine[1:])


@contract
async def test_a_partition_that_another_node_leads_names_its_leader(services: Services) -> None:
    place = await topic(services)
    (leader,) = (await services.leaders(place.name)).values()
    session = await member(services, place)
    session.address = await other_node(services, place)
    async for _ in attempts():  # until it knows the leader
        answer = await session.fetch(epoch=0, wait_ms=0)
        found = part(answer)
        assert (answer.error_code, found.error_code) == (0, NOT_LEADER)
        if found.HasField("current_leader"):
            break
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (leader.node_id, leader.epoch)
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in answer.node_endpoints}
    assert nodes[leader.node_id] == leader.address
    assert part(await session.acknowledge((0, 0, [ACCEPT]))).error_code == NOT_LEADER


@contract
async def test_topics_and_partitions_that_are_not_there_fail_by_themselves(services: Services) -> None:
    place = await topic(services)
    session = await member(services, place)
    session.partitions = (9,)
    answer = await session.fetch(epoch=0, wait_ms=0)
    assert (answer.error_code, part(answer).error_code) == (0, UNKNOWN_TOPIC_OR_PARTITION)
    assert part(await session.acknowledge((0, 0, [ACCEPT]), partition=9)).error_code == UNKNOWN_TOPIC_OR_PARTITION
    stray = Session(services, session.group, session.member, b"no topic has it!", address=session.address)
    unknown = await stray.fetch(epoch=0, wait_ms=0)
    assert (unknown.error_code, part(unknown).error_code) == (0, UNKNOWN_TOPIC_ID)
    assert part(await stray.acknowledge((0, 0, [ACCEPT]))).error_code == UNKNOWN_TOPIC_ID


@contract
async def test_a_fetch_waits_for_records_and_is_answered_when_they_come(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    parked = asyncio.ensure_future(session.fetch(wait_ms=15_000))
    await asyncio.sleep(0.1)
    assert not parked.done()
    await produced(services, place, 2)
    assert acquired(await parked) == [(0, 1, 1)]
    assert acquired(await session.fetch(wait_ms=50)) == [], "nothing more is there, and its time is over"


@contract
async def test_a_final_acknowledgement_ends_the_session_and_gives_the_rest_back(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    other = await opened(services, place, session.group)
    await produced(services, place, 3)
    assert await session.acquire() == [(0, 2, 1)]
    closed = await session.acknowledge((0, 0, [ACCEPT]), epoch=CLOSE)
    assert (closed.error_code, part(closed).error_code) == (0, 0)
    assert (await session.fetch(wait_ms=0)).error_code == SESSION_NOT_FOUND
    assert (await session.acknowledge(epoch=CLOSE)).error_code == SESSION_NOT_FOUND
    assert await other.acquire() == [(1, 2, 2)]


@contract
async def test_a_final_fetch_takes_no_records_and_ends_the_session(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 3)
    assert await session.acquire() == [(0, 2, 1)]
    closed = await session.fetch({0: [(0, 1, [ACCEPT])]}, epoch=CLOSE)
    assert (closed.error_code, part(closed).acknowledge_error_code) == (0, 0)
    assert acquired(closed) == []
    assert (await session.fetch(wait_ms=0)).error_code == SESSION_NOT_FOUND
    session.epoch = 0
    assert await session.acquire() == [(2, 2, 2)]


@contract
async def test_a_session_ends_by_itself_on_no_other_members_account(services: Services) -> None:
    place = await topic(services)
    one = await opened(services, place)
    two = await opened(services, place, one.group)
    await produced(services, place, 1)
    assert await one.acquire() == [(0, 0, 1)]
    await two.acknowledge(epoch=CLOSE)
    assert await one.ack(0, 0, ACCEPT) == 0
