"""Hints of owners are written after a claim and corrected by the current owner (CM-14)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import pytest

from shard_runtime.ownership.lease import Lease
from shard_runtime.ownership.owner_hints import OwnHints
from shard_runtime.record_log.protocol import ShardId, ShardKind, StoreUnavailableError
from tests.support.clocks import HandClock

pytestmark = pytest.mark.asyncio

EVERY_MS = 3_000
SHARDS = [ShardId(ShardKind.SHARE_STATE, "0"), ShardId(ShardKind.SHARE_STATE, "1"), ShardId(ShardKind.GROUP, "0")]


async def nothing() -> None:
    """Do nothing."""


class Store:
    """Hints by kind; `before_write` is awaited after a write was sent and before it takes effect."""

    def __init__(self) -> None:
        self.stored: dict[ShardKind, dict[str, tuple[int, int]]] = {kind: {} for kind in ShardKind}
        self.writes = 0
        self.asked: list[int] = []
        self.away = False
        self.before_write: Callable[[], Awaitable[object]] = nothing
        self.before_read: Callable[[], Awaitable[object]] = nothing

    async def put_hints(self, kind: ShardKind, hints: Mapping[str, tuple[int, int]]) -> None:
        await self.before_write()
        if self.away:
            raise StoreUnavailableError("away")
        self.writes += 1
        self.stored[kind].update(hints)

    async def hints_of(self, kind: ShardKind, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        self.asked.append(len(names))
        await self.before_read()
        if self.away:
            raise StoreUnavailableError("away")
        stored = self.stored[kind]
        return {name: stored[name] for name in names if name in stored}


class Process:
    """One process with its own clock."""

    def __init__(self, store: Store, node_id: int) -> None:
        self.clock = HandClock()
        self.leases: dict[ShardId, Lease] = {}
        self.hints = OwnHints(store, self.clock, node_id, self._held, EVERY_MS)  # type: ignore[arg-type]

    def _held(self, among: Collection[ShardId] | None) -> list[Lease]:
        return [lease for shard, lease in self.leases.items() if among is None or shard in among]

    def claims(self, shard: ShardId, epoch: int) -> None:
        self.leases[shard] = Lease(
            shard, 1, epoch, deadline_ms=self.clock.ms + EVERY_MS, clock=self.clock, give_up=lambda why, above: None
        )
        self.hints.gained(shard)

    def renews(self) -> None:
        for lease in self.leases.values():
            lease.extend(self.clock.ms + EVERY_MS)

    def loses(self, shard: ShardId) -> None:
        self.leases.pop(shard).revoke()

    async def tick(self, after_ms: int = 0) -> None:
        self.clock.ms += after_ms
        if (work := self.hints.tick()) is not None:
            await work


@pytest.mark.rule("CM-14")
async def test_a_claims_hint_is_written_at_once() -> None:
    store = Store()
    process = Process(store, 1)
    await process.tick()
    process.claims(SHARDS[0], 7)
    process.claims(SHARDS[2], 8)
    await process.tick()
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (1, 7)}
    assert store.stored[ShardKind.GROUP] == {"0": (1, 8)}
    assert process.hints.tick() is None, "nothing is new, and the hints were read just now"


@pytest.mark.rule("CM-14")
async def test_the_late_word_of_a_former_owner_is_put_right_within_a_lease() -> None:
    store = Store()
    first, second = Process(store, 1), Process(store, 2)
    late = asyncio.Event()
    store.before_write = late.wait
    first.claims(SHARDS[0], 7)
    writing = asyncio.ensure_future(first.tick())
    await asyncio.sleep(0)
    store.before_write = nothing
    second.claims(SHARDS[0], 8)
    await second.tick()
    late.set()
    await writing
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (1, 7)}, "the fault that the rule speaks of"
    second.renews()
    await second.tick(EVERY_MS - 1)
    second.renews()
    await second.tick(1)
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (2, 8)}


@pytest.mark.rule("CM-14")
async def test_a_process_that_stood_still_says_nothing_of_a_lease_that_ran_out() -> None:
    store = Store()
    process = Process(store, 1)
    process.claims(SHARDS[0], 7)
    process.clock.ms += EVERY_MS
    await process.tick()
    assert store.stored[ShardKind.SHARE_STATE] == {}
    await process.tick(EVERY_MS - 1)
    process.renews()
    await process.tick(1)
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (1, 7)}, "renewed after all"


@pytest.mark.rule("CM-14")
async def test_a_hint_that_is_right_is_not_written_again_and_one_that_was_lost_is() -> None:
    store = Store()
    process = Process(store, 1)
    process.claims(SHARDS[0], 7)
    process.claims(SHARDS[1], 9)
    await process.tick()
    writes = store.writes
    process.renews()
    await process.tick(EVERY_MS)
    assert store.writes == writes
    del store.stored[ShardKind.SHARE_STATE]["1"]
    process.clock.ms += EVERY_MS
    process.renews()
    await process.tick()
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (1, 7), "1": (1, 9)}
    assert store.writes == writes + 1


@pytest.mark.rule("CM-14")
async def test_a_shard_that_went_while_the_hints_were_read_is_not_claimed_by_word() -> None:
    store = Store()
    process = Process(store, 1)
    process.claims(SHARDS[0], 7)
    await process.tick()
    store.stored[ShardKind.SHARE_STATE]["0"] = (2, 8)

    async def lose() -> None:
        process.loses(SHARDS[0])

    store.before_read = lose
    await process.tick(EVERY_MS - 1)
    process.renews()
    await process.tick(1)
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (2, 8)}


@pytest.mark.rule("CM-14")
async def test_what_could_not_be_written_follows_once_the_store_is_back_if_it_is_still_true() -> None:
    store = Store()
    process = Process(store, 1)
    store.away = True
    process.claims(SHARDS[0], 7)
    process.claims(SHARDS[1], 9)
    await process.tick()
    process.loses(SHARDS[1])
    store.away = False
    await process.tick(1)
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (1, 7)}


@pytest.mark.rule("CM-14")
async def test_one_write_at_a_time_and_a_claim_meanwhile_does_not_wait_for_a_tick() -> None:
    store = Store()
    process = Process(store, 1)
    going = asyncio.Event()
    store.before_write = going.wait
    process.claims(SHARDS[0], 7)
    writing = asyncio.ensure_future(process.tick())
    await asyncio.sleep(0)
    process.loses(SHARDS[0])
    process.claims(SHARDS[0], 11)
    assert process.hints.tick() is None
    going.set()
    await writing
    assert store.stored[ShardKind.SHARE_STATE] == {"0": (1, 11)}


@pytest.mark.rule("CM-14", "CM-96")
async def test_many_hints_are_compared_in_parts_and_a_claim_meanwhile_does_not_wait_for_the_last() -> None:
    """Earlier, comparing ten thousand hints at once blocked the rest of the process for 55 ms."""
    store = Store()
    process = Process(store, 1)
    for number in range(2_500):
        process.claims(ShardId(ShardKind.TOPIC, str(number)), 7)
    await process.tick()
    assert store.asked == [1_000, 1_000, 500], "only what this process owns"
    wrong = dict.fromkeys(("3", "1700", "2400"), (2, 6))
    store.stored[ShardKind.TOPIC].update(wrong)
    store.stored[ShardKind.TOPIC]["of another"] = (2, 6)
    seen: list[object] = []

    async def claim() -> None:
        if not seen:
            process.claims(SHARDS[2], 9)
        seen.append(store.stored[ShardKind.GROUP].get("0"))
        if len(seen) == 2:
            process.loses(ShardId(ShardKind.TOPIC, "1700"))

    store.before_read = claim
    process.clock.ms += EVERY_MS
    process.renews()
    writes = store.writes
    await process.tick()
    assert seen == [None, (1, 9), (1, 9)]
    hints = store.stored[ShardKind.TOPIC]
    assert {name: hints[name] for name in wrong} == {"3": (1, 7), "1700": (2, 6), "2400": (1, 7)}
    assert hints["of another"] == (2, 6)
    assert store.writes == writes + 3
