"""`sharegroups state check` and `state skip`: find stored entries that are not what was written, and let replays skip
one (CM-101…CM-103).

The check only reads: the metadata log, the shards of both coordinators, and the partitions that the metadata or the
owner hints name. Damaged entries stay in the store, so that a person can examine or restore them.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

import click

from kip932.ids import topic_id_text
from partition_leader.topic_log.codec import read_batch, read_marker
from partition_leader.topic_log.core.coverage import Coverage
from shard_runtime.clock import SystemClock
from shard_runtime.cluster.metadata import MetadataImage, image_of
from shard_runtime.cluster.metadata_codec import decode
from shard_runtime.config import kafka_configs
from shard_runtime.record_log.damage_notes import DamageNotes
from shard_runtime.record_log.protocol import STREAM_START, Entry, LogError, ShardId, ShardKind, StreamId
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import Store, StoreSettings
from shard_runtime.record_log.redis.keys import META_LOG
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.settlements import Settlement
from share_node.node.serve import run
from share_node.state.dump import embedded_url, named_shard
from share_node.store.data_directory import DataDirectory, DataDirectoryError
from share_node.store.embedded_store import EmbeddedStore, EmbeddedStoreError
from share_node.store.store_option import StoreChoice, which_store
from share_node.store.stored_copy import loaded

_PAGE: Final = 500
_META: Final = "meta"
_ENTRY: Final = re.compile(r"(\d+)-(\d+)")
Finding = dict[str, object]


class StateCheck:
    """One check of all entries in a store."""

    def __init__(self, store: Store) -> None:
        self.entries = 0
        self._log = StoreRecordLog(store, StoreSettings(), SystemClock(), damage=DamageNotes(quiet=True))
        self._cluster = StoreClusterStore(store, StoreSettings(), DamageNotes(quiet=True))

    async def close(self) -> None:
        """Close every connection."""
        await self._log.close()
        await self._cluster.close()

    async def findings(self) -> AsyncIterator[Finding]:
        """Yield the findings one by one. Raises LogError when the store cannot be read."""
        image = MetadataImage()
        skipped = await self._cluster.skipped_metadata()
        after = 0
        while page := await self._cluster.read_metadata(after, _PAGE):
            for stored in page:
                self.entries += 1
                why = stored.damage
                try:
                    entry = decode(stored.data)
                    known = image_of(stored.version, entry.snapshot) if entry.snapshot is not None else image
                    image = known.apply(stored.version, () if why else entry.changes)
                except (ValueError, KeyError) as error:
                    why = why or f"it cannot be read: {error}"
                if why:
                    yield _finding(META_LOG, f"1-{stored.version}", why, stored.version in skipped)
            after = page[-1].version
        for shard in await self._shards(image):
            for stream in shard.streams:
                async for finding in self._stream(shard, stream):
                    yield finding

    async def _shards(self, image: MetadataImage) -> list[ShardId]:
        names: dict[ShardKind, set[str]] = {kind: set(await self._cluster.hints(kind)) for kind in ShardKind}
        names[ShardKind.GROUP] |= set(map(str, range(kafka_configs.GROUP_SHARDS.default)))
        names[ShardKind.SHARE_STATE] |= set(map(str, range(kafka_configs.STATE_SHARDS.default)))
        for topic in image.topics.values():
            names[ShardKind.TOPIC] |= {
                f"{topic_id_text(topic.topic_id)}:{number}" for number in range(topic.partitions)
            }
        return [ShardId(kind, name) for kind in ShardKind for name in sorted(names[kind])]

    async def _stream(self, shard: ShardId, stream: str) -> AsyncIterator[Finding]:
        """Yield damaged entries, and places where sequences or offsets show that entries are missing."""
        topic = shard.kind is ShardKind.TOPIC
        main = stream == shard.streams[0]
        skipped = await self._log.skipped(shard)
        after, before = STREAM_START, None
        coverage: Coverage | None = None
        while page := await self._log.read(stream, after, None, _PAGE if not topic else _PAGE // 10):
            for entry in page:
                self.entries += 1
                if entry.damage:
                    settled = skipped.get(entry.id) if main else None
                    yield _finding(stream, str(entry.id), entry.damage, settled is not None, settled)
                if topic and main:
                    coverage = _covered(coverage, entry)
                elif not topic and before is not None and not _follows(before, entry.id):
                    why = f"entries between {before} and it are missing"
                    yield _finding(stream, str(entry.id), why, entry.id in skipped, skipped.get(entry.id))
                before = entry.id
            after = page[-1].id
        for first, last in coverage.lost if coverage is not None else ():
            yield {"stream": stream, "unreadable_offsets": [first, last]}


def _covered(coverage: Coverage | None, entry: Entry) -> Coverage | None:
    """Return the coverage after an entry of a topic log; it begins with the first intact entry."""
    batch, hole = read_batch(entry), read_marker(entry)
    start, end = (batch.base_offset, batch.end_offset) if batch is not None else hole or (-1, -1)
    if start < 0:
        return coverage
    coverage = coverage or Coverage(start)
    coverage.holds(start, end)
    return coverage


def _follows(before: StreamId, entry: StreamId) -> bool:
    return entry.seq == (before.seq + 1 if before.epoch == entry.epoch else 0)


def _finding(stream: str, entry: str, why: str, skipped: bool, settled: Settlement | None = None) -> Finding:
    finding: Finding = {"stream": stream, "id": entry, "damaged": why, "skipped": skipped}
    return finding if settled is None else finding | {"settled": settled._asdict()}


@contextlib.asynccontextmanager
async def opened(where: StoreChoice) -> AsyncIterator[Store]:
    """Yield the chosen store. A data directory's own store is started when it does not run, since damage may
    keep `up` from running. Raises UsageError, EmbeddedStoreError, DataDirectoryError, ValueError or LogError."""
    data = where.checked().data
    if data is None:
        yield await loaded(where.opened())
        return
    running: str | None = None
    with contextlib.suppress(click.ClickException):
        running = embedded_url(data)
    if running is not None:  # outside the `suppress`, so that the caller's errors propagate
        yield await loaded(open_store(running))
        return
    if not (data / "store").is_dir():
        raise EmbeddedStoreError(
            f"{data} holds no data of `sharegroups up`; give the directory that --data names there"
        )
    embedded = EmbeddedStore(DataDirectory(data))
    await embedded.start()
    try:
        yield open_store(embedded.url)
    finally:
        await embedded.stop()


@click.command()
@which_store
def check(where: StoreChoice) -> None:
    """Check every stored entry, and print a line of JSON for each that is damaged or missing.

    Exit status: 0 when nothing is wrong, 1 when something is, or the store cannot be read.
    """
    found: list[Finding] = []
    entries = 0

    async def body() -> None:
        nonlocal entries
        async with opened(where) as store:
            checking = StateCheck(store)
            try:
                async for finding in checking.findings():
                    click.echo(json.dumps(finding))
                    found.append(finding)
            finally:
                entries = checking.entries
                await checking.close()

    run_or_fail(body)
    open_ones = sum(not finding.get("skipped") for finding in found)
    click.echo(f"{entries} entries checked, {len(found)} findings, {open_ones} of them not skipped.", err=True)
    sys.exit(1 if open_ones else 0)


@click.command()
@which_store
@click.option("--kind", type=click.Choice(["gc", "meta", "sgs"]), required=True,
              help="gc: group log, sgs: share-partition state, meta: metadata log.")  # fmt: skip
@click.option("--shard", default="", metavar="NAME", help="The number of the shard; not for meta.")
@click.option("--entry", required=True, metavar="ID", help="The entry, as an error or `state check` names it.")
def skip(where: StoreChoice, kind: str, shard: str, entry: str) -> None:
    """Continue without a damaged entry: its change is lost, and everything that depended on it is served again.

    The entry stays in the store. Running nodes take the shard up by themselves.
    """
    named = _ENTRY.fullmatch(entry)
    if named is None:
        raise click.UsageError(f"--entry is {entry!r}; expected EPOCH-SEQUENCE, as in 28512345-7")
    at = StreamId(int(named[1]), int(named[2]))
    if kind == _META and (shard or at.epoch != 1):
        raise click.UsageError("the metadata log has no shards, and its entries are 1-VERSION: --kind meta --entry 1-7")
    which = None if kind == _META else named_shard(kind, shard)

    async def body() -> None:
        async with opened(where) as store:
            if which is None:
                cluster = StoreClusterStore(store, StoreSettings(), DamageNotes(quiet=True))
                try:
                    found = await cluster.read_metadata(at.seq - 1, 1)
                    _require_there(META_LOG, at, [StreamId(1, one.version) for one in found])
                    await cluster.skip_metadata(at.seq)
                finally:
                    await cluster.close()
                return
            log = StoreRecordLog(store, StoreSettings(), SystemClock(), damage=DamageNotes(quiet=True))
            try:
                before = StreamId(at.epoch, at.seq - 1) if at.seq else StreamId(at.epoch - 1, 2**64 - 1)
                _require_there(
                    which.streams[0], at, [one.id for one in await log.read(which.streams[0], before, at, 1)]
                )
                await log.skip(which, at, Settlement(by=getpass.getuser()))
            finally:
                await log.close()

    run_or_fail(body)
    click.echo(f"Replays go on without {entry} of {META_LOG if which is None else which.streams[0]}.")


def _require_there(stream: str, entry: StreamId, found: Iterable[StreamId]) -> None:
    if entry not in found:
        raise click.ClickException(f"{stream} has no entry {entry}; `sharegroups state check` lists what is damaged")


def run_or_fail(body: Callable[[], Awaitable[None]]) -> None:
    """Run a command's work; print an error as one line."""
    failed: list[str] = []

    async def guarded() -> None:
        try:
            await body()
        except (LogError, ValueError, EmbeddedStoreError, DataDirectoryError) as error:
            failed.append(str(error))

    run(guarded)
    if failed:
        raise click.ClickException(failed[0])
