"""A backup of the in-memory store: the order of its reads, trims and deletions during it, and what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from kip932.acls import Acl
from kip932.ids import topic_id_text
from kip932.scram import ScramCredential
from shard_runtime.cluster.metadata import (
    AclAdded,
    AclRemoved,
    Change,
    MetadataImage,
    ScramCredentialRemoved,
    ScramCredentialSet,
    TopicCreated,
    TopicDeleted,
)
from shard_runtime.cluster.metadata_codec import encode_changes, encode_snapshot
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.record_log.cluster_store import metadata_digest
from shard_runtime.record_log.protocol import Entry, LogError, ShardId, ShardKind, StreamAppend, StreamId
from shard_runtime.record_log.redis.codec import xadd
from shard_runtime.record_log.redis.connection import Command, StoreSettings
from shard_runtime.record_log.redis.restored_streams import RestoredStreams
from shard_runtime.record_log.redis.stream_copies import HistoryChangedError, StreamCopies
from share_node.backup.format import Item, StoredHash, StoredString, StreamPage
from share_node.backup.manifest import Manifest
from share_node.backup.restoring import check, restore
from share_node.backup.segments import SegmentWriter, items
from share_node.backup.taking import BackupRun, Progress
from tests.support.claims import claim
from tests.support.clocks import HandClock
from tests.twin import FaultPoint, MemoryStore, Stage
from tests.twin.store import memory_cluster_store, memory_log

pytestmark = pytest.mark.asyncio

TOPIC_ID = b"\0" * 15 + b"\7"
STATE, GROUP = ShardId(ShardKind.SHARE_STATE, "3"), ShardId(ShardKind.GROUP, "7")
TOPIC = ShardId(ShardKind.TOPIC, f"{topic_id_text(TOPIC_ID)}:0")


class Site:
    """A store with a cluster's streams, written as owners write them."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = MemoryStore(self.clock)
        self.log = memory_log(self.store, "owner")
        self.cluster = memory_cluster_store(self.store, "owner")
        self.asked: list[Command] = []
        self.before: Callable[[Command], None] = lambda command: None
        self._version = 0
        self._digest = ""

    async def note_command(self, point: FaultPoint) -> None:
        if point.client == "backup" and point.stage is Stage.COMMAND:
            command = point.commands[point.index]
            self.before(command)
            self.asked.append(command)

    async def run(self, *commands: Command) -> list[object]:
        connection = await self.store.client("raw").connect("")
        return await connection.run(commands, 5_000)

    async def change(self, *changes: Change) -> None:
        await self._append(encode_changes(changes, b"%d" % (self._version + 1), 0))

    async def fold(self, image: MetadataImage) -> None:
        """Write a snapshot of the metadata, and trim what is before it."""
        await self._append(encode_snapshot(image.snapshot(), b"%d" % (self._version + 1), 0))
        await self.cluster.trim_metadata(self._version)

    async def metadata(self) -> MetadataImage:
        """Return the metadata that a node reads which starts now."""
        return await MetadataLog(self.cluster, self.clock, await self.cluster.cluster_id() or "").load()

    async def _append(self, payload: bytes) -> None:
        self._version += 1
        assert await self.cluster.append_metadata(self._version, payload, self._digest)
        self._digest = metadata_digest(payload)

    async def own(self, shard: ShardId, *records: bytes) -> int:
        """Claim a shard and append to its main log; return the epoch."""
        epoch = (await claim(self.log, shard)).epoch
        if records:
            await self.log.append(shard, epoch, [StreamAppend(shard.streams[0], _entries(epoch, 1, *records))])
        return epoch

    async def more(self, shard: ShardId, epoch: int, first: int, *records: bytes) -> None:
        await self.log.append(shard, epoch, [StreamAppend(shard.streams[0], _entries(epoch, first, *records))])

    def rewrite(self, stream: str, epoch: int, number: int, record: bytes) -> None:
        """Append one entry directly, as if another client did so between two commands, and trim everything before
        it."""
        words = xadd(stream, _entries(epoch, number, record)[0])[4:]
        fields = tuple(word.encode() if isinstance(word, str) else word for word in words)
        self.store.master.effect("xadd", stream, ((epoch, number), fields))
        self.store.master.effect("xtrim", stream, (epoch, number))

    async def take(self, directory: Path, report: Callable[[str], None] = print) -> Manifest:
        copies = StreamCopies(self.store.client("backup"), StoreSettings())
        writer = SegmentWriter(directory)
        self.store.hook = self.note_command
        try:
            return await BackupRun(copies, writer, self.clock, on_damage=report).take("c1", "a test")
        except LogError:
            writer.discard()
            raise
        finally:
            self.store.hook = None
            await copies.close()

    async def close(self) -> None:
        await self.log.close()
        await self.cluster.close()
        await self.store.close()


def _entries(epoch: int, first: int, *records: bytes) -> list[Entry]:
    return [Entry(StreamId(epoch, first + i), "S", record) for i, record in enumerate(records)]


@pytest_asyncio.fixture
async def site() -> Site:
    made = Site()
    await made.cluster.init_cluster("c1")
    await made.change(TopicCreated("t", TOPIC_ID, 1))
    return made


def saved(directory: Path, manifest: Manifest) -> list[Item]:
    return [item for segment in manifest.segments for item in items(directory, segment)]


def records(directory: Path, manifest: Manifest, stream: str) -> list[bytes]:
    """Return the records of a stream's entries of type S in the backup."""
    pages = [item for item in saved(directory, manifest) if isinstance(item, StreamPage) and item.key == stream]
    return [e.fields[3] for page in pages for e in page.entries if e.fields[1] == b"S"]


def streams(directory: Path, manifest: Manifest) -> list[str]:
    found = [item.key for item in saved(directory, manifest) if isinstance(item, StreamPage)]
    return list(dict.fromkeys(found))


@pytest.mark.rule("CM-141")
async def test_state_is_read_before_groups_and_topics_and_the_metadata_last(site: Site, tmp_path: Path) -> None:
    for shard in (TOPIC, GROUP, STATE):
        await site.own(shard, b"x")
    manifest = await site.take(tmp_path / "b")
    log, control = TOPIC.streams
    assert streams(tmp_path / "b", manifest) == [STATE.streams[0], GROUP.streams[0], log, control, "{meta}:log"]
    listed = [command[1] for command in site.asked if command[0] == "XRANGE"]
    metadata = "{meta}:log"
    assert listed == [STATE.streams[0], GROUP.streams[0], metadata, log, metadata, control, metadata]
    await site.close()


@pytest.mark.rule("CM-141")
async def test_what_is_written_behind_a_streams_turn_is_in_streams_read_after_it(site: Site, tmp_path: Path) -> None:
    """If an acknowledgement comes while the groups are read, the state lacks it but the topic has its record; never the
    reverse."""
    state, topic = await site.own(STATE, b"1"), await site.own(TOPIC, b"1")
    await site.own(GROUP, b"1")
    late: list[asyncio.Task[None]] = []

    def write(command: Command) -> None:
        if command[:2] == ("XRANGE", GROUP.streams[0]) and not late:
            late.extend(
                asyncio.get_running_loop().create_task(site.more(*args))
                for args in ((STATE, state, 2, b"late"), (TOPIC, topic, 2, b"late"))
            )

    site.before = write
    manifest = await site.take(tmp_path / "b")
    await asyncio.gather(*late)
    assert records(tmp_path / "b", manifest, STATE.streams[0]) == [b"1"]
    assert records(tmp_path / "b", manifest, TOPIC.streams[0]) == [b"1", b"late"]
    await site.close()


@pytest.mark.rule("CM-140")
async def test_a_coordinators_log_is_saved_from_where_its_replay_begins(site: Site, tmp_path: Path) -> None:
    epoch = await site.own(GROUP, b"old", b"new")
    replay_from = StreamId(epoch, 2)
    assert await site.log.compact(GROUP, 1, epoch, GROUP.streams[0], replay_from, keep_from=StreamId(epoch, 1))
    manifest = await site.take(tmp_path / "b")
    assert records(tmp_path / "b", manifest, GROUP.streams[0]) == [b"new"]
    await site.close()


@pytest.mark.rule("CM-141")
async def test_a_log_that_is_compacted_amid_the_read_is_read_again(site: Site, tmp_path: Path) -> None:
    epoch = await site.own(GROUP, *(b"%d" % number for number in range(100)))
    trimmed = 0

    def trim(command: Command) -> None:
        nonlocal trimmed
        if command[:2] == ("XRANGE", GROUP.streams[0]) and command[2] != f"({epoch - 1}-{2**64 - 1}" and not trimmed:
            trimmed = 90
            data = site.store.master.data
            data.hashes[GROUP.owner_key][b"replay_from"] = b"%d-90" % epoch
            site.store.master.effect("xtrim", GROUP.streams[0], (epoch, 90))

    site.before = trim
    manifest = await site.take(tmp_path / "b")
    assert trimmed
    assert records(tmp_path / "b", manifest, GROUP.streams[0]) == [b"%d" % number for number in range(89, 100)]
    assert manifest.entries == sum(len(p.entries) for p in saved(tmp_path / "b", manifest) if isinstance(p, StreamPage))
    assert manifest.streams == len(streams(tmp_path / "b", manifest))
    await site.close()


@pytest.mark.rule("CM-141")
async def test_a_log_that_is_trimmed_under_every_read_is_given_up(site: Site, tmp_path: Path) -> None:
    epoch = await site.own(GROUP, *(b"%d" % number for number in range(100)))
    cut = 0

    def trim(command: Command) -> None:
        nonlocal cut
        if command[:2] == ("XRANGE", GROUP.streams[0]):
            cut += 1
            site.store.master.effect("xtrim", GROUP.streams[0], (epoch, cut))

    site.before = trim
    with pytest.raises(LogError, match="was trimmed 10 times while it was read"):
        await site.take(tmp_path / "b")
    assert cut == 10
    await site.close()


@pytest.mark.rule("CM-141")
async def test_a_topic_that_is_deleted_meanwhile_is_left_out(site: Site, tmp_path: Path) -> None:
    await site.own(TOPIC, b"x")
    other = b"\0" * 15 + b"\1"
    await site.change(TopicCreated("other", other, 1))
    deleted: list[asyncio.Task[None]] = []

    def delete(command: Command) -> None:
        if command[:2] == ("XRANGE", TOPIC.streams[0]) and not deleted:
            site.store.master.effect("del", TOPIC.streams[0], None)
            deleted.append(asyncio.get_running_loop().create_task(site.change(TopicDeleted(TOPIC_ID, "t"))))

    site.before = delete
    manifest = await site.take(tmp_path / "b")
    assert (manifest.left_out, manifest.topics) == ((topic_id_text(TOPIC_ID),), 1)
    assert check(tmp_path / "b", Progress()).manifest == manifest  # a restore accepts it
    await site.close()


@pytest.mark.rule("CM-141")
async def test_a_log_that_retention_empties_before_its_first_page_is_no_stream_of_the_backup(
    site: Site, tmp_path: Path
) -> None:
    epoch = await site.own(TOPIC, b"x")

    def trim(command: Command) -> None:
        if command[:2] == ("XRANGE", TOPIC.streams[0]):
            site.store.master.effect("xtrim", TOPIC.streams[0], (epoch, 9))

    site.before = trim
    manifest = await site.take(tmp_path / "b")
    assert TOPIC.streams[0] not in streams(tmp_path / "b", manifest)
    assert check(tmp_path / "b", Progress()).manifest == manifest  # a restore accepts it
    await site.close()


@pytest.mark.rule("CM-141")
async def test_a_log_whose_replay_begins_behind_the_end_that_was_seen_is_read_again(site: Site, tmp_path: Path) -> None:
    """The owner compacts between two reads: that of the log's end, and that of the position where its replay begins."""
    epoch = await site.own(GROUP, b"old")
    seen = 0

    def compact(command: Command) -> None:
        nonlocal seen
        if command[:2] == ("HMGET", GROUP.owner_key) and not seen:
            seen = 1
            site.store.master.data.hashes[GROUP.owner_key][b"replay_from"] = b"%d-2" % epoch
            site.rewrite(GROUP.streams[0], epoch, 2, b"copy")

    site.before = compact
    manifest = await site.take(tmp_path / "b")
    assert seen
    assert records(tmp_path / "b", manifest, GROUP.streams[0]) == [b"copy"]
    await site.close()


@pytest.mark.rule("CM-141")
async def test_a_control_log_that_is_compacted_amid_the_read_is_read_again(site: Site, tmp_path: Path) -> None:
    """Its newest log start and producers are at its end, after the trimmed entries."""
    epoch = await site.own(TOPIC)
    control = TOPIC.streams[1]
    await site.log.append(
        TOPIC, epoch, [StreamAppend(control, _entries(epoch, 1, *(b"%d" % number for number in range(40))))]
    )
    asked = 0

    def compact(command: Command) -> None:
        nonlocal asked
        if command[:2] == ("XRANGE", control):
            asked += 1
            if asked == 2:
                site.rewrite(control, epoch, 41, b"snapshot")

    site.before = compact
    manifest = await site.take(tmp_path / "b")
    assert records(tmp_path / "b", manifest, control) == [b"snapshot"]
    assert check(tmp_path / "b", Progress()).manifest == manifest
    await site.close()


async def test_streams_that_go_though_their_topic_stays_end_the_backup(site: Site, tmp_path: Path) -> None:
    await site.own(TOPIC, b"x")

    def remove(command: Command) -> None:
        if command[:2] == ("XRANGE", TOPIC.streams[0]):
            site.store.master.effect("del", TOPIC.streams[0], None)

    site.before = remove
    with pytest.raises(LogError, match="vanished during the read, but its topic is not deleted"):
        await site.take(tmp_path / "b")
    await site.close()


@pytest.mark.rule("CM-141")
async def test_a_store_that_fails_over_amid_the_backup_ends_it(site: Site, tmp_path: Path) -> None:
    await site.own(TOPIC, b"x")
    site.store.master.add_replica()

    def fail_over(command: Command) -> None:
        if command[:2] == ("XRANGE", TOPIC.streams[0]) and site.store.master.followers:
            site.store.fail_over(keep_connections=True)
            site.store.master.followers.clear()

    site.before = fail_over
    with pytest.raises(HistoryChangedError, match="the store failed over"):
        await site.take(tmp_path / "b")
    await site.close()


@pytest.mark.rule("CM-140")
async def test_names_numbers_and_notes_are_saved_and_owners_are_not(site: Site, tmp_path: Path) -> None:
    await site.own(STATE, b"x")
    await site.log.skip(STATE, StreamId(5, 6))
    await site.cluster.skip_metadata(9)
    await site.run(
        ("SET", "gc:config", "8"), ("SET", "sgs:config", "4"),
        ("HSET", "{nodes}:names", "a", "1"), ("SET", "{nodes}:next", "1"), ("HSET", STATE.readers_key, "r", "1-1 5"),
    )  # fmt: skip
    manifest = await site.take(tmp_path / "b")
    found = {item.key: item for item in saved(tmp_path / "b", manifest) if not isinstance(item, StreamPage)}
    assert found["gc:config"] == StoredString("gc:config", b"8")
    assert found["{nodes}:next"] == StoredString("{nodes}:next", b"1")
    assert found["{nodes}:names"] == StoredHash("{nodes}:names", {b"a": b"1"})
    skipped, meta = found[STATE.skip_key], found["{meta}:skip"]
    assert isinstance(skipped, StoredHash)
    assert isinstance(meta, StoredHash)
    assert (list(skipped.fields), list(meta.fields)) == ([b"5-6"], [b"1-9"])
    assert set(found) == {
        "gc:config", "sgs:config", "{nodes}:next", "{nodes}:names", STATE.skip_key, "{meta}:skip",
    }  # fmt: skip
    asked = {str(command[1]) for command in site.asked if command[0] == "HMGET"}
    assert asked == {ShardId(kind, str(n)).owner_key for kind, n in ((ShardKind.SHARE_STATE, 3),)}
    await site.close()


@pytest.mark.rule("CM-140")
async def test_a_damaged_entry_is_saved_as_it_is_and_reported_once(site: Site, tmp_path: Path) -> None:
    epoch = await site.own(GROUP, b"good", b"bad")
    stream = site.store.master.data.streams[GROUP.streams[0]]
    stream.fields[2] = tuple(b"BAD" if word == b"bad" else word for word in stream.fields[2])
    reported: list[str] = []
    manifest = await site.take(tmp_path / "b", reported.append)
    assert records(tmp_path / "b", manifest, GROUP.streams[0]) == [b"good", b"BAD"]
    assert manifest.damaged == 1
    assert len(reported) == 1
    assert reported[0].startswith(f"{GROUP.streams[0]} {epoch}-2 is damaged in the store: its checksum is ")
    await site.close()


@pytest.mark.rule("CM-61", "CM-141", "CM-144", "CM-189")
@pytest.mark.parametrize("folded", [False, True], ids=["as changes", "in a snapshot"])
async def test_access_control_entries_and_users_are_those_of_the_former_cluster_after_a_restore(
    site: Site, tmp_path: Path, folded: bool
) -> None:
    allow, deny = Acl(2, "t", 3, "User:alice", "*", 3, 3), Acl(3, "b", 4, "User:*", "10.0.0.7", 2, 2)
    gone = allow._replace(operation=4)
    await site.change(AclAdded(allow), AclAdded(gone), AclAdded(deny))
    await site.change(AclRemoved(gone))
    user = ScramCredential("alice", 1, 4_096, b"salt" * 4, b"stored", b"server")
    former = replace(user, mechanism=2)
    await site.change(ScramCredentialSet(user), ScramCredentialSet(former))
    await site.change(ScramCredentialRemoved("alice", 2))
    if folded:
        await site.fold(await site.metadata())
    await site.take(tmp_path / "b")
    await site.close()

    target = Site()
    streams = RestoredStreams(target.store.client("restore"), StoreSettings())
    await restore(check(tmp_path / "b", Progress()), streams, "c2", Progress())
    await streams.close()
    image = await target.metadata()
    assert image.acls == {allow, deny}
    assert image.credentials == {("alice", 1): user}
    assert list(image.topics) == ["t"]
    await target.close()
