"""The current code with records of an invented next version: unknown fields, unknown types, higher versions.

During a rollout, and after one that is reverted, old nodes read what newer ones wrote (CM-16): what they do not know is
skipped and counted and never fatal, and no compaction removes it, so that nodes that do know it still find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from unittest import mock

import pytest
from google.protobuf.message import Message

from kip932.records.v1.metadata_log_pb2 import MetadataRecord, TopicCreated
from shard_runtime.clock import SystemClock
from shard_runtime.cluster import metadata_log
from shard_runtime.cluster.metadata import Change, ConfigSet, TopicDeleted
from shard_runtime.hosting.compaction_plan import CompactionLimits, Positions
from shard_runtime.hosting.shard import Anchor
from shard_runtime.record_log.cluster_store import StoredMetadata, metadata_digest
from shard_runtime.record_log.protocol import CLAIM_TYPE, Entry, StreamId
from shard_runtime.record_log.redis.keys import META_CLUSTER_ID, META_LOG
from share_metrics.reader import EntryId, Kind
from share_metrics.reader.decoding import RawEntry, decode
from tests.twin import MemoryStore
from tests.twin.store import memory_cluster_store
from tests.upgrade.kept import Dump, read_dump, read_state
from tests.upgrade.kinds import message_of
from tests.upgrade.replayed import state_of

VERSION = "0.1.0"
#: Tag and value of a number field 5000, which no message declares.
UNKNOWN_FIELD = b"\xc0\xb8\x02\x2a"

Rewrite = Callable[[str, list[Entry]], list[Entry]]


def rewritten(change: Rewrite, *streams: str) -> Dump:
    """Return the dump with `change` applied to the entries of some kinds of stream, given by prefix."""
    dump = read_dump(VERSION)
    return Dump(
        {key: change(key, entries) if key.startswith(streams) else entries for key, entries in dump.streams.items()},
        dump.hashes,
        dump.strings,
    )


def state(dump: Dump) -> dict[str, object]:
    return asyncio.run(state_of(dump))


# ---- unknown fields


def with_unknown_fields(key: str, entries: list[Entry]) -> list[Entry]:
    """Add a field to every message at every depth."""
    return [entry._replace(record=extended(message_of(key, entry)).SerializeToString()) for entry in entries]


def extended(message: Message) -> Message:
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                extended(each)
    message.MergeFromString(UNKNOWN_FIELD)
    return message


@pytest.mark.rule("CM-16", "SR-26")
def test_fields_of_a_later_version_change_nothing() -> None:
    dump = rewritten(with_unknown_fields, "{")
    before = read_dump(VERSION)
    for key, entries in dump.streams.items():
        for old, new in zip(before.streams[key], entries, strict=True):
            assert UNKNOWN_FIELD in new.record, f"{key} {new.id}"
            assert len(new.record) > len(old.record)
    assert state(dump) == read_state(VERSION)


# ---- unknown types


def with_unknown_types(key: str, entries: list[Entry]) -> list[Entry]:
    """Add an entry of an unknown type after each entry, with bytes that are not a valid message."""
    found = []
    for entry in entries:
        doubled = StreamId(entry.id.epoch, 2 * entry.id.seq)
        found += [entry._replace(id=doubled), Entry(StreamId(doubled.epoch, doubled.seq + 1), "Z", b"\xff\xff\xff")]
    return found


@pytest.mark.rule("CM-16", "SC-51", "SR-26")
def test_types_of_a_later_version_are_skipped_and_counted() -> None:
    dump = rewritten(with_unknown_types, "{gc:", "{sgs:")
    for fields in dump.hashes.values():
        if "replay_from" in fields:
            epoch, seq = map(int, fields["replay_from"].split("-"))
            fields["replay_from"] = f"{epoch}-{2 * seq}"
    strangers = sum(entry.kind == "Z" for entries in dump.streams.values() for entry in entries)
    assert strangers > 80
    assert state(dump) == {**read_state(VERSION), "unknown": strangers}


@pytest.mark.rule("CM-16", "CM-40")
def test_unknown_types_in_the_logs_of_a_topic_move_neither_its_start_nor_its_end() -> None:
    def change(key: str, entries: list[Entry]) -> list[Entry]:
        last = entries[-1].id
        return [*entries, Entry(StreamId(last.epoch, last.seq + 1), "Z", b"\xff")] if key.endswith(":ctl") else entries

    assert state(rewritten(change, "{tp:")) == read_state(VERSION)


# ---- higher versions


def later(key: str, entry: Entry) -> Entry | None:
    """Return the entry as if from a version that redefines its fields; None if it has no version."""
    message = message_of(key, entry)
    if entry.kind == CLAIM_TYPE or "record_version" not in message.DESCRIPTOR.fields_by_name:
        return None
    setattr(message, "record_version", 1)  # noqa: B010 - not every message has it
    return entry._replace(record=message.SerializeToString())


def with_later_versions(key: str, entries: list[Entry]) -> list[Entry]:
    """Append a copy of each entry with a higher version, newest first."""
    last = entries[-1].id
    copies = [copy for entry in entries if entry.kind != "N" and (copy := later(key, entry)) is not None]
    copies.reverse()  # so that replaying them would restore old state
    return [*entries, *(copy._replace(id=StreamId(last.epoch, last.seq + at)) for at, copy in enumerate(copies, 1))]


@pytest.mark.rule("CM-16", "SC-51", "SR-26")
def test_records_of_a_higher_version_are_skipped_and_counted() -> None:
    dump, before = rewritten(with_later_versions, "{gc:", "{sgs:"), read_dump(VERSION)
    more = sum(len(entries) - len(before.streams[key]) for key, entries in dump.streams.items())
    assert more > 80
    assert state(dump) == {**read_state(VERSION), "unknown": more}


@pytest.mark.rule("CM-16", "CM-40", "CM-43")
def test_a_log_start_and_producers_of_a_higher_version_leave_the_last_known_ones_in_force() -> None:
    def change(key: str, entries: list[Entry]) -> list[Entry]:
        return with_later_versions(key, entries) if key.endswith(":ctl") else entries

    assert state(rewritten(change, "{tp:")) == read_state(VERSION)


@pytest.mark.rule("CM-16", "CM-40")
def test_a_batch_of_a_higher_version_is_skipped_with_its_offsets() -> None:
    """Its offsets stay in use: the log ends after the batch, so nothing is ever appended in its place."""
    logs = {key: entries for key, entries in read_dump(VERSION).streams.items() if key.startswith("{tp:")}
    stream = next(key for key in logs if key.endswith(":1}:log") and len(logs[key]) > 2)

    def change(key: str, entries: list[Entry]) -> list[Entry]:
        if key != stream:
            return entries
        copy = later(key, entries[-1])
        assert copy is not None
        return [*entries[:-1], copy]

    found, before = state(rewritten(change, "{tp:")), read_state(VERSION)
    assert found["unknown"] == 1
    name = stream.removeprefix("{tp:").removesuffix("}:log")
    partitions: dict[str, dict[str, list[object]]] = found["partitions"]  # type: ignore[assignment]
    assert partitions[name]["log"] == before["partitions"][name]["log"]
    assert partitions[name]["records"] == before["partitions"][name]["records"][:-2]


@pytest.mark.rule("PM-13")
@pytest.mark.parametrize(("kind", "letter"), [(Kind.GROUP, "10"), (Kind.SHARE_STATE, "U"), (Kind.LOG_META, "B")])
def test_the_pipeline_counts_what_the_services_skip(kind: Kind, letter: str) -> None:
    dump = read_dump(VERSION)
    key, entry = next((key, each) for key in dump.streams for each in dump.streams[key] if each.kind == letter)
    copy = later(key, entry)
    assert copy is not None
    rows = [decode(kind, RawEntry(key, EntryId(*each.id), each.kind, each.record)) for each in (entry, copy)]
    assert [row["record_type"] == "unknown" for row in rows] == [False, True]


# ---- unknown records are kept for newer nodes


@pytest.mark.rule("CM-16", "CM-18")
def test_a_log_with_unknown_entries_is_not_compacted() -> None:
    """Cold copies replace entries that were replayed; a trim after them would remove those that were skipped."""
    positions = Positions(CompactionLimits(entries_min=10))
    for seq in range(1, 12):
        positions.note(StreamId(1, seq), Anchor("key", True))
    assert positions.due()
    positions.note_unknown(StreamId(1, 12))
    for seq in range(13, 100):
        positions.note(StreamId(1, seq), Anchor("key", True))
    assert not positions.due()
    assert positions.entries == 99


async def metadata_of(
    entries: Sequence[Entry], changes: Sequence[Change] = ()
) -> tuple[metadata_log.MetadataLog, list[StoredMetadata]]:
    """Return a node's metadata log after the node has read these entries and made a change after which it would
    fold."""
    dump = read_dump(VERSION)
    dump.streams = {META_LOG: list(entries)}
    store = MemoryStore(SystemClock(), Random(1))
    try:
        connection = await store.client("dump").connect("")
        await connection.run(list(dump.commands()), 5_000)
        cluster = memory_cluster_store(store)
        log = metadata_log.MetadataLog(cluster, SystemClock(), dump.strings[META_CLUSTER_ID])
        await log.load()
        with mock.patch.object(metadata_log, "SNAPSHOT_EVERY", 3):
            await log.change(lambda _: changes)
        left = await cluster.read_metadata(0, 1_000)
        await cluster.close()
        return log, left
    finally:
        await store.close()


def metadata_entry(version: int, record_version: int, name: str) -> Entry:
    record = MetadataRecord(record_version=record_version, change_id=bytes([version]) * 16)
    record.changes.add(topic_created=TopicCreated(name=name, topic_id=bytes([version]) * 16, partitions=1))
    return Entry(StreamId(1, version), "V", record.SerializeToString())


def unknown_change(version: int) -> Entry:
    record = MetadataRecord(change_id=bytes([version]) * 16)
    record.changes.add().MergeFromString(b"\x9a\x06\x00")  # field 99 of the oneof, an empty message
    return Entry(StreamId(1, version), "V", record.SerializeToString())


CHANGE = [ConfigSet(2, "a", "retention.ms", "1")]


@pytest.mark.rule("CM-16", "CM-20")
@pytest.mark.parametrize(
    "strange", [metadata_entry(2, 1, "later"), unknown_change(2)], ids=["higher-version", "unknown-change"]
)
def test_metadata_of_a_later_version_are_skipped_and_never_folded_away(
    strange: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [metadata_entry(1, 0, "a"), strange, metadata_entry(3, 0, "c")]
    log, left = asyncio.run(metadata_of(known, CHANGE))
    assert set(log.image.topics) == {"a", "c"}
    assert log.image.version == 4
    assert [stored.version for stored in left] == [1, 2, 3, 4]  # a fold would have replaced them by a snapshot
    assert metadata_digest(left[1][1]) == metadata_digest(strange.record)
    assert "newer_metadata_skipped" in capsys.readouterr().out


@pytest.mark.rule("CM-20")
def test_metadata_of_this_version_are_folded() -> None:
    known = [metadata_entry(version, 0, f"t{version}") for version in (1, 2, 3)]
    log, left = asyncio.run(metadata_of(known, [*CHANGE, TopicDeleted(bytes([2]) * 16, "t2", 5)]))
    assert set(log.image.topics) == {"t1", "t3"}
    assert [stored.version for stored in left] == [5]


@pytest.mark.rule("CM-20")
def test_a_gap_after_a_snapshot_that_cannot_be_read_is_refused_in_words() -> None:
    """An older node that starts after a newer one has folded the log refuses to serve rather than serve half the
    metadata."""
    strange = metadata_entry(7, 1, "later")
    with pytest.raises(metadata_log.MetadataLogError, match="version 7 follows 0 without a snapshot"):
        asyncio.run(metadata_of([strange], CHANGE))
