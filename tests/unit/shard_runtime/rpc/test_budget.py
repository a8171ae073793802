"""The budget for bytes of calls in flight: its bound, shares of connections, waiting, and its default."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shard_runtime.rpc.budget import Budget, Reserved, Share, default_bytes, memory_bytes
from tests.support.virtual_time import virtual

MIB = 1024 * 1024


@pytest.mark.rule("CM-92")
def test_one_connection_holds_half_and_less_the_more_there_are() -> None:
    budget = Budget(100 * MIB)
    assert budget.take("greedy", 10 * MIB)
    assert not budget.take("greedy", 41 * MIB)
    assert budget.take("greedy", 40 * MIB)
    assert budget.room("greedy") == 0
    assert budget.take("newcomer", 33 * MIB), "one that holds nothing takes what is free"
    assert not budget.take("newcomer", 1 * MIB), "its share is a third now"
    budget.give("greedy", 50 * MIB)
    assert budget.take("newcomer", 17 * MIB)
    assert not budget.take("third", 51 * MIB), "never more than the whole"
    budget.give("newcomer", 50 * MIB)
    assert (budget.used_bytes, budget.held("greedy"), budget.share("greedy")) == (0, 0, 50 * MIB)


@pytest.mark.rule("CM-92")
def test_heavy_connections_leave_an_eighth_to_small_ones() -> None:
    """Covers (f)."""
    budget = Budget(80 * MIB)
    assert budget.take("a", 40 * MIB)
    assert not budget.take("b", 31 * MIB)
    assert budget.take("b", 30 * MIB)
    assert budget.take("small", 200_000)
    assert budget.room("small") == 256 * 1024 - 200_000
    assert not budget.take("small", 256 * 1024), "it would be heavy"
    for number in range(49):
        assert budget.take(f"small {number}", 200_000)
    left = 10 * MIB - 50 * 200_000
    assert budget.room("newcomer") == 256 * 1024
    assert budget.take("newcomer", 256 * 1024)
    assert budget.room("next") == left - 256 * 1024
    assert not budget.take("next", 256 * 1024)
    assert budget.above_share() == {"a": 40 * MIB, "b": 30 * MIB}


@pytest.mark.rule("CM-92")
def test_a_request_as_large_as_the_budget_is_served_by_a_node_at_rest() -> None:
    """Covers (f). Without this rule such a request would never be served."""
    budget = Budget(8 * MIB)
    assert budget.take("a", 8 * MIB)
    budget.give("a", 8 * MIB)
    budget.add("b", 1)
    assert not budget.take("a", 8 * MIB - 1)


@pytest.mark.rule("CM-92")
@virtual
async def test_a_call_waits_for_room_and_is_refused_after_its_time() -> None:
    budget = Budget(4 * MIB)
    reported: list[str] = []
    budget.on_throttled = reported.append
    budget.add("a", 4 * MIB)
    first = asyncio.create_task(budget.wait("b", 300_000, 1.0))
    second = asyncio.create_task(budget.wait("c", 200_000, 1.0))
    await asyncio.sleep(0.5)
    budget.give("a", 1 * MIB)
    assert await first
    assert await second
    assert not await budget.wait("a", 3 * MIB, 1.0)
    assert (reported, budget.throttled, budget.is_short) == (["a"], 1, False)
    budget.give("b", 300_000)
    budget.give("c", 200_000)
    budget.give("a", 3 * MIB)
    assert budget.used_bytes == 0


@pytest.mark.rule("CM-92")
@virtual
async def test_who_waits_longest_is_let_in_first() -> None:
    budget, order = Budget(4 * MIB), list[str]()
    budget.add("a", 4 * MIB)

    async def wait(name: str) -> None:
        assert await budget.wait(name, 200_000, 60, there=False)
        order.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in ("third of all", "first by name", "x")]
    await asyncio.sleep(0)
    for _ in waiting:
        budget.give("a", 200_000)
        await asyncio.sleep(0.1)
    assert order == ["third of all", "first by name", "x"]
    await asyncio.gather(*waiting)


@pytest.mark.rule("CM-92")
@virtual
async def test_who_is_let_in_when_its_time_ends_keeps_what_it_was_given() -> None:
    """Room becomes free and the wait ends in the same turn of the loop. Earlier, the bytes taken then were never given
    back."""

    budget = Budget(4 * MIB)
    budget.add("a", 4 * MIB)
    asyncio.get_running_loop().call_later(1.0, budget.give, "a", 4 * MIB)
    let_in = await budget.wait("b", MIB, 1.0)
    assert (let_in, budget.used_bytes, budget.held("b")) == (True, MIB, MIB)
    budget.give("b", MIB)
    assert (budget.used_bytes, budget.throttled) == (0, 0)


@pytest.mark.rule("CM-92")
@virtual
async def test_waiting_calls_are_bounded_and_one_that_left_holds_nothing() -> None:
    budget = Budget(8 * MIB)
    budget.add("a", 8 * MIB)
    waiting = asyncio.create_task(budget.wait("b", MIB, 60))
    await asyncio.sleep(0)
    assert not await budget.wait("c", MIB, 60), "what waits lies in memory too"
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    let_in = asyncio.create_task(budget.wait("b", MIB, 60))
    await asyncio.sleep(0)
    budget.give("a", 8 * MIB)  # lets it in
    let_in.cancel()  # cancelled before it notices
    await asyncio.gather(let_in, return_exceptions=True)
    assert (budget.used_bytes, budget.is_short) == (0, False)


@pytest.mark.rule("CM-92")
@virtual
async def test_a_stream_is_read_again_once_there_is_room() -> None:
    budget = Budget(5 * MIB)
    share = Share(budget, "a")
    share.add(5 * MIB)
    following = [Reserved(Share(budget, name)) for name in ("b", "c", "d")]
    reading = [asyncio.create_task(one.until_room(2 * MIB)) for one in following]
    await asyncio.sleep(3600)
    share.give(5 * MIB)
    await asyncio.sleep(0.1)
    assert [task.done() for task in reading] == [True, True, False], "not all of them at once"
    following[0].came()
    following[0].came()
    await asyncio.sleep(1)
    assert (reading[2].done(), budget.used_bytes) == (True, 0), "what does not come is not waited for"


def test_above_its_share_is_who_took_more_while_there_were_fewer() -> None:
    budget = Budget(100 * MIB)
    budget.take("early", 50 * MIB)
    assert budget.above_share() == {}
    budget.take("late", 20 * MIB)
    assert budget.above_share() == {"early": 50 * MIB}


def test_when_little_is_left_a_connection_with_more_than_an_equal_part_is_above_its_share() -> None:
    """Earlier, many connections that each held a little together kept the whole budget, since none of them held
    much."""
    budget = Budget(64 * MIB)
    hoarders = {f"hoarder {number}": 200_000 for number in range(330)}
    for name, size in hoarders.items():
        assert budget.take(name, size)
    budget.take("member", 300)
    assert not budget.take("newcomer", 2 * MIB)
    assert budget.above_share() == hoarders
    for name in list(hoarders)[:100]:
        budget.give(name, 200_000)
    assert budget.above_share() == {}, "enough is left"


@pytest.mark.rule("CM-92")
def test_the_default_comes_from_the_container_then_from_the_machine(tmp_path: Path) -> None:
    machine, v2, v1 = tmp_path / "meminfo", tmp_path / "memory.max", tmp_path / "limit_in_bytes"
    machine.write_text("MemTotal:       2097152 kB\nMemFree:  5 kB\n")
    limits = (str(v2), str(v1))
    assert memory_bytes(limits, str(machine)) == 2 << 30
    v1.write_text("9223372036854771712\n")
    assert memory_bytes(limits, str(machine)) == 2 << 30
    v2.write_text("max\n")
    v1.write_text(f"{1 << 30}\n")
    assert memory_bytes(limits, str(machine)) == 1 << 30
    v2.write_text(f"{512 << 20}\n")
    assert memory_bytes(limits, str(machine)) == 512 << 20
    assert 64 * MIB <= default_bytes() <= 1 << 30
