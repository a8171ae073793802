"""The budget for bytes of calls in flight: its bound, shares of connections, waiting, and its default."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shard_runtime.rpc.budget import Budget, Holder, Reserved, Share, default_bytes, memory_bytes
from tests.support.virtual_time import virtual

MIB = 1024 * 1024


@pytest.mark.rule("CM-92")
def test_one_connection_holds_half_and_less_the_more_there_are() -> None:
    budget = Budget(100 * MIB)
    assert budget.take(Holder("greedy"), 10 * MIB)
    assert not budget.take(Holder("greedy"), 41 * MIB)
    assert budget.take(Holder("greedy"), 40 * MIB)
    assert budget.room(Holder("greedy")) == 0
    assert budget.take(Holder("newcomer"), 33 * MIB), "one that holds nothing takes what is free"
    assert not budget.take(Holder("newcomer"), 1 * MIB), "its share is a third now"
    budget.give(Holder("greedy"), 50 * MIB)
    assert budget.take(Holder("newcomer"), 17 * MIB)
    assert not budget.take(Holder("third"), 51 * MIB), "never more than the whole"
    budget.give(Holder("newcomer"), 50 * MIB)
    assert (budget.used_bytes, budget.held(Holder("greedy")), budget.share(Holder("greedy"))) == (0, 0, 50 * MIB)


@pytest.mark.rule("CM-92")
def test_heavy_connections_leave_an_eighth_to_small_ones() -> None:
    """Covers (f)."""
    budget = Budget(80 * MIB)
    assert budget.take(Holder("a"), 40 * MIB)
    assert not budget.take(Holder("b"), 31 * MIB)
    assert budget.take(Holder("b"), 30 * MIB)
    assert budget.take(Holder("small"), 200_000)
    assert budget.room(Holder("small")) == 256 * 1024 - 200_000
    assert not budget.take(Holder("small"), 256 * 1024), "it would be heavy"
    for number in range(49):
        assert budget.take(Holder(f"small {number}"), 200_000)
    left = 10 * MIB - 50 * 200_000
    assert budget.room(Holder("newcomer")) == 256 * 1024
    assert budget.take(Holder("newcomer"), 256 * 1024)
    assert budget.room(Holder("next")) == left - 256 * 1024
    assert not budget.take(Holder("next"), 256 * 1024)
    assert budget.above_share() == {Holder("a"): 40 * MIB, Holder("b"): 30 * MIB}


@pytest.mark.rule("CM-92")
def test_a_request_as_large_as_the_budget_is_served_by_a_node_at_rest() -> None:
    """Covers (f). Without this rule such a request would never be served."""
    budget = Budget(8 * MIB)
    assert budget.take(Holder("a"), 8 * MIB)
    budget.give(Holder("a"), 8 * MIB)
    budget.add(Holder("b"), 1)
    assert not budget.take(Holder("a"), 8 * MIB - 1)


@pytest.mark.rule("CM-92")
@virtual
async def test_a_call_waits_for_room_and_is_refused_after_its_time() -> None:
    budget = Budget(4 * MIB)
    reported: list[Holder] = []
    budget.on_throttled = reported.append
    budget.add(Holder("a"), 4 * MIB)
    first = asyncio.create_task(budget.wait(Holder("b"), 300_000, 1.0))
    second = asyncio.create_task(budget.wait(Holder("c"), 200_000, 1.0))
    await asyncio.sleep(0.5)
    budget.give(Holder("a"), 1 * MIB)
    assert await first
    assert await second
    assert not await budget.wait(Holder("a"), 3 * MIB, 1.0)
    assert (reported, budget.throttled, budget.is_short) == ([Holder("a")], 1, False)
    budget.give(Holder("b"), 300_000)
    budget.give(Holder("c"), 200_000)
    budget.give(Holder("a"), 3 * MIB)
    assert budget.used_bytes == 0


@pytest.mark.rule("CM-92")
@virtual
async def test_who_waits_longest_is_let_in_first() -> None:
    budget, order = Budget(4 * MIB), list[str]()
    budget.add(Holder("a"), 4 * MIB)

    async def wait(name: str) -> None:
        assert await budget.wait(Holder(name), 200_000, 60, there=False)
        order.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in ("third of all", "first by name", "x")]
    await asyncio.sleep(0)
    for _ in waiting:
        budget.give(Holder("a"), 200_000)
        await asyncio.sleep(0.1)
    assert order == ["third of all", "first by name", "x"]
    await asyncio.gather(*waiting)


@pytest.mark.rule("CM-92")
@virtual
async def test_who_is_let_in_when_its_time_ends_keeps_what_it_was_given() -> None:
    """Room becomes free and the wait ends in the same turn of the loop. Earlier, the bytes taken then were never given
    back."""

    budget = Budget(4 * MIB)
    budget.add(Holder("a"), 4 * MIB)
    asyncio.get_running_loop().call_later(1.0, budget.give, Holder("a"), 4 * MIB)
    let_in = await budget.wait(Holder("b"), MIB, 1.0)
    assert (let_in, budget.used_bytes, budget.held(Holder("b"))) == (True, MIB, MIB)
    budget.give(Holder("b"), MIB)
    assert (budget.used_bytes, budget.throttled) == (0, 0)


@pytest.mark.rule("CM-92")
@virtual
async def test_waiting_calls_are_bounded_and_one_that_left_holds_nothing() -> None:
    budget = Budget(8 * MIB)
    budget.add(Holder("a"), 8 * MIB)
    waiting = asyncio.create_task(budget.wait(Holder("b"), MIB, 60))
    await asyncio.sleep(0)
    assert not await budget.wait(Holder("c"), MIB, 60), "what waits lies in memory too"
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    let_in = asyncio.create_task(budget.wait(Holder("b"), MIB, 60))
    await asyncio.sleep(0)
    budget.give(Holder("a"), 8 * MIB)  # lets it in
    let_in.cancel()  # cancelled before it notices
    await asyncio.gather(let_in, return_exceptions=True)
    assert (budget.used_bytes, budget.is_short) == (0, False)


@pytest.mark.rule("CM-92")
@virtual
async def test_a_stream_is_read_again_once_there_is_room() -> None:
    budget = Budget(5 * MIB)
    share = Share(budget, Holder("a"))
    share.add(5 * MIB)
    following = [Reserved(Share(budget, Holder(name))) for name in ("b", "c", "d")]
    reading = [asyncio.create_task(one.until_room(2 * MIB)) for one in following]
    await asyncio.sleep(3600)
    share.give(5 * MIB)
    await asyncio.sleep(0.1)
    assert [task.done() for task in reading] == [True, True, False], "not all of them at once"
    following[0].came()
    following[0].came()
    await asyncio.sleep(1)
    assert (reading[2].done(), budget.used_bytes) == (True, 0), "the call must not wait for bytes that never arrive"


def test_above_its_share_is_who_took_more_while_there_were_fewer() -> None:
    budget = Budget(100 * MIB)
    budget.take(Holder("early"), 50 * MIB)
    assert budget.above_share() == {}
    budget.take(Holder("late"), 20 * MIB)
    assert budget.above_share() == {Holder("early"): 50 * MIB}


def test_when_little_is_left_a_connection_with_more_than_an_equal_part_is_above_its_share() -> None:
    """Earlier, many connections that each held a little together kept the whole budget, since none of them held
    much."""
    budget = Budget(64 * MIB)
    hoarders = {Holder(f"hoarder {number}"): 200_000 for number in range(330)}
    for holder, size in hoarders.items():
        assert budget.take(holder, size)
    budget.take(Holder("member"), 300)
    assert not budget.take(Holder("newcomer"), 2 * MIB)
    assert budget.above_share() == hoarders
    for holder in list(hoarders)[:100]:
        budget.give(holder, 200_000)
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


def _fill(budget: Budget, user: str, connections: int, size: int) -> int:
    """Let a user take pieces of this size over this many connections, in turn, until it gets no more. Returns how many
    bytes it has."""
    taken = [True]
    while any(taken):
        taken = [budget.take(Holder(f"{user} {number}", user), size) for number in range(connections)]
    return budget.held_by(user)


@pytest.mark.rule("CM-92")
@pytest.mark.parametrize("size", [64 * 1024, MIB, 8 * MIB], ids=["64 KiB", "1 MiB", "8 MiB"])
def test_a_user_with_many_connections_gets_no_more_than_a_user_may_have(size: int) -> None:
    """One user takes what it gets over 200 connections; then another one finds room at once, for a large request as
    over one connection, and for small ones."""
    budget = Budget(64 * MIB)
    most = budget.total_bytes * 2 // 3
    held = _fill(budget, "User:greedy", 200, size)
    assert most - size < held <= most + most // 16
    for number in range(4):
        assert budget.take(Holder(f"mail {number}", "User:mail"), 50_000)
    assert budget.take(Holder("new", "User:new"), 8 * MIB)
    assert not budget.take(Holder("greedy 201", "User:greedy"), MIB), (
        "with a heavy user beside it, a third is its share"
    )
    assert budget.share(Holder("new", "User:new")) == budget.total_bytes // 3


@pytest.mark.rule("CM-92")
def test_the_connections_of_a_user_share_what_it_may_have() -> None:
    budget = Budget(96 * MIB)
    one, two = Holder("one", "User:a"), Holder("two", "User:a")
    assert budget.take(one, 48 * MIB), "half of all, as over the only connection of all"
    assert not budget.take(one, 1)
    assert budget.take(two, 16 * MIB)
    assert not budget.take(two, MIB), "two thirds of all are used"
    assert (budget.room(one), budget.room(two)) == (0, 0)
    small = Holder("small", "User:a")
    assert budget.room(small) == 256 * 1024
    for number in range(16):
        assert budget.take(Holder(f"small {number}", "User:a"), 256 * 1024), "a sixteenth more, for small ones"
    assert not budget.take(small, 256 * 1024)
    assert budget.room(small) == 0
    other = Holder("other", "User:b")
    assert budget.room(other) == 16 * MIB
    assert budget.above_share() == {one: 48 * MIB}
    assert budget.take(other, 4 * MIB)
    assert budget.above_share() == {one: 48 * MIB, two: 16 * MIB}, "more than their parts of a third of all"
    budget.give(one, 48 * MIB)
    assert budget.above_share() == {}
    assert budget.take(one, 8 * MIB)
    assert budget.room(one) == 4 * MIB, "its user may have a third"
    assert not budget.take(one, 5 * MIB)


@pytest.mark.rule("CM-92")
def test_users_who_call_over_one_connection_have_a_share_each() -> None:
    """As those of a gateway, with a token for each call."""
    budget = Budget(96 * MIB)
    assert budget.take(Holder("gateway", "User:a"), 48 * MIB)
    assert budget.take(Holder("gateway", "User:b"), 30 * MIB)
    assert (budget.held(Holder("gateway", "User:a")), budget.held_by("User:b")) == (48 * MIB, 30 * MIB)
    assert budget.above_share() == {Holder("gateway", "User:a"): 48 * MIB}


@pytest.mark.rule("CM-92")
@virtual
async def test_room_that_becomes_free_goes_to_each_waiting_user_in_turn() -> None:
    budget, order = Budget(8 * MIB), list[str]()
    budget.add(Holder("x"), 8 * MIB)

    async def wait(connection: str, user: str) -> None:
        assert await budget.wait(Holder(connection, user), 60_000, 60, there=False)
        order.append(user)

    waiting = [asyncio.create_task(wait(f"c{number}", "User:greedy")) for number in range(4)]
    waiting.append(asyncio.create_task(wait("m", "User:mail")))
    waiting.append(asyncio.create_task(wait("n", "User:news")))
    await asyncio.sleep(0)
    for _ in waiting:
        budget.give(Holder("x"), 60_000)
        await asyncio.sleep(0.1)
    assert order == ["User:greedy", "User:mail", "User:news", "User:greedy", "User:greedy", "User:greedy"]
    await asyncio.gather(*waiting)


@pytest.mark.rule("CM-92")
@virtual
async def test_a_users_waiting_calls_leave_others_room_to_wait() -> None:
    """The bytes that wait are bounded. A user alone gets half of that, so that another one may wait, too."""
    budget = Budget(64 * MIB)
    budget.add(Holder("x"), 64 * MIB)
    greedy = [asyncio.create_task(budget.wait(Holder(f"c{number}", "User:greedy"), MIB, 60)) for number in range(8)]
    await asyncio.sleep(0)
    assert [task.done() for task in greedy] == [False] * 4 + [True] * 4
    mail = asyncio.create_task(budget.wait(Holder("m", "User:mail"), 4 * MIB, 60))
    await asyncio.sleep(0)
    assert not mail.done()
    budget.give(Holder("x"), 64 * MIB)
    assert await mail
    assert [await task for task in greedy] == [True] * 4 + [False] * 4


@pytest.mark.rule("CM-92")
@virtual
async def test_a_user_above_its_share_is_passed_over_at_once_however_many_of_its_connections_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = Budget(100 * MIB)
    for number in range(300):
        budget.add(Holder(f"c{number}", "alice"), 250_000)
    waiting = [
        asyncio.ensure_future(budget.wait(Holder(f"c{number}", "alice"), 1_000, 1.0, there=False))
        for number in range(300)
    ]
    await asyncio.sleep(0)
    tried = 0
    take = Budget.take

    def counted(self: Budget, holder: Holder, size: int) -> bool:
        nonlocal tried
        tried += 1
        return take(self, holder, size)

    monkeypatch.setattr(Budget, "take", counted)
    budget.add(Holder("other", "bob"), 10)
    budget.give(Holder("other", "bob"), 10)
    assert tried == 0
    for number in range(20):
        budget.give(Holder(f"c{number}", "alice"), 250_000)
    assert all(await asyncio.gather(*waiting)), "below its share, all these small calls are admitted"
