"""The store that `sharegroups state` reads, and the findings of a check of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from partition_leader.topic_log.codec import batch_entry, marker_entry
from partition_leader.topic_log.core.batch import LogBatch
from shard_runtime.record_log.protocol import Entry, ShardId, ShardKind, StreamId
from shard_runtime.record_log.redis.connection import Store
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.settlements import Choice, Settlement
from share_node.state import check
from share_node.state.check import Finding, StateCheck, opened
from share_node.store.embedded_store import EmbeddedStoreError
from share_node.store.store_option import StoreChoice


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are opened as if they had answered and loaded their data."""

    async def loaded(store: Store) -> Store:
        return store

    monkeypatch.setattr(check, "loaded", loaded)


async def nodes_of(store: str | None, data: Path | None) -> tuple[str, ...]:
    async with opened(StoreChoice(store, data=data)) as found:
        return found.nodes


@pytest.mark.usefixtures("answering")
def test_a_store_is_named_by_its_url_or_by_a_data_directory_and_not_by_both() -> None:
    assert asyncio.run(nodes_of("redis://h:1", None)) == ("h:1",)
    for store, data in ((None, None), ("redis://h:1", Path("d"))):
        with pytest.raises(click.UsageError, match="either --store URL or --data DIR"):
            asyncio.run(nodes_of(store, data))


def test_a_directory_that_holds_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedStoreError, match="holds no data"):
        asyncio.run(nodes_of(None, tmp_path))


@pytest.mark.usefixtures("answering")
def test_what_a_command_refuses_while_the_store_runs_reaches_its_caller(tmp_path: Path) -> None:
    (tmp_path / "store.sock").touch()
    (tmp_path / "store.socket-dir").write_text(str(tmp_path))

    async def refused() -> None:
        async with opened(StoreChoice(data=tmp_path)) as store:
            raise click.ClickException(f"{store.nodes[0]} has no such entry")

    with pytest.raises(click.ClickException) as reported:
        asyncio.run(refused())
    assert reported.value.message == f"{tmp_path}/store.sock has no such entry"


@pytest.mark.parametrize(
    "words",
    [("--shard", "3", "--entry", "1-7"), ("--entry", "2-7"), ("--shard", "3", "--entry", "2-7")],
    ids=["a shard", "another epoch", "both"],
)
def test_the_metadata_log_has_no_shards_and_one_epoch(words: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(check.skip, ["--store", "redis://h:1", "--kind", "meta", *words])
    assert refused.exit_code == 2
    assert "the metadata log has no shards, and its entries are 1-VERSION" in refused.output


TOPIC = ShardId(ShardKind.TOPIC, "AAAAAAAAAAAAAAAAAAAAAQ:0")
GROUP = ShardId(ShardKind.GROUP, "3")
SETTLED = Settlement(Choice.SKIP, "ann", "lost", 7)


@dataclass
class Log:
    """The entries of a store, by stream."""

    streams: dict[str, list[Entry]]
    noted: dict[StreamId, Settlement] = field(default_factory=dict)

    async def read(self, stream: str, after: StreamId, _: None, count: int) -> list[Entry]:
        return [entry for entry in self.streams.get(stream, []) if entry.id > after][:count]

    async def skipped(self, _: ShardId) -> dict[StreamId, Settlement]:
        return self.noted

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Cluster:
    """A store without metadata, whose hints name one topic-partition."""

    async def hints(self, kind: ShardKind) -> list[str]:
        return [TOPIC.name] if kind is ShardKind.TOPIC else []

    async def skipped_metadata(self) -> set[int]:
        return set()

    async def read_metadata(self, *_: int) -> list[object]:
        return []

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def checked(log: Log, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Finding], int]:
    """Return the findings of a check, and how many entries it read."""
    monkeypatch.setattr(check, "StoreRecordLog", lambda *_, **__: log)
    monkeypatch.setattr(check, "StoreClusterStore", lambda *_: Cluster())

    async def all_of_it() -> tuple[list[Finding], int]:
        check = StateCheck(open_store("redis://h:1"))
        found = [finding async for finding in check.findings()]
        await check.close()
        return found, check.entries

    return asyncio.run(all_of_it())


def batch(epoch: int, base: int, records: int) -> Entry:
    return batch_entry(epoch, LogBatch(base, base + records - 1, 1, b"x", 0, 0))


def damaged(entry: Entry) -> Entry:
    return entry._replace(damage="its bytes are not those that were written")


@pytest.mark.rule("CM-101")
def test_offsets_of_a_log_that_neither_a_batch_nor_a_marker_accounts_for_are_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, control = TOPIC.streams
    entries = [
        Entry(StreamId(1, 0), "O", b"claim"),
        batch(1, 5, 5),
        marker_entry(1, 20, 0, jump_from=10),
        batch(1, 20, 2),
        Entry(StreamId(2, 0), "O", b"claim"),
        marker_entry(2, 22, 0),
        damaged(batch(2, 22, 3)),
        batch(2, 25, 1),
    ]
    other = [Entry(StreamId(1, seq), "P", b"") for seq in (1, 7)]
    found, count = checked(Log({log: entries, control: other}), monkeypatch)
    assert found == [
        {"stream": log, "id": "2-25", "damaged": entries[6].damage, "skipped": False},
        {"stream": log, "unreadable_offsets": [22, 24]},
    ]
    assert count == 10


@pytest.mark.rule("CM-101")
def test_in_a_coordinators_log_each_entry_follows_the_one_before_or_begins_a_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (log,) = GROUP.streams
    ids = [(3, 8), (3, 9), (4, 0), (4, 1), (4, 3), (6, 1), (6, 2)]
    entries = [Entry(StreamId(*at), "R", b"") for at in ids]
    found, count = checked(Log({log: entries}, {StreamId(6, 1): SETTLED}), monkeypatch)
    assert found == [
        {"stream": log, "id": "4-3", "damaged": "entries between 4-1 and it are missing", "skipped": False},
        {"stream": log, "id": "6-1", "damaged": "entries between 4-3 and it are missing", "skipped": True}
        | {"settled": {"choice": "skip", "by": "ann", "why": "lost", "at_ms": 7}},
    ]
    assert count == len(ids)


@pytest.mark.rule("CM-101", "CM-102")
def test_a_damaged_entry_says_whether_replays_skip_it_and_longer_streams_are_read_to_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (log,) = GROUP.streams
    entries = [Entry(StreamId(1, seq), "R", b"") for seq in range(1_200)]
    entries[700], entries[1_199] = damaged(entries[700]), damaged(entries[1_199])
    found, count = checked(Log({log: entries}, {StreamId(1, 700): SETTLED}), monkeypatch)
    assert [(finding["id"], finding["skipped"]) for finding in found] == [("1-700", True), ("1-1199", False)]
    assert count == 1_200
