"""V1 … V20 of the specification (§11), each as requests to the real service and its responses.

`core/test_vectors.py` shows the same of the core alone. Here the requests also pass the messages, the session, the
topic log and the persister, and each test checks the state that a refused or ended request leaves.
"""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import CoordinatorNotAvailableError
from kip932.ids import STATE_ACKNOWLEDGED, STATE_AVAILABLE
from tests.support.virtual_time import now_s
from tests.unit.partition_leader.dead_letters.letters import configure, sent
from tests.unit.partition_leader.topic_log.harness import batch

from .persister import Stored
from .wire import ACCEPT, GAP, REJECT, RELEASE, Consumer, delete_records, memory, records, writes
from .worlds import World, key, run, settle

HELD, LAST_EPOCH = 1, 2_147_483_647


async def log_of(world: World, *sizes: int) -> None:
    for size in sizes:
        await world.produce(size)


async def holding(world: World) -> Consumer:
    """M, which has acquired 0-9 of log batches 0-9, 10-19, 20-29."""
    await log_of(world, 10, 10, 10)
    member = Consumer(world, "M")
    assert await member.acquired(max_records=5) == [(0, 9, 1)]
    return member


@pytest.mark.rule("V1")
def test_v1_max_records_is_rounded_up_to_the_log_batch() -> None:
    async def scenario(world: World) -> None:
        await log_of(world, 10, 10, 10)
        fetched = await Consumer(world, "M").fetch(max_records=5, batch_size=100, share_acquire_mode=0)
        assert (fetched.error, fetched.partition_error) == ("NONE", "NONE")
        assert fetched.acquired == [(0, 9, 1)]
        assert fetched.batches == [(0, 9)], "and no bytes of what was not acquired"
        assert fetched.response.acquisition_lock_timeout_ms == 30_000
        assert records(world) == [(0, 9, HELD, 1)]
        assert writes(world) == []

    run(scenario)


@pytest.mark.rule("V2")
def test_v2_record_limit_mode_gives_the_rest_of_a_log_batch_to_the_next() -> None:
    async def scenario(world: World) -> None:
        await log_of(world, 10, 10, 10)
        first = await Consumer(world, "M").fetch(max_records=5, batch_size=100, share_acquire_mode=1)
        assert (first.acquired, first.batches) == ([(0, 4, 1)], [(0, 9)]), "whole batches travel"
        assert records(world) == [(0, 4, HELD, 1), (5, 9, STATE_AVAILABLE, 0)]
        second = await Consumer(world, "N").fetch(max_records=5, batch_size=100, share_acquire_mode=1)
        assert (second.acquired, second.batches) == ([(5, 9, 1)], [(0, 9)])
        assert world.host().core.overview().batch_count == 1
        assert world.host().core._state.window.floor(0).codes is not None, "offset-tracked"

    run(scenario)


@pytest.mark.rule("V3", "V4")
@pytest.mark.parametrize(
    ("batch_size", "expected"), [(10, [(0, 9, 1), (10, 19, 1), (20, 29, 1)]), (15, [(0, 19, 1), (20, 29, 1)])]
)
def test_v3_and_v4_ranges_are_cut_at_log_batches(batch_size: int, expected: list[tuple[int, int, int]]) -> None:
    async def scenario(world: World) -> None:
        await log_of(world, 10, 10, 10)
        fetched = await Consumer(world, "M").fetch(max_records=30, batch_size=batch_size, share_acquire_mode=0)
        assert fetched.acquired == expected
        assert fetched.batches == [(0, 9), (10, 19), (20, 29)]
        assert world.host().core.overview().batch_count == len(expected)

    run(scenario)


async def full(world: World) -> Consumer:
    """M, which has acquired 0-99, with max_locks 100 and a high watermark of 500."""
    world.configure(max_record_locks=100)
    await log_of(world, *[10] * 50)
    assert world.log().high_watermark == 500
    member = Consumer(world, "M")
    assert await member.acquired(max_records=100) == [(0, 99, 1)]
    return member


@pytest.mark.rule("V5")
def test_v5_a_fetch_waits_for_a_free_lock() -> None:
    async def scenario(world: World) -> None:
        member = await full(world)
        parked = Consumer(world, "N").waiting()
        await asyncio.sleep(5)
        assert not parked.done()
        assert await member.acknowledge((0, 9, ACCEPT)) == "NONE"
        assert world.host().core.start_offset == 10
        await settle()
        assert parked.done()
        assert (await parked).acquired == [(100, 109, 1)], "ten locks are free"
        assert records(world) == [(10, 109, HELD, 1)]

    run(scenario)


@pytest.mark.rule("V6")
def test_v6_a_full_window_gives_out_again_what_was_released_and_nothing_new() -> None:
    async def scenario(world: World) -> None:
        member = await full(world)
        parked = Consumer(world, "N").waiting()
        await asyncio.sleep(5)
        assert await member.acknowledge((50, 50, RELEASE)) == "NONE"
        await settle()
        fetched = await parked
        assert (fetched.acquired, fetched.batches) == ([(50, 50, 2)], [(50, 59)])
        assert world.host().core.start_offset == 0
        assert await Consumer(world, "O").acquired() == []

    run(scenario)


@pytest.mark.rule("V7", "INV-6")
def test_v7_a_refused_request_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        before = memory(world)
        assert await member.acknowledge((0, 4, ACCEPT), (20, 20, REJECT)) == "INVALID_REQUEST"
        assert memory(world) == before
        assert await Consumer(world, "N").acquired(max_records=5) == [(10, 19, 1)], "0-4 are M's, and locked"
        assert await member.acknowledge((0, 4, ACCEPT)) == "NONE", "Acquired by M again"

    run(scenario)


@pytest.mark.rule("V8", "INV-6")
def test_v8_only_the_holder_acknowledges() -> None:
    async def scenario(world: World) -> None:
        member, other = await holding(world), Consumer(world, "N")
        assert await other.acquired(max_records=5) == [(10, 19, 1)]
        before = memory(world)
        assert await other.acknowledge((0, 9, ACCEPT)) == "INVALID_RECORD_STATE"
        assert await other.acknowledge((0, 19, ACCEPT)) == "INVALID_RECORD_STATE"
        assert memory(world) == before
        assert await member.acknowledge((0, 9, ACCEPT)) == "NONE"
        assert await other.acknowledge((10, 19, ACCEPT)) == "NONE"

    run(scenario)


@pytest.mark.rule("V9")
def test_v9_a_repeated_acknowledgement_is_a_success_without_a_write() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        assert await member.acknowledge((0, 9, ACCEPT)) == "NONE"
        assert world.host().core.start_offset == 10
        before = memory(world)
        assert before["writes"] == [(10, 0, [])]
        assert await member.acknowledge((0, 9, ACCEPT)) == "NONE"
        assert memory(world) == before

    run(scenario)


async def last_delivery(world: World) -> Consumer:
    """M, which has acquired 0-9 with delivery count 5, the limit."""
    await log_of(world, 10)
    world.persister.stored[key()] = Stored(0, ranks=dict.fromkeys(range(10), (4, STATE_AVAILABLE)))
    world.configure(delivery_count_limit=10)  # with a limit of 5, each record would be delivered alone (V14)
    member = Consumer(world, "M")
    assert await member.acquired() == [(0, 9, 5)]
    world.configure(delivery_count_limit=5)
    return member


@pytest.mark.rule("V10")
def test_v10_a_release_at_the_limit_archives() -> None:
    async def scenario(world: World) -> None:
        member = await last_delivery(world)
        assert await member.acknowledge((0, 9, RELEASE)) == "NONE"
        assert writes(world) == [(10, 0, [])], "Archived, and so the start offset passes them"
        assert world.persister.writes[-1].stats.n_limit == 10
        assert world.host().core.start_offset == world.persister.stored[key()].start == 10
        assert await Consumer(world, "N").acquired() == []

    run(scenario)


@pytest.mark.rule("V11")
def test_v11_with_a_dead_letter_queue_the_letters_are_written_between_two_writes() -> None:
    async def scenario(world: World) -> None:
        configure(world)
        member = await last_delivery(world)
        world.elsewhere.held = asyncio.Event()
        assert await member.acknowledge((0, 9, RELEASE)) == "NONE", "not after the letters"
        await settle()
        assert writes(world) == [(0, 0, [(0, 9, 3, 5)])]
        assert [(letter["offset"], letter["delivery.count"]) for letter in sent(world)] == [
            (str(offset), "5") for offset in range(10)
        ]
        assert world.host().core.start_offset == 0
        world.elsewhere.held.set()
        await settle()
        assert writes(world) == [(0, 0, [(0, 9, 3, 5)]), (10, 0, [])]
        assert world.host().core.start_offset == 10
        assert len(world.elsewhere.requests) == 1

    run(scenario)


@pytest.mark.rule("V12")
def test_v12_what_the_log_start_has_passed_is_not_acknowledged_and_the_rest_is() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await delete_records(world, 5)
        await settle()
        assert world.host().core.start_offset == 5
        assert records(world) == [(5, 9, HELD, 1)]
        assert await member.acknowledge((0, 9, ACCEPT)) == "NONE"
        assert writes(world) == [(10, 0, [])]
        assert world.persister.writes[-1].stats.n_accept == 5

    run(scenario)


@pytest.mark.rule("V13")
def test_v13_a_batch_that_failed_thrice_comes_in_halves() -> None:
    async def scenario(world: World) -> None:
        await log_of(world, 10)
        world.persister.stored[key()] = Stored(0, ranks=dict.fromkeys(range(10), (3, STATE_AVAILABLE)))
        member = Consumer(world, "M")
        assert await member.acquired() == [(0, 4, 4)]
        assert [await member.acquired() for _ in range(2)] == [[(5, 9, 4)], []]

    run(scenario)


@pytest.mark.rule("V14")
def test_v14_the_last_delivery_is_for_each_record_alone() -> None:
    async def scenario(world: World) -> None:
        await log_of(world, 10)
        world.persister.stored[key()] = Stored(0, ranks=dict.fromkeys(range(10), (4, STATE_AVAILABLE)))
        member = Consumer(world, "M")
        assert [await member.acquired() for _ in range(11)] == [[(at, at, 5)] for at in range(10)] + [[]]

    run(scenario)


def half_known() -> Stored:
    return Stored(10, ranks=dict.fromkeys(range(21, 31), (1, STATE_ACKNOWLEDGED)))


@pytest.mark.rule("V15")
def test_v15_what_the_store_said_nothing_about_is_delivered_again() -> None:
    async def scenario(world: World) -> None:
        await log_of(world, 10, 11, 10)
        world.persister.stored[key()] = half_known()
        member = Consumer(world, "M")
        pending = member.waiting(min_bytes=1 << 20, max_wait_ms=1_000)  # more bytes than are available, so it is parked
        await settle()
        assert world.host().core.overview().gap_window == (10, 30)
        assert world.host().core.next_fetch_offset() == 10
        fetched = await pending
        assert (fetched.acquired, fetched.batches) == ([(10, 20, 1)], [(10, 20)])
        assert await member.acknowledge((10, 20, ACCEPT)) == "NONE"
        assert world.host().core.start_offset == 31
        assert writes(world) == [(31, 0, [])]

    run(scenario)


@pytest.mark.rule("V15b")
def test_v15b_and_is_passed_when_the_log_has_lost_it() -> None:
    async def scenario(world: World) -> None:
        await log_of(world, 10)
        await world.log().raise_log_end(21)
        await log_of(world, 10)
        world.persister.stored[key()] = half_known()
        assert await Consumer(world, "M").acquired() == []
        assert world.host().core.overview().gap_window is None
        assert world.host().core.start_offset == 31
        assert records(world) == []

    run(scenario)


@pytest.mark.rule("V16")
@pytest.mark.parametrize("unknown", [False, True], ids=["refused", "outcome unknown, not stored"])
def test_v16_a_failed_write_gives_the_records_back_to_their_holder(unknown: bool) -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", CoordinatorNotAvailableError("away"), unknown=unknown)
        before = memory(world)
        assert await member.acknowledge((0, 9, ACCEPT)) == "COORDINATOR_NOT_AVAILABLE"
        await settle()
        after = memory(world)
        assert (after["holders"], after["writes"], after["stored"]) == (
            before["holders"], before["writes"], before["stored"],
        )  # fmt: skip
        assert await Consumer(world, "N").acquired(max_records=5) == [(10, 19, 1)]
        assert await member.acknowledge((0, 9, ACCEPT)) == "NONE"
        assert world.host().core.start_offset == 10

    run(scenario)


@pytest.mark.rule("V17")
def test_v17_unless_their_lock_has_run_out_meanwhile() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", CoordinatorNotAvailableError("away"), unknown=False, delay_s=31.0)
        assert await member.acknowledge((0, 9, ACCEPT)) == "COORDINATOR_NOT_AVAILABLE"
        assert records(world) == [(0, 9, STATE_AVAILABLE, 1)]
        assert await Consumer(world, "N").acquired(max_records=5) == [(0, 9, 2)]
        assert await member.acknowledge((0, 9, ACCEPT)) == "INVALID_RECORD_STATE"

    run(scenario)


@pytest.mark.rule("V18")
def test_v18_read_committed_hides_aborted_records_but_not_their_marker() -> None:
    async def scenario(world: World) -> None:
        world.configure(read_committed=True)
        log = world.log()
        log.transactions.join(71, 0)
        inside = batch(10, producer=71, epoch=0, sequence=0)
        await log.append([inside._replace(is_transactional=True, transactional_id="t")], 1_000)
        await log.transactions.end(71, 0, commit=False)
        await log_of(world, 10)
        member = Consumer(world, "M")
        assert await member.acquired() == [(10, 20, 1)]
        assert world.host().core.start_offset == 10, "0-9 are Archived"
        assert await member.acknowledge((10, 10, GAP), (11, 20, ACCEPT)) == "NONE"
        assert world.host().core.start_offset == 21
        assert writes(world) == [(21, 0, [])]

    run(scenario)


@pytest.mark.rule("V19")
def test_v19_after_the_largest_epoch_comes_one() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        (session,) = world.leader.requests.sessions._sessions.values()
        session.epoch = member.epoch = LAST_EPOCH
        assert (await member.fetch(max_records=5)).acquired == [(10, 19, 1)]
        before = memory(world)
        member.epoch = LAST_EPOCH
        assert (await member.fetch(max_records=5)).error == "INVALID_SHARE_SESSION_EPOCH"
        assert memory(world) == before
        member.epoch = 1
        assert (await member.fetch(max_records=5)).acquired == [(20, 29, 1)]
        assert member.epoch == 2
        assert (await member.fetch()).error == "NONE"

    run(scenario)


@pytest.mark.rule("V20")
def test_v20_a_session_too_many_is_refused_when_max_wait_is_over() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        before, began = memory(world), now_s()
        refused = await Consumer(world, "N").fetch(max_wait_ms=500)
        assert refused.error == "SHARE_SESSION_LIMIT_REACHED"
        assert now_s() - began == pytest.approx(0.5, abs=0.01)
        assert not refused.response.responses
        assert memory(world) == before
        assert len(world.leader.requests.sessions) == 1
        assert await member.acknowledge((0, 9, ACCEPT)) == "NONE", "M's session is not evicted"

    run(scenario, sessions_max=1)
