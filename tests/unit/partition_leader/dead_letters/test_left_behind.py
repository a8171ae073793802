"""Dead letters of groups without members: they are counted, retried without a member, and handed over when a member
joins."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kip932 import errors
from kip932.ids import STATE_ARCHIVING, SharePartitionKey
from partition_leader.dead_letters.core.waiting import Stretch
from partition_leader.dead_letters.left_behind import (
    AGAIN_MS,
    LEFT_MAX,
    SLICE,
    SLICE_PAUSE_MS,
    SOON_MS,
    SOON_RETRY_MS,
    LeftBehindLetters,
)
from partition_leader.dead_letters.reports import Who
from partition_leader.share_partition.deadlines import Deadlines
from tests.support.clocks import LoopClock
from tests.support.virtual_time import virtual
from tests.unit.partition_leader.dead_letters.letters import (
    configure,
    counted,
    offsets,
    passes,
    rejected,
    sent,
    start,
    states,
    unwritten,
)
from tests.unit.partition_leader.share_partition.persister import Fault, Stored
from tests.unit.partition_leader.share_partition.worlds import Member, World, key, run, settle

AGE = "sharegroups_share_group_dead_letters_oldest_age_seconds"
AGAIN_S = AGAIN_MS / 1000 + 1


async def gone(world: World, member: Member) -> None:
    """End the session of the last member."""
    assert (await member.fetch(epoch=-1).answer()).error is None
    await settle()
    assert world.host() is None, "no member is left, so the share-partition is let go"


async def left_behind(world: World, count: int = 2) -> None:
    """Leave `count` dead letters waiting without any member, since their topic is not enabled for dead letters."""
    await gone(world, await rejected(world, count, enabled=False))
    assert states(world) == dict.fromkeys(range(count), STATE_ARCHIVING)


@pytest.mark.rule("PL-611", "PL-910", "PL-921")
def test_letters_that_a_group_left_behind_are_written_when_its_next_member_comes() -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        world.letters.queue()  # not noticed yet: that needs a new metadata version
        world.persister.stored[key()].ranks[1] = (5, STATE_ARCHIVING)
        await world.member("n").fetch(0, max_wait_ms=100).ranges()
        await settle()
        assert [letter["message"] for letter in sent(world)] == [
            "Offset rejected by client.",
            "Offset delivery count exceeded the threshold.",
        ]
        assert (start(world), await unwritten(world)) == (2, 0)

    run(scenario)


@pytest.mark.rule("PL-920", "PL-922")
def test_without_a_member_letters_are_seen_and_written_at_once_when_a_config_lets_them() -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        await passes(7)  # attempts are made meanwhile, since they follow soon after a change
        assert await unwritten(world) == 2
        assert 7 <= counted(world, AGE) < 8
        waiting = world.leader.letters.waiting(key())
        assert waiting is not None
        assert (waiting.letters, waiting.topic, waiting.oldest_ms // 1_000) == (2, "dlq.t", 7)
        assert "not enabled" in waiting.reason
        assert "sharegroups configs alter --topic dlq.t --add-config" in waiting.reason
        configure(world)
        await settle()
        assert (offsets(world), start(world), await unwritten(world)) == ([0, 1], 2, 0)
        assert world.leader.letters.waiting(key()) is None
        assert world.host() is None, "loaded only for its dead letters, so it must be unloaded again"

    run(scenario)


@pytest.mark.rule("PL-921", "PL-922")
def test_without_a_member_letters_are_tried_every_half_minute_and_their_share_partition_is_let_go_each_time() -> None:
    async def scenario(world: World) -> None:
        world.elsewhere.answers.extend([errors.NotLeaderOrFollowerError.code] * 3)
        configure(world)
        await passes(SOON_MS / 1000)
        await gone(world, await rejected(world, 2, keep=True))
        tries = []
        for _ in range(4):
            tries.append((len(world.elsewhere.requests), await unwritten(world), world.host()))
            await passes(AGAIN_S)
        assert tries == [(1, 2, None), (2, 2, None), (3, 2, None), (4, 0, None)]
        assert (offsets(world), start(world)) == ([0, 1], 2)
        await passes(AGAIN_S)
        assert len(world.elsewhere.requests) == 4, "no dead letter is waiting"

    run(scenario)


@pytest.mark.rule("PL-920", "PL-922")
def test_they_are_reported_at_once_and_every_ten_minutes_while_they_wait() -> None:
    async def scenario(world: World) -> None:
        with capture_logs() as logged:
            await left_behind(world)
            await passes(1_300)
        lines = [line for line in logged if line["event"] == "dead_letters_orphaned"]
        assert [line["log_level"] for line in lines] == ["warning"] * 3
        named = {(line["group"], line["topic"], line["partition"], line["offsets"]) for line in lines}
        assert named == {("g", "t", 0, "0-1")}
        assert all("not enabled" in line["cause"] for line in lines)

    run(scenario)


@pytest.mark.rule("PL-922")
def test_after_a_change_they_are_tried_again_soon_since_a_new_topic_has_no_leader_for_a_moment() -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        world.elsewhere.answers.append(errors.NotLeaderOrFollowerError.code)
        configure(world)
        await settle()
        assert (len(world.elsewhere.requests), await unwritten(world)) == (1, 2)
        await passes(SOON_RETRY_MS / 1000 + 1)
        assert (len(world.elsewhere.requests), await unwritten(world), start(world)) == (2, 0, 2)

    run(scenario)


@pytest.mark.rule("PL-631", "PL-922")
def test_a_member_that_comes_while_letters_are_tried_gets_its_records_and_they_go_on() -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        await world.produce(1)
        world.elsewhere.held = asyncio.Event()
        configure(world)
        await settle()
        fetch = world.member("n").fetch(0, max_wait_ms=1_000)
        await settle()
        assert not fetch.done, "the fetch waits until the dead letters in flight are written"
        world.elsewhere.held.set()
        assert await fetch.ranges() == [(2, 2, 1)]
        assert (offsets(world), len(world.elsewhere.requests), start(world)) == ([0, 1], 1, 2)
        assert world.host() is not None

    run(scenario)


@pytest.mark.rule("PL-922")
def test_a_fetch_that_waits_for_what_is_loaded_for_letters_keeps_it() -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        await world.produce(1)
        world.persister.faults["read"].append(Fault(delay_s=5))
        configure(world)
        await settle()
        made = world.host()
        assert made is not None
        assert await world.member("n").fetch(0, max_wait_ms=20_000).ranges() == [(2, 2, 1)]
        assert world.host() is made

    run(scenario)


@pytest.mark.rule("PL-919", "PL-922")
@pytest.mark.parametrize("how", ["reset", "deleted", "not led", "read in vain"])
def test_letters_whose_state_is_gone_are_forgotten_and_others_are_tried_again(how: str) -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        if how == "reset":
            world.persister.stored[key()] = Stored(2, state_epoch=2)
        elif how == "deleted":
            del world.persister.stored[key()]
            world.persister.missing.add(key())
        elif how == "not led":
            world.lose()
        else:
            world.persister.faults["read"].append(Fault(errors.CoordinatorNotAvailableError()))
        configure(world)
        await passes(5)
        assert (await unwritten(world), len(world.elsewhere.requests)) == (2 if how == "read in vain" else 0, 0)
        await passes(AGAIN_S)
        assert (await unwritten(world), len(world.elsewhere.requests)) == (0, how == "read in vain")

    run(scenario)


@pytest.mark.rule("PL-922")
def test_letters_that_a_retiring_share_partition_had_no_time_for_are_left_behind() -> None:
    async def scenario(world: World) -> None:
        world.elsewhere.held = asyncio.Event()
        await gone(world, await rejected(world, 3))
        assert await unwritten(world) == 3
        await passes(6)
        assert await unwritten(world) == 3
        world.elsewhere.held.set()
        await passes(AGAIN_S)
        assert (start(world), await unwritten(world)) == (3, 0)

    run(scenario, operation_timeout_ms=5_000)


@pytest.mark.rule("PL-922")
@virtual
async def test_many_are_loaded_a_slice_at_a_time_and_no_more_are_remembered_than_the_bound() -> None:
    clock = LoopClock()
    deadlines = Deadlines(clock)
    left = LeftBehindLetters(deadlines, clock)
    loaded: list[tuple[int, int]] = []
    began_ms = clock.now_ms()

    def load(found: SharePartitionKey) -> None:
        loaded.append((clock.now_ms() - began_ms, found.partition))
        left.loaded(found, None)

    left.load = load
    stretch = Stretch(0, 0, 1, 1, "why", began_ms, began_ms)
    for number in range(LEFT_MAX + 1):
        left.note(Who(key(number), "t", "dlq.t"), [stretch], "")
    assert len(list(left.items())) == LEFT_MAX
    for number in range(2 * SLICE + 1, LEFT_MAX):
        left.loaded(key(number), None)
    left.retry()
    await asyncio.sleep(1)
    assert [at for at, _ in loaded] == [0] * SLICE + [SLICE_PAUSE_MS] * SLICE + [2 * SLICE_PAUSE_MS]
    assert [number for _, number in loaded] == list(range(2 * SLICE + 1))
    assert not list(left.items())
    deadlines.close()
    left.close()
