"""Entries that cannot be replayed: damaged, missing, or in conflict with earlier ones. Their keys are put in
quarantine, or the replay ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from kip932.entry_checksum import key_proof
from shard_runtime.hosting import replay
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.host_options import HostOptions, HostState
from shard_runtime.hosting.replay import BrokenRecordError
from shard_runtime.record_log.protocol import StoreUnavailableError, StreamId
from tests.support.toy_shard import STREAM, Get, Put, ToyShard
from tests.support.virtual_time import run
from tests.unit.shard_runtime.hosting.test_shard_host import World


@pytest.mark.rule("CM-102", "SR-7")
@pytest.mark.parametrize(("missing", "why"), [(0, "does not follow"), (1, "entries between them are missing")])
@pytest.mark.asyncio
async def test_a_shard_with_a_missing_entry_is_not_served(missing: int, why: str) -> None:
    world = await World().gain()
    for number in range(3):
        await world.host.submit(Put("a", number))
    world.host.lost("test")
    del world.log.entries[missing + 1]
    with pytest.raises(BrokenRecordError, match=why):
        await world.gain(2)
    assert world.host.state is HostState.FAILED


@pytest.mark.rule("CM-102")
@pytest.mark.asyncio
async def test_a_shard_with_a_record_that_does_not_fit_those_before_it_is_not_served_until_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await World().gain()
    await world.host.submit(Put("a", 1))
    await world.host.submit(Put("a", 2))
    world.host.lost("test")
    replayed = ToyShard.replay

    def fits(shard: ToyShard, record: Any) -> Any:
        if "2" in str(record):
            raise KeyError("no such member")
        return replayed(shard, record)

    monkeypatch.setattr(ToyShard, "replay", fits)
    with pytest.raises(BrokenRecordError, match=r"entry 1-2 of .* does not fit what was replayed before it"):
        await world.gain(2)
    assert world.host.state is HostState.FAILED
    world.log.skips = frozenset({StreamId(1, 2)})
    await world.gain(3)
    assert await world.host.submit(Get("a")) == 1


async def damaged_world(key: str = "a") -> World:
    """A world whose log has several entries; one of them, with a known key, is damaged."""
    limits = CompactionLimits(entries_min=10, entries_per_key=1, history_ms=0)
    world = await World(HostOptions(compaction=limits)).gain()
    await world.host.submit(Put("a", 1))
    await world.host.submit(Put("b", 2))
    world.host.lost("test")
    damage(world, 1, key)
    return world


def damage(world: World, at: int, key: str) -> None:
    """Damage entry number `at`, and give it the key proof of `key`."""
    entry = world.log.entries[at]
    proof = key_proof(STREAM, entry.id, key.encode())
    world.log.entries[at] = entry._replace(
        record=b"\x12" + bytes([len(key)]) + key.encode(), damage="x", key_proof=proof
    )


@pytest.mark.rule("CM-107")
@pytest.mark.asyncio
async def test_an_entry_whose_key_is_proved_is_put_in_quarantine_and_reported_and_the_shard_is_served() -> None:
    world = await damaged_world()
    with capture_logs() as lines:
        await world.gain(2)
    assert world.host.state is HostState.ACTIVE
    assert [(found.at, found.key) for found in world.shard.hurt] == [("1-1", "a")]
    (reported,) = [line for line in lines if line["event"] == "damaged_entry_quarantined"]
    assert (reported["stream"], reported["entry"], reported["key"], reported["cause"]) == (
        STREAM,
        "1-1",
        "a",
        "is damaged: x",
    )
    assert await world.host.submit(Get("b")) == 2
    world.host.lost("test")
    await world.gain(3)  # the next owner finds the same damage
    assert [(found.at, found.key) for found in world.shard.hurt] == [("1-1", "a")]


@pytest.mark.rule("CM-107")
@pytest.mark.asyncio
async def test_a_damaged_claim_or_no_op_changes_nothing() -> None:
    world = await World().gain()
    world.log.noops = 1
    await world.host.submit(Put("a", 1))
    world.host.lost("test")
    assert [entry.kind for entry in world.log.entries] == ["C", "R", "N"]
    world.log.entries[0] = world.log.entries[0]._replace(damage="x")
    noop = world.log.entries[2]
    world.log.entries[2] = noop._replace(damage="x", record=b"?", key_proof=key_proof(STREAM, noop.id, b""))
    await world.gain(2)
    assert not world.shard.hurt
    assert await world.host.submit(Get("a")) == 1


@pytest.mark.rule("CM-107")
@pytest.mark.asyncio
async def test_an_entry_whose_key_is_unknown_is_for_the_shard_to_judge() -> None:
    world = await damaged_world()
    world.log.entries[1] = world.log.entries[1]._replace(key_proof=b"")
    with pytest.raises(BrokenRecordError, match=r"entry 1-1 of .* is damaged: x. This shard is not served before"):
        await world.gain(2)
    assert world.host.state is HostState.FAILED


@pytest.mark.rule("CM-107")
@pytest.mark.asyncio
async def test_a_shard_with_more_damage_than_anybody_settles_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "QUARANTINE_MAX", 1)
    world = await damaged_world()
    await world.gain(2)
    world.host.lost("test")
    damage(world, 2, "b")
    with pytest.raises(BrokenRecordError, match=r"entry 1-2"):
        await world.gain(3)


@pytest.mark.rule("CM-108")
@pytest.mark.asyncio
async def test_while_entries_are_in_quarantine_nothing_is_compacted() -> None:
    for skips, compacted in ((frozenset[StreamId](), False), (frozenset({StreamId(1, 1)}), True)):
        world = await damaged_world()
        world.log.skips = skips
        await world.gain(2)
        for number in range(20):
            await world.host.submit(Put("b", number))
        for _ in range(20):
            await asyncio.sleep(0)
        assert bool(world.log.compacted) == compacted
        world.host.lost("test")


@pytest.mark.rule("CM-109")
def test_a_shard_is_replayed_again_within_seconds_of_a_settlement() -> None:
    async def story() -> None:
        world = await damaged_world()
        await world.gain(2)
        await asyncio.sleep(60)
        assert not world.drops
        world.log.skips = frozenset({StreamId(7, 7)})  # the settlement of a different entry
        await asyncio.sleep(60)
        assert not world.drops
        world.log.skips |= {StreamId(1, 1)}
        await asyncio.sleep(HostOptions().settlements_every_ms / 1_000 + 0.001)
        assert world.drops == ["an operator settled damaged entries (1-1); it is replayed again"]
        await world.gain(3)
        assert not world.shard.hurt
        await asyncio.sleep(60)
        assert len(world.drops) == 1

    run(story())


@pytest.mark.rule("CM-109")
def test_a_lost_shard_is_no_more_watched_and_a_store_that_is_away_is_asked_again() -> None:
    async def story() -> None:
        world = await damaged_world()
        await world.gain(2)
        world.host.lost("test")
        await asyncio.sleep(0)
        world.log.skips = frozenset({StreamId(1, 1)})
        await asyncio.sleep(60)
        assert not world.drops
        world.log.skips = frozenset()
        await world.gain(3)
        world.log.skip_failures = [StoreUnavailableError("away")] * 3
        await asyncio.sleep(16)
        world.log.skips = frozenset({StreamId(1, 1)})
        await asyncio.sleep(6)
        assert len(world.drops) == 1

    run(story())


class Pages(World):
    """A world with short pages, which records its reads and replays in the order in which they happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(HostOptions(page_entries=2))
        self.reported: list[str] = []
        self.refused_read = 0
        read, replayed = self.log.read, ToyShard.replay

        async def reported_read(*arguments: Any) -> Any:
            self.reported.append("read")
            if len([word for word in self.reported if word == "read"]) == self.refused_read:
                raise StoreUnavailableError("the store is away")
            return await read(*arguments)

        def reported_replay(shard: ToyShard, record: Any) -> Any:
            self.reported.append("replay")
            return replayed(shard, record)

        self.log.read = reported_read  # type: ignore[assignment]  # patched for this test
        monkeypatch.setattr(ToyShard, "replay", reported_replay)

    async def written(self) -> Pages:
        """Write a claim and three changes: two full pages, after which a third read finds nothing."""
        await self.gain()
        for number in range(3):
            await self.host.submit(Put("a", number))
        self.host.lost("test")
        self.reported.clear()
        return self


@pytest.mark.rule("CM-12", "P-2")
@pytest.mark.asyncio
async def test_the_store_reads_the_next_page_while_one_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await Pages(monkeypatch).written()
    await world.gain(2)
    assert world.reported == ["read", "read", "replay", "read", "replay", "replay"]
    assert await world.host.submit(Get("a")) == 2


@pytest.mark.rule("P-18")
@pytest.mark.asyncio
async def test_others_have_their_turn_after_every_page_and_only_broken_entries_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await Pages(monkeypatch).written()
    settled = world.log.skipped

    async def reported_skipped(*arguments: Any) -> Any:
        world.reported.append("settlements")
        return await settled(*arguments)

    async def others() -> None:
        while True:
            world.reported.append("turn")
            await asyncio.sleep(0)

    world.log.skipped = reported_skipped  # type: ignore[assignment]  # patched for this test
    for epoch, broken in ((2, False), (3, True)):
        if broken:
            world.host.lost("test")
            damage(world, 1, "a")
        world.reported.clear()
        beside = asyncio.create_task(others())
        await world.gain(epoch)
        beside.cancel()
        story = "".join({"turn": ".", "read": "r", "replay": "X", "settlements": "s"}[word] for word in world.reported)
        pages = [page for page in story.replace("r", "").split(".") if page]
        # The first page has a claim and the first change, the second page two changes, and the third page later claims.
        assert pages == (["s", "XX"] if broken else ["X", "XX"]), story


@pytest.mark.rule("CM-12")
@pytest.mark.parametrize("refused", [1, 2, 3])
@pytest.mark.asyncio
async def test_a_page_that_cannot_be_read_ends_the_replay(monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    world = await Pages(monkeypatch).written()
    world.refused_read = refused
    with pytest.raises(StoreUnavailableError):
        await world.gain(2)
    assert world.host.state is not HostState.ACTIVE
    world.refused_read = 0
    await world.gain(3)
    assert await world.host.submit(Get("a")) == 2


@pytest.mark.rule("CM-102")
@pytest.mark.asyncio
async def test_a_replay_that_ends_leaves_no_read_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await Pages(monkeypatch).written()
    del world.log.entries[1]
    before = len(asyncio.all_tasks())
    with pytest.raises(BrokenRecordError):
        await world.gain(2)
    assert len(asyncio.all_tasks()) == before
