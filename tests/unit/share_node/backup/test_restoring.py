"""A restore into the in-memory store: it checks everything first, refuses a store in use, and can be run again after an
interruption."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shard_runtime.record_log.cluster_store import IncompleteRestoreError
from shard_runtime.record_log.protocol import LogError, StreamId
from shard_runtime.record_log.redis.connection import Command, StoreSettings
from shard_runtime.record_log.redis.restored_streams import RestoredStreams, StoreNotEmptyError
from shard_runtime.record_log.redis.stream_copies import RawEntry
from share_node.backup.format import Item, StoredHash, StoredString, StreamPage
from share_node.backup.manifest import Manifest
from share_node.backup.restoring import check, restore
from share_node.backup.segments import BackupFilesError, SegmentWriter
from share_node.backup.taking import Progress
from share_node.node.process_store import awaited
from tests.support.clocks import HandClock
from tests.twin import ConnectionLostError, FaultPoint, MemoryStore, Stage, memory_cluster_store

pytestmark = pytest.mark.asyncio

GONE = "A" * 21 + "Q"
STAYS = "B" * 21 + "Q"


def entries(epoch: int, *seqs: int) -> list[RawEntry]:
    return [RawEntry(StreamId(epoch, seq), (b"t", b"S", b"r", b"%d" % seq, b"x", b"kept")) for seq in seqs]


ITEMS: tuple[Item, ...] = (
    StoredString("gc:config", b"8"),
    StoredHash("{nodes}:names", {b"a": b"1"}),
    StreamPage("{sgs:3}:log", entries(4, 0, 1, 2)),
    StreamPage("{gc:7}:log", entries(4, 5)),
    StreamPage(f"{{tp:{GONE}:0}}:log", entries(4, 0)),
    StreamPage(f"{{tp:{STAYS}:0}}:log", entries(4, 0, 9)),
    StreamPage(f"{{tp:{STAYS}:0}}:log", entries(5, 0, 12)),
    StreamPage("{meta}:log", entries(1, 1, 2)),
    StoredHash("{meta}:skip", {b"1-1": b"5"}),
)


def backup(directory: Path, parts: Sequence[Item] = ITEMS, backup_id: str = "b1", **changes: Any) -> Path:
    """Write a backup with these items, as the command would."""
    writer = SegmentWriter(directory)
    for part in parts:
        writer.add(part)
    writer.seal()
    pages = [part for part in parts if isinstance(part, StreamPage)]
    values: dict[str, Any] = {
        "backup_id": backup_id, "cluster_id": "former", "began_ms": 1, "ended_ms": 2, "made_by": "x",
        "streams": len({page.key for page in pages}), "entries": sum(len(page.entries) for page in pages), "topics": 1,
        "damaged": 0, "left_out": (GONE,), "segments": tuple(writer.segments),
    }  # fmt: skip
    writer.publish(Manifest(**(values | changes)))
    return directory


class Target:
    """A store to restore into. `calls_left`: how many more pipelines it answers; None for no limit."""

    def __init__(self, calls_left: int | None = None) -> None:
        self.store = MemoryStore(HandClock())
        self.calls_left = calls_left

    async def count_calls(self, point: FaultPoint) -> None:
        if self.calls_left is None or point.client != "restore" or point.stage is not Stage.SEND:
            return
        if not self.calls_left:
            raise ConnectionLostError("stopped by the test")
        self.calls_left -= 1

    async def run(self, *commands: Command) -> list[Any]:
        return await (await self.store.client("raw").connect("")).run(commands, 5_000)

    async def restore(self, directory: Path, cluster_id: str = "new") -> str:
        # Short only if the store stops responding; otherwise a busy machine could time out a call that does get its
        # response.
        call_ms = 60_000 if self.calls_left is None else 20
        streams = RestoredStreams(self.store.client("restore"), StoreSettings(call_ms=call_ms, backoff_ms=5))
        self.store.hook = self.count_calls
        try:
            return await restore(check(directory, Progress()), streams, cluster_id, Progress())
        finally:
            self.store.hook = None
            await streams.close()


@pytest.mark.rule("CM-143", "CM-144")
async def test_all_is_written_as_it_was_but_topics_that_were_left_out(tmp_path: Path) -> None:
    target = Target()
    assert await target.restore(backup(tmp_path / "b")) == "new"
    data = target.store.master.data
    assert data.strings == {"gc:config": b"8", "{meta}:cluster": b"new"}
    assert data.hashes == {"{nodes}:names": {b"a": b"1"}, "{meta}:skip": {b"1-1": b"5"}}
    assert set(data.streams) == {"{sgs:3}:log", "{gc:7}:log", f"{{tp:{STAYS}:0}}:log", "{meta}:log"}
    stream = data.streams[f"{{tp:{STAYS}:0}}:log"]
    assert stream.ids == [(4, 0), (4, 9), (5, 0), (5, 12)]
    assert stream.fields[1] == (b"t", b"S", b"r", b"9", b"x", b"kept")


@pytest.mark.rule("CM-143")
@pytest.mark.parametrize(
    "held",
    [
        ("SET", "{meta}:cluster", "c9"), ("XADD", "{tp:AAAAAAAAAAAAAAAAAAAAAQ:0}:log", "1-0", "t", "C"),
        ("HSET", "{nodes}", "1", "x"), ("HSET", "{owners}:gc", "1", "x"), ("SET", "sgs:config", "50"),
        ("SET", "{meta}:touch", "0"),
    ],
)  # fmt: skip
async def test_a_store_that_holds_anything_of_a_cluster_is_refused_and_left_alone(
    held: Command, tmp_path: Path
) -> None:
    target = Target()
    await target.run(held)
    before = target.store.master.data.copy()
    with pytest.raises(StoreNotEmptyError, match=r"holds cluster c9|is not empty: it holds "):
        await target.restore(backup(tmp_path / "b"))
    assert target.store.master.data == before


async def test_keys_of_other_programs_do_not_count(tmp_path: Path) -> None:
    target = Target()
    await target.run(("SET", "session:7", "x"), ("SET", "{tpx}", "x"), ("SET", "gc:configs", "x"))
    assert await target.restore(backup(tmp_path / "b")) == "new"


@pytest.mark.rule("CM-143")
async def test_wherever_a_restore_ends_nodes_are_kept_away_and_it_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    directory, calls = backup(tmp_path / "b"), 0
    whole = Target()
    await whole.restore(directory, "first")
    for calls in range(100):
        target = Target()
        target.calls_left = calls
        try:
            await target.restore(directory, "first")
        except LogError:
            await require_kept_away(target)
        else:
            break
        target.calls_left = None
        marked = "{meta}:cluster" in target.store.master.data.hashes
        in_force = await target.restore(directory, "second")
        assert in_force in ({"first"} if marked and calls > 5 else {"first", "second"})
        target.store.master.data.strings["{meta}:cluster"] = b"first"
        assert target.store.master.data == whole.store.master.data
    assert 15 < calls < 100, "it was stopped before each of its calls"


async def require_kept_away(target: Target) -> None:
    """Check that a store that is marked as holding part of a backup is accepted by neither a node nor `init`."""
    data = target.store.master.data
    assert "{meta}:cluster" not in data.strings
    if "{meta}:cluster" not in data.hashes:
        assert not data.streams
        return
    cluster = memory_cluster_store(target.store)
    for ask in (cluster.cluster_id, lambda: cluster.init_cluster("mine")):
        with pytest.raises(IncompleteRestoreError, match="holds part of a backup") as caught:
            await ask()
        assert awaited(caught.value) == "a restore that is not complete"
    await cluster.close()


@pytest.mark.rule("CM-143")
async def test_an_interrupted_restore_of_another_backup_is_refused(tmp_path: Path) -> None:
    target = Target(calls_left=12)
    with pytest.raises(LogError):
        await target.restore(backup(tmp_path / "b"))
    target.calls_left = None
    assert "{sgs:3}:log" in target.store.master.data.streams
    with pytest.raises(StoreNotEmptyError, match="an incomplete restore of another backup, b1"):
        await target.restore(backup(tmp_path / "other", backup_id="b2"))


@pytest.mark.rule("CM-143")
async def test_a_stream_that_others_wrote_to_is_noticed_before_the_end(tmp_path: Path) -> None:
    target = Target(calls_left=12)
    with pytest.raises(LogError):
        await target.restore(backup(tmp_path / "b"))
    target.calls_left = None
    assert "{sgs:3}:log" in target.store.master.data.streams
    await target.run(("XADD", "{gc:7}:log", "4-9", "t", "S"))
    with pytest.raises(LogError, match="another process wrote to the store"):
        await target.restore(tmp_path / "b")
    assert target.store.master.data.hashes["{meta}:cluster"][b"backup"] == b"b1"


@pytest.mark.rule("CM-143")
@pytest.mark.parametrize(
    ("parts", "changes", "said"),
    [
        (ITEMS, {"entries": 99}, "hold 5 streams and 11 entries, the manifest says 5 and 99"),
        (ITEMS[:-2], {"streams": 5, "entries": 11}, "hold 4 streams and 9 entries"),
        ((StreamPage("{gc:7}:log", entries(4, 2, 1)),), {}, r"entry 4-1 of \{gc:7\}:log comes after 4-2"),
        ((StreamPage("{gc:7}:log", [RawEntry(StreamId(1, 1), (b"t",))]),), {}, "has 1 words"),
        ((StreamPage("session:7", entries(4, 1)),), {}, "it holds 'session:7', which no backup of this version has"),
        ((StoredHash("{gc:7}:owner", {b"a": b"b"}),), {}, "it holds '{gc:7}:owner'"),
        ((StoredString("{meta}:cluster", b"c"),), {}, "it holds '{meta}:cluster'"),
    ],
)
async def test_what_no_backup_holds_is_refused_before_the_store_is_asked(
    parts: Sequence[Item], changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BackupFilesError, match=said):
        check(backup(tmp_path / "b", parts, **changes), Progress())


async def test_a_check_shows_how_far_it_is(tmp_path: Path) -> None:
    progress = Progress()
    checked = check(backup(tmp_path / "b"), progress)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert (progress.done, progress.total, progress.bytes) == (1, 1, manifest["segments"][0]["bytes"])
    assert f"{{tp:{GONE}:0}}:log" not in checked.streams
    assert checked.streams[f"{{tp:{STAYS}:0}}:log"].last == StreamId(5, 12)


@pytest.mark.rule("CM-143")
async def test_a_second_run_that_stood_still_until_nodes_worked_takes_nothing_of_theirs_back(tmp_path: Path) -> None:
    """Two operators restore the same backup. One process pauses before its first entry; the other completes the
    restore."""
    target, go_on = Target(), asyncio.Event()
    parts = (StoredString("{nodes}:next", b"1"), *ITEMS)
    directory = backup(tmp_path / "b", parts)

    async def stand_still(point: FaultPoint) -> None:
        if point.client == "second" and point.stage is Stage.SEND and point.commands[0][1:2] == ("{nodes}:next",):
            await go_on.wait()

    target.store.hook = stand_still
    runs = [
        RestoredStreams(target.store.client(name), StoreSettings(call_ms=60_000, reply_ms=60_000))
        for name in ("second", "first")
    ]
    second = asyncio.create_task(restore(check(directory, Progress()), runs[0], "new", Progress()))
    assert await restore(check(directory, Progress()), runs[1], "new", Progress()) == "new"
    await target.run(("SET", "{nodes}:next", "7"), ("HSET", "{nodes}:names", "a", "5"), ("DEL", "{sgs:3}:log"))
    go_on.set()
    with pytest.raises(LogError, match="another run of it has ended it, so that nodes may work on the store by now"):
        await second
    data = target.store.master.data
    assert data.strings == {"{nodes}:next": b"7", "gc:config": b"8", "{meta}:cluster": b"new"}
    assert data.hashes["{nodes}:names"] == {b"a": b"5"}
    for run in runs:
        await run.close()
