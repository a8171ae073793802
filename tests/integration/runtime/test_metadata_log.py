"""The metadata log on the in-memory store: races, gaps, a lost tail, a wiped store, and folding into snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from kip932.errors import TopicAlreadyExistsError
from kip932.ids import RESOURCE_GROUP
from kip932.records.v1.metadata_log_pb2 import MetadataRecord
from shard_runtime.clock import SystemClock
from shard_runtime.cluster import metadata_log
from shard_runtime.cluster.metadata import Change, ConfigSet, MetadataImage, TopicCreated
from shard_runtime.cluster.metadata_codec import encode_changes, encode_snapshot
from shard_runtime.cluster.metadata_log import MetadataDamagedError, MetadataLog, MetadataLogError
from shard_runtime.record_log.cluster_store import NO_ENTRY, ClusterStore, metadata_digest
from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.record_log.redis.connection import StoreSettings
from tests.integration.runtime.harness import until
from tests.twin import FaultPoint, Stage
from tests.twin.store import MemoryStore, memory_cluster_store

pytestmark = pytest.mark.asyncio

SETTINGS = StoreSettings(call_ms=200, backoff_ms=5, backoff_max_ms=20)


def config(value: int) -> ConfigSet:
    return ConfigSet(RESOURCE_GROUP, "g", "share.delivery.count.limit", str(value))


class World:
    def __init__(self) -> None:
        self.memory = MemoryStore(SystemClock(), replicas=1)
        self.stores: list[ClusterStore] = []

    async def log(self, name: str, settings: StoreSettings = SETTINGS) -> MetadataLog:
        store = memory_cluster_store(self.memory, name, settings)
        self.stores.append(store)
        await store.init_cluster("c")
        log = MetadataLog(store, SystemClock(), "c", poll_ms=20)
        await log.load()
        return log


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for store in world.stores:
        await store.close()
    await world.memory.close()


@pytest.mark.rule("CM-20")
async def test_two_nodes_that_create_the_same_topic_agree_on_one(world: World) -> None:
    a, b = await world.log("a"), await world.log("b")

    async def attempt(log: MetadataLog, number: int) -> object:
        def decide(image: MetadataImage) -> list[Change]:
            if "t" in image.topics:
                raise TopicAlreadyExistsError
            return [TopicCreated("t", bytes([number] * 16), 1)]

        return await log.change(decide)

    outcomes = await asyncio.gather(attempt(a, 1), attempt(b, 2), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["MetadataImage", "TopicAlreadyExistsError"]
    await a.load()
    await b.load()
    assert a.image == b.image
    assert a.image.version == 1


@pytest.mark.rule("CM-20")
async def test_every_change_lands_once_when_many_write_at_the_same_time(world: World) -> None:
    logs = [await world.log(name) for name in "abc"]

    def add(image: MetadataImage) -> list[Change]:
        held = int(image.config(RESOURCE_GROUP, "g").get("share.delivery.count.limit", "0"))
        return [config(held + 1)]

    await asyncio.gather(*(log.change(add) for log in logs for _ in range(10)))
    await logs[0].load()
    assert logs[0].image.config(RESOURCE_GROUP, "g") == {"share.delivery.count.limit": "30"}
    assert logs[0].image.version == 30


@pytest.mark.rule("CM-20")
async def test_a_follower_sees_changes_and_notifies_its_listeners(world: World) -> None:
    a, b = await world.log("a"), await world.log("b")
    seen: list[tuple[int, int]] = []
    b.subscribe(lambda new, old: seen.append((old.version, new.version)))
    b.start()
    await a.change(lambda image: [config(1)])
    await until(lambda: b.image.version == 1)
    await a.change(lambda image: [config(2)])
    b.wake()
    await until(lambda: b.image.version == 2)
    assert seen == [(0, 1), (1, 2)]
    assert await a.change(lambda image: []) is a.image
    await b.stop()


@pytest.mark.rule("CM-20", "CM-21")
async def test_refusals_and_changes_that_change_nothing_are_true_of_the_newest_image(world: World) -> None:
    a, b = await world.log("a"), await world.log("b")
    await a.change(lambda image: [config(1)])
    await b.load()
    await a.change(lambda image: [TopicCreated("t", bytes(16), 1), config(2)])

    def set_to_one(image: MetadataImage) -> list[Change]:
        return [] if image.config(RESOURCE_GROUP, "g") == {"share.delivery.count.limit": "1"} else [config(1)]

    def create(image: MetadataImage) -> list[Change]:
        if "t" in image.topics:
            raise TopicAlreadyExistsError
        return []

    assert b.image.version == 1
    with pytest.raises(TopicAlreadyExistsError):
        await b.change(create)
    assert b.image.version == 2
    await b.change(lambda image: [config(1)])
    await a.change(lambda image: [config(3)])
    await b.change(set_to_one)
    await a.load()
    assert a.image.config(RESOURCE_GROUP, "g") == {"share.delivery.count.limit": "1"}


@pytest.mark.rule("CM-20")
async def test_a_lost_tail_rebuilds_the_image(world: World) -> None:
    a, b = await world.log("a"), await world.log("b")
    await a.change(lambda image: [config(1)])
    follower = world.memory.master.followers[0]
    follower.paused = True
    await a.change(lambda image: [config(2)])
    world.memory.fail_over()
    await b.change(lambda image: [config(3)])
    assert b.image.version == 2
    await a.load()
    assert a.image == b.image


@pytest.mark.rule("CM-20")
async def test_an_image_of_a_log_that_has_lost_every_entry_is_rebuilt(world: World) -> None:
    a = await world.log("a")
    world.memory.master.followers[0].paused = True
    await a.change(lambda image: [config(1)])
    world.memory.fail_over()
    await a.load()
    assert a.image == MetadataImage()


@pytest.mark.rule("CM-20", "SR-22")
async def test_a_change_is_not_written_behind_another_entry_than_it_was_computed_from(world: World) -> None:
    """The store fails over between the read and the append, and another node's change is appended first."""
    a, b = await world.log("a"), await world.log("b")
    await a.change(lambda image: [config(1)])
    await b.load()
    world.memory.master.followers[0].paused = True
    await a.change(lambda image: [config(2)])
    failed_over = False

    async def hook(point: FaultPoint) -> None:
        nonlocal failed_over
        if not failed_over and point.client == "a" and point.stage is Stage.REPLY and point.has("XRANGE"):
            failed_over = True
            world.memory.fail_over(keep_connections=True)
            await b.change(lambda image: [TopicCreated("t", bytes(16), 1)])

    world.memory.hook = hook
    await a.change(lambda image: [config(3)])
    await b.load()
    assert failed_over
    assert a.image == b.image
    assert "t" in a.image.topics
    assert a.image.version == 3


@pytest.mark.rule("CM-20")
async def test_what_may_still_be_lost_is_not_believed(world: World) -> None:
    safe = replace(SETTINGS, replicas=1, min_insync_replicas=2, wait_ms=20)
    a, b = await world.log("a", safe), await world.log("b", safe)
    await a.change(lambda image: [config(1)])
    await b.load()
    heard: list[MetadataImage] = []
    b.subscribe(lambda image, _: heard.append(image))
    world.memory.master.followers[0].paused = True
    with pytest.raises(StoreUnavailableError):
        await a.change(lambda image: [config(2)])
    with pytest.raises(StoreUnavailableError, match="not on 1 replicas as yet"):
        await b.load()
    world.memory.fail_over()
    await b.load()
    assert not heard
    await a.load()
    await a.change(lambda image: [config(3)])
    await b.load()
    assert [image.version for image in heard] == [2]
    assert a.image == b.image


@pytest.mark.rule("CM-20")
async def test_a_search_of_several_pages_does_not_mix_two_histories(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pages the store loses the end of the first page, and other entries take its place."""
    monkeypatch.setattr(metadata_log, "_PAGE", 3)
    safe = replace(SETTINGS, replicas=1, min_insync_replicas=2, wait_ms=20)
    a, b, c = await world.log("a", safe), await world.log("b", safe), await world.log("c")
    await a.change(lambda image: [config(1)])
    await a.change(lambda image: [config(2)])
    await c.load()
    world.memory.master.followers[0].paused = True
    with pytest.raises(StoreUnavailableError):
        await a.change(lambda image: [TopicCreated("lost", bytes(16), 1)])
    failed_over = False

    async def hook(point: FaultPoint) -> None:
        nonlocal failed_over
        if not failed_over and point.client == "b" and point.stage is Stage.REPLY and point.has("XRANGE"):
            failed_over = True
            world.memory.fail_over(keep_connections=True)
            await c.change(lambda image: [TopicCreated("t", bytes(16), 1)])
            await c.change(lambda image: [config(3)])

    world.memory.hook = hook
    with pytest.raises(StoreUnavailableError, match="metadata version 3 was replaced while it was read"):
        await b.load()
    await b.load()
    assert b.image == c.image
    assert set(b.image.topics) == {"t"}


@pytest.mark.rule("CM-20", "CM-16")
async def test_a_snapshot_that_was_lost_lets_nothing_be_folded_that_this_build_does_not_know(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer build had folded the entry into its snapshot; the snapshot is lost, so only the entry remains."""
    monkeypatch.setattr(metadata_log, "SNAPSHOT_EVERY", 5)
    safe = replace(SETTINGS, replicas=1, min_insync_replicas=2, wait_ms=20)
    b = await world.log("b", safe)
    (store,) = world.stores
    unknown = MetadataRecord(record_version=1, change_id=b"c" * 16).SerializeToString()
    assert await store.append_metadata(1, unknown, NO_ENTRY)
    await b.load()
    world.memory.master.followers[0].paused = True
    folded = encode_snapshot(b.image.snapshot(), b"s" * 16, 1)
    with pytest.raises(StoreUnavailableError):
        await store.append_metadata(2, folded, metadata_digest(unknown))
    with pytest.raises(StoreUnavailableError):
        await b.load()
    world.memory.fail_over()
    for value in range(12):
        await b.change(lambda image, value=value: [config(value)])  # type: ignore[misc]
    assert (await store.read_metadata(0, 1))[0] == (1, unknown, "")


@pytest.mark.rule("CM-20")
async def test_a_wiped_store_is_never_taken_for_an_empty_one(world: World) -> None:
    a = await world.log("a")
    await a.change(lambda image: [config(1)])
    world.memory.wipe()
    with pytest.raises(MetadataLogError, match="belongs to cluster"):
        await a.load()
    assert not a.sound
    assert a.image.version == 1
    with pytest.raises(MetadataLogError):
        await a.change(lambda image: [config(2)])


@pytest.mark.rule("CM-20", "CM-15")
async def test_an_unanswered_change_is_checked_before_the_next(world: World) -> None:
    a = await world.log("a")
    world.memory.reachable = False
    world.memory.cut_all()
    with pytest.raises(StoreUnavailableError):
        await a.change(lambda image: [config(1)])
    world.memory.reachable = True
    await a.change(lambda image: [config(2)])
    assert a.image.config(RESOURCE_GROUP, "g") == {"share.delivery.count.limit": "2"}


@pytest.mark.rule("CM-20", "CM-12")
async def test_each_entry_has_an_id_of_its_own_and_each_change_is_reported_on_the_wake_channel(world: World) -> None:
    reported: list[str] = []

    async def hear(point: FaultPoint) -> None:
        if point.stage is Stage.COMMAND and point.commands[point.index][0] == "PUBLISH":
            reported.append(str(point.commands[point.index][2]))

    a = await world.log("a")
    world.memory.hook = hear
    for value in (1, 2, 1):
        await a.change(lambda image, value=value: [config(value)])  # type: ignore[misc]
    entries = [MetadataRecord.FromString(data) for _, data, _ in await world.stores[0].read_metadata(0, 10)]
    assert entries[0].changes == entries[2].changes
    assert len({entry.change_id for entry in entries}) == 3
    assert {len(entry.change_id) for entry in entries} == {16}
    assert reported == ["metadata"] * 3


@pytest.mark.rule("CM-20")
async def test_old_entries_are_folded_and_those_behind_catch_up_from_the_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metadata_log.SNAPSHOT_EVERY == 1_000
    monkeypatch.setattr(metadata_log, "SNAPSHOT_EVERY", 5)
    a, behind = await world.log("a"), await world.log("b")
    await a.change(lambda image: [config(0)])
    await behind.load()
    for value in range(1, 20):
        await a.change(lambda image, value=value: [config(value)])  # type: ignore[misc]
    held = await world.stores[0].read_metadata(0, 1_000)
    assert len(held) <= 7
    await behind.load()
    fresh = await world.log("c")
    assert a.image == behind.image == fresh.image
    assert fresh.image.config(RESOURCE_GROUP, "g") == {"share.delivery.count.limit": "19"}


@pytest.mark.rule("CM-102", "CM-101")
async def test_with_a_damaged_entry_nodes_that_run_keep_their_image_and_no_node_starts_or_changes_metadata(
    world: World,
) -> None:
    a = await world.log("a")
    await a.change(lambda image: [config(1)])
    image = a.image
    disk = await world.memory.client("disk").connect("")
    whole = encode_changes((config(2),), b"c" * 16, 1)  # decodable, but not the entry that was written
    await disk.run([("XADD", "{meta}:log", "1-2", "t", "V", "r", whole, "c", b"\x00" * 4)], 1_000)
    for attempt in (a.load, lambda: a.change(lambda image: [config(2)]), lambda: world.log("b")):
        with pytest.raises(MetadataDamagedError, match="1-2"):
            await attempt()
    assert a.image is image
    await world.stores[0].skip_metadata(2)
    await a.load()
    assert a.image.config(RESOURCE_GROUP, "g") == {"share.delivery.count.limit": "1"}
    await a.change(lambda image: [config(3)])
    b = await world.log("c")
    assert b.image == a.image
    assert b.image.config(RESOURCE_GROUP, "g") == {"share.delivery.count.limit": "3"}


@pytest.mark.rule("CM-20")
async def test_a_gap_without_a_snapshot_is_refused(world: World) -> None:
    a = await world.log("a")
    for value in range(3):
        await a.change(lambda image, value=value: [config(value)])  # type: ignore[misc]
    await world.stores[0].trim_metadata(2)
    with pytest.raises(MetadataLogError, match="without a snapshot"):
        await world.log("b")
