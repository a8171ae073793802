"""Transactions during a backup: each is either in the backup as a whole, or is aborted after the restore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from kip932.ids import TopicIdPartition, topic_id_text
from partition_leader.topic_log.codec import batch_entry, producers_entry, read_batch, read_producers
from partition_leader.topic_log.core.batch import CONTROL_ABORT, CONTROL_COMMIT, LogBatch
from partition_leader.topic_log.core.producers import ProducerTable
from partition_leader.topic_log.core.transactions import LogTransactions
from shard_runtime.cluster.metadata import TopicCreated
from shard_runtime.record_log.protocol import Entry, ShardId, ShardKind, StreamId
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.codec import xadd
from shard_runtime.record_log.redis.connection import Command
from shard_runtime.record_log.redis.keys import transaction_key
from shard_runtime.record_log.redis.transaction_store import record_fields
from share_node.backup.format import StoredHash, StreamPage
from share_node.backup.manifest import Manifest
from share_node.backup.restoring import check
from share_node.backup.taking import DecidedTransactions, Progress, record_to_save
from tests.unit.share_node.backup.test_taking import Site, saved
from transaction_coordinator.codec import read_record, record_bytes
from transaction_coordinator.core.transaction import (
    Identity,
    State,
    Transaction,
    ended,
    finished,
    initialised,
    joined,
)

TOPIC_ID = b"\0" * 15 + b"\7"
P, Q = (ShardId(ShardKind.TOPIC, f"{topic_id_text(TOPIC_ID)}:{number}") for number in (0, 1))
ID, PRODUCER = "orders {7}\n", 71
BOTH = [TopicIdPartition(TOPIC_ID, number) for number in (0, 1)]


class Writer:
    """A producer that writes to both partitions, with their leaders and its transaction record. All act directly,
    between two commands of a backup."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.ends = {P: 0, Q: 0}
        self.epochs: dict[ShardId, int] = {}
        self.known = initialised(None, None, 60_000, PRODUCER)
        self.keep()

    def keep(self) -> None:
        data = record_bytes(ID, self.known, Random().getrandbits(64))
        self.site.store.master.data.hashes[transaction_key(ID)] = record_fields(transaction_key(ID), data)

    def add(self, shard: ShardId, *, control: int | None = None, epoch: int | None = None) -> None:
        """Append a record of the transaction, or a marker."""
        offset, marks = self.ends[shard], control is not None
        batch = LogBatch(
            offset, offset, 0 if marks else 4, b"" if marks else b"data", 1, -1, PRODUCER,
            self.known.identity.epoch if epoch is None else epoch, -1 if marks else 0, is_transactional=True,
            is_control=marks, control_type=control or 0, transactional_id="" if marks else ID,
        )  # fmt: skip
        self.ends[shard] = offset + 1
        self._append(shard.streams[0], batch_entry(self.epochs[shard], batch))

    def snapshot(self, shard: ShardId) -> None:
        """Append a snapshot of everything so far to the control log, without an open transaction."""
        at = StreamId(self.epochs[shard], self.ends[shard])
        made = producers_entry(at, self.ends[shard], ProducerTable(10), LogTransactions.none(), 1)
        self._append(shard.streams[1], made)

    def begin(self) -> None:
        self.known = joined(self.known, self.known.identity, BOTH, 1)
        self.keep()
        for shard in (P, Q):
            self.add(shard)

    def decide(self, *, commit: bool = True) -> None:
        self.known = ended(self.known, self.known.identity, BOTH, commit=commit)
        self.keep()

    def mark(self, *shards: ShardId) -> None:
        for shard in shards:
            self.add(shard, control=CONTROL_COMMIT if self.known.commits else CONTROL_ABORT)

    def finish(self) -> None:
        made = finished(self.known, self.known.identity, 1)
        assert made is not None
        self.known = made
        self.keep()

    def _append(self, stream: str, entry: Entry) -> None:
        words = xadd(stream, entry)[4:]
        fields = tuple(word.encode() if isinstance(word, str) else bytes(word) for word in words)
        self.site.store.master.effect("xadd", stream, (tuple(entry.id), fields))


@pytest_asyncio.fixture
async def writer() -> AsyncIterator[Writer]:
    site = Site()
    await site.cluster.init_cluster("c1")
    await site.change(TopicCreated("t", TOPIC_ID, 2))
    made = Writer(site)
    made.epochs = {shard: await site.own(shard) for shard in (P, Q)}
    yield made
    await site.close()


def batches(directory: Path, manifest: Manifest, shard: ShardId) -> list[LogBatch]:
    """Return the batches and markers of a log in the backup."""
    found = [
        read_batch(Entry(raw.id, raw.fields[1].decode(), raw.fields[3]))
        for item in saved(directory, manifest)
        if isinstance(item, StreamPage) and item.key == shard.streams[0]
        for raw in item.entries
    ]
    return [batch for batch in found if batch is not None]


def commits(directory: Path, manifest: Manifest) -> list[set[int]]:
    """Return, for each log, the producer epochs whose COMMIT marker is in the backup."""
    return [
        {each.producer_epoch for each in batches(directory, manifest, shard) if each.is_control and not each.is_abort}
        for shard in (P, Q)
    ]


def records(directory: Path, manifest: Manifest) -> dict[str, Transaction]:
    """Return the records of transactional ids in the backup."""
    return {
        item.key: read_record(item.fields[b"r"])
        for item in saved(directory, manifest)
        if isinstance(item, StoredHash) and item.key.startswith("{txn:")
    }


def once(writer: Writer, stream: str, nth: int, act: object) -> None:
    """Call `act` just before the backup asks for a stream's end for the nth time."""
    seen = 0

    def before(command: Command) -> None:
        nonlocal seen
        if command[:4] == ("EVALSHA", scripts.STREAM_TIP.digest, 1, stream):
            seen += 1
            if seen == nth:
                act()  # type: ignore[operator]

    writer.site.before = before


@pytest.mark.asyncio
@pytest.mark.rule("CM-146")
async def test_what_is_committed_between_two_logs_is_in_both(writer: Writer, tmp_path: Path) -> None:
    """P's log was read before the marker came, and Q's log is read after it."""
    writer.begin()

    def commit() -> None:
        writer.add(P)
        writer.add(Q)
        writer.decide()
        writer.mark(P, Q)
        writer.finish()

    once(writer, Q.streams[0], 1, commit)
    manifest = await writer.site.take(tmp_path / "b")
    assert commits(tmp_path / "b", manifest) == [{0}, {0}]
    assert [len(batches(tmp_path / "b", manifest, shard)) for shard in (P, Q)] == [3, 3]
    assert records(tmp_path / "b", manifest) == {}
    assert check(tmp_path / "b", Progress()).manifest == manifest


@pytest.mark.asyncio
@pytest.mark.rule("CM-146")
async def test_what_is_committed_after_the_records_were_read_is_committed_in_no_log(
    writer: Writer, tmp_path: Path
) -> None:
    """Otherwise its marker would be in Q alone, and a snapshot in Q's control log would show the transaction as
    ended."""
    writer.begin()

    def commit() -> None:
        writer.decide()
        writer.mark(Q, P)
        writer.finish()
        writer.add(Q)
        writer.snapshot(Q)

    once(writer, Q.streams[0], 1, lambda: once(writer, "{meta}:log", 1, commit))
    manifest = await writer.site.take(tmp_path / "b")
    assert commits(tmp_path / "b", manifest) == [set(), set()]
    assert [len(batches(tmp_path / "b", manifest, shard)) for shard in (P, Q)] == [1, 1]
    kept = [
        read_producers(Entry(raw.id, "P", raw.fields[3]))
        for item in saved(tmp_path / "b", manifest)
        if isinstance(item, StreamPage) and item.key == Q.streams[1]
        for raw in item.entries
        if raw.fields[1] == b"P"
    ]
    assert kept == []
    assert check(tmp_path / "b", Progress()).manifest == manifest


@pytest.mark.asyncio
@pytest.mark.rule("CM-146")
async def test_a_decision_without_all_of_its_markers_is_saved_with_its_record(writer: Writer, tmp_path: Path) -> None:
    writer.begin()
    writer.decide()
    writer.mark(P)
    manifest = await writer.site.take(tmp_path / "b")
    assert commits(tmp_path / "b", manifest) == [{0}, set()]
    (known,) = records(tmp_path / "b", manifest).values()
    assert (known.state, known.partitions, known.restored) == (State.PREPARE_COMMIT, tuple(BOTH), True)
    after = finished(known, known.identity, 99)
    assert after is not None
    assert after.identity == Identity(99, 0), "epochs after it may have been used, so another producer id follows"
    assert check(tmp_path / "b", Progress()).manifest == manifest


@pytest.mark.asyncio
@pytest.mark.rule("CM-146")
async def test_of_what_is_open_or_aborted_or_over_no_record_is_saved(writer: Writer, tmp_path: Path) -> None:
    for number, act in enumerate((writer.begin, lambda: writer.decide(commit=False), writer.finish)):
        act()
        manifest = await writer.site.take(tmp_path / str(number))
        assert records(tmp_path / str(number), manifest) == {}


@pytest.mark.asyncio
@pytest.mark.rule("CM-146", "CM-140")
async def test_a_record_that_cannot_be_read_is_reported_and_counted(writer: Writer, tmp_path: Path) -> None:
    writer.site.store.master.data.hashes[transaction_key("worn")] = {b"r": b"?", b"c": b"", b"x": b"0"}
    reported: list[str] = []
    manifest = await writer.site.take(tmp_path / "b", reported.append)
    assert manifest.damaged == 1
    assert "{txn:worn} cannot be read: its checksum" in reported[0]


@pytest.mark.rule("CM-146")
def test_a_marker_is_known_by_the_record_of_its_producer() -> None:
    decided = DecidedTransactions()
    known = Transaction(Identity(PRODUCER, 5), 1, State.ONGOING)
    decided.note(known)
    assert [decided.knows(PRODUCER, epoch) for epoch in (4, 5, 6)] == [True, False, False]
    assert not decided.knows(72, 0)
    decided.note(known._replace(state=State.PREPARE_COMMIT))
    decided.note(known)  # an id may be read twice
    assert [decided.knows(PRODUCER, epoch) for epoch in (5, 6)] == [True, False]
    assert record_to_save(ID, known, 1) is None
