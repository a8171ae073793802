"""Takes a backup of a running system: reads the streams in the order of `READ_ORDER`, page by page, and saves them
(CM-141).

One read is outstanding at a time, and one write to disk beside it: so memory use stays constant and the store is never
busy with more than one page.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from kip932.ids import topic_id_text
from partition_leader.topic_log.codec import PRODUCERS_TYPE, read_batch, read_producers
from shard_runtime.clock import Clock
from shard_runtime.cluster.metadata import MetadataImage, image_of
from shard_runtime.cluster.metadata_codec import decode
from shard_runtime.cluster.node import SHARDS_FIXED
from shard_runtime.hosting.replay import predecessor
from shard_runtime.record_log.protocol import STREAM_START, Entry, LogError, ShardId, ShardKind, StreamId, StreamTip
from shard_runtime.record_log.redis.keys import META_LOG, META_SKIP, NODE_NAMES, NODE_NEXT_ID, transaction_key
from shard_runtime.record_log.redis.stream_copies import RawEntry, RawPage, StreamCopies
from shard_runtime.record_log.redis.transaction_store import record_fields
from shard_runtime.record_log.transaction_store import StoredTransaction
from share_node.backup.format import Item, StoredHash, StoredString, StreamPage
from share_node.backup.manifest import Manifest
from share_node.backup.segments import SegmentWriter
from transaction_coordinator.codec import UnknownRecordError, read_record, record_bytes
from transaction_coordinator.core.transaction import State, Transaction

_WHAT: Final = {ShardKind.SHARE_STATE: "share state", ShardKind.GROUP: "groups", ShardKind.TOPIC: "topic partitions"}

#: The kinds of shards in the order in which they are read; the metadata log comes after them. The order makes the cut
#: consistent: data is read before the data that it refers to. Share-partition state names offsets, so it is read before
#: the topics that hold them. Its state epochs come from its group, so it is read before the groups. All of them name
#: topics, so the metadata is read last. (For transactions, see `DecidedTransactions`.)
READ_ORDER: Final = (ShardKind.SHARE_STATE, ShardKind.GROUP, ShardKind.TOPIC)
#: The maximum number of times a stream is read from its beginning, if it is trimmed during the read.
READ_ATTEMPTS_MAX: Final = 10
_PAGE_BYTES: Final = 1024 * 1024
_ENTRIES_FIRST: Final = 16
_ENTRIES_MAX: Final = 500


class PageSize:
    """The number of entries to read at once: XRANGE has no byte limit, so the largest entry so far determines it.

    It starts low and at most doubles, so that the first page of large entries does not have five hundred of them.
    """

    __slots__ = ("_largest", "count")

    def __init__(self) -> None:
        self.count = _ENTRIES_FIRST
        self._largest = 1

    def learn(self, largest: int) -> None:
        """Note the bytes of a page's largest entry."""
        self._largest = max(self._largest, largest)
        self.count = max(1, min(_PAGE_BYTES // self._largest, self.count * 2, _ENTRIES_MAX))


class StreamReading:
    """One stream read from `start` through `through`, both inclusive, page by page.

    `trims_matter`: an entry trimmed before it was read is missing, because the replay begins at `start`. False for a
    topic log: only records below the log start are trimmed there, and the control log, which is read later, has that
    start.

    `overtaken`: `start` is after the end that was seen, so the owner has compacted the stream since: read it again.
    """

    __slots__ = ("_held", "_trims_matter", "after", "done", "overtaken", "through")

    def __init__(self, start: StreamId, through: StreamId, *, trims_matter: bool) -> None:
        self.through = through
        self.after = predecessor(start)
        self.done = start > through
        self.overtaken = trims_matter and start > through
        self._held = start
        self._trims_matter = trims_matter

    def page(self, first: StreamId, ids: tuple[StreamId, StreamId] | None) -> bool:
        """Note a page. `first`: the oldest id in the stream right after the page was read. `ids`: the page's first and
        last id.

        Returns whether nothing is missing before or in this page. When something is missing, read the stream again.
        """
        if self._trims_matter and first > self._held:
            return False
        if ids is None:
            self.done = True
            return not self._trims_matter or self.after >= self.through
        self.after = self._held = ids[1]
        self.done = self.after >= self.through
        return True


_Start = Callable[[StreamTip], Awaitable[StreamReading]]
_Take = Callable[[str, RawPage], Awaitable[None]]


class DecidedTransactions:
    """The transactions that were over, or committed, when their records were read: one epoch for each producer id.

    It cuts topic logs so that each transaction is in a backup whole, or is aborted after its restore (CM-146). The
    records of transactional ids are read once, between two readings of every log. A transaction that is committed by
    then has all of its records in the logs as they are read afterwards. One committed later is not committed in the
    backup, so no log is saved beyond its COMMIT marker.
    """

    def __init__(self) -> None:
        self._through: dict[int, int] = {}

    def note(self, known: Transaction) -> None:
        """Note the record of a transactional id."""
        producer_id, epoch = known.identity
        over = epoch if known.state is State.PREPARE_COMMIT else epoch - 1
        for each, last in ((producer_id, over), *(past.identity for past in known.ended)):
            self._through[each] = max(self._through.get(each, -1), last)

    def knows(self, producer_id: int, epoch: int) -> bool:
        """Return whether a COMMIT marker of this transaction may be in the backup."""
        return epoch <= self._through.get(producer_id, -1)

    def before_commits(self, page: RawPage) -> RawPage:
        """Return a log's entries before the first COMMIT marker that must be left out of the backup."""
        damaged = {at for at, _ in page.damaged}
        for index, raw in enumerate(page.entries):
            batch = None if raw.id in damaged else read_batch(_entry(raw))
            commits = batch is not None and batch.is_control and not batch.is_abort
            if batch is not None and commits and not self.knows(batch.producer_id, batch.producer_epoch):
                return _page_of(page, page.entries[:index])
        return page


@dataclass(slots=True)
class Progress:
    """The progress of a backup or a restore: `done` of `total` parts of a step, and the bytes of all steps so far.
    `given_up`: the caller no longer waits for it."""

    step: str = ""
    done: int = 0
    total: int = 0
    bytes: int = 0
    given_up: bool = False


@dataclass(slots=True)
class _Counts:
    streams: int = 0
    entries: int = 0
    damaged: int = 0
    stream: str = ""
    """The stream that was counted last: a stream without a page in the backup does not count."""

    def copy(self) -> _Counts:
        return replace(self)


class _End(NamedTuple):
    """How far a topic log is saved: the last entry's id, and the log's end there, the highest next offset (CM-40)."""

    last: StreamId
    log_end: int


class BackupRun:
    """One backup. `bytes_per_s`: the maximum rate at which to read from the store; None for no limit.

    `on_damage`: called with a description of each damaged entry found. Raises LogError and BackupFilesError.
    """

    def __init__(
        self,
        copies: StreamCopies,
        writer: SegmentWriter,
        clock: Clock,
        *,
        bytes_per_s: float | None = None,
        on_damage: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.progress = Progress()
        self._copies = copies
        self._writer = writer
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._on_damage = on_damage
        self._counts = _Counts()
        self._reported: set[tuple[str, str]] = set()
        self._decided = DecidedTransactions()
        self._ends: dict[str, _End] = {}
        self._writing: asyncio.Task[None] | None = None
        self._began_s = 0.0

    async def take(self, cluster_id: str, made_by: str) -> Manifest:
        """Read everything and write it; the manifest is returned, and published as the last step."""
        began_ms = self._clock.wall_ms()
        self._began_s = asyncio.get_running_loop().time()
        try:
            await self._copies.begin()
            shards = await self._small_keys()
            listed = MetadataImage()
            vanished: list[ShardId] = []
            for kind in READ_ORDER:
                if kind is ShardKind.TOPIC:
                    listed = await self._metadata(keep=False)
                    shards[kind] = topic_shards(listed)
                vanished += await self._kind(kind, shards[kind])
            await self._transactions()
            relisted = await self._metadata(keep=False)  # committed records may be in topics created since
            vanished += await self._read_tails(topic_shards(relisted))
            last = await self._metadata(keep=True)
            left_out = sorted({*deleted_meanwhile(listed, last), *deleted_meanwhile(relisted, last)})
            _require_deleted(vanished, left_out)
            await self._in_thread(self._writer.seal)
        finally:
            await self._written()
        manifest = Manifest(
            backup_id=secrets.token_hex(16),
            cluster_id=cluster_id,
            began_ms=began_ms,
            ended_ms=self._clock.wall_ms(),
            made_by=made_by,
            streams=self._counts.streams,
            entries=self._counts.entries,
            topics=len(last.topics),
            damaged=self._counts.damaged,
            left_out=tuple(left_out),
            segments=tuple(self._writer.segments),
        )
        try:
            await self._in_thread(partial(self._writer.publish, manifest))
        finally:
            await self._written()
        return manifest

    async def _small_keys(self) -> dict[ShardKind, list[ShardId]]:
        """Save the numbers of shards and the nodes' numbers, which per-node configs name. Returns the coordinators'
        shards."""
        names = await self._copies.hash_of(NODE_NAMES)  # read before the next free number, which is above all of these
        if names:
            await self._put(StoredHash(NODE_NAMES, names))
        found: dict[str, bytes] = {}
        for key in (NODE_NEXT_ID, *(key for key, _ in SHARDS_FIXED)):
            value = await self._copies.string_of(key)
            if value is not None:
                found[key] = value
                await self._put(StoredString(key, value))
        kinds = (ShardKind.GROUP, ShardKind.SHARE_STATE)
        numbers = [int(found.get(key, setting.default)) for key, setting in SHARDS_FIXED]
        return {
            kind: [ShardId(kind, str(each)) for each in range(number)]
            for kind, number in zip(kinds, numbers, strict=True)
        }

    async def _kind(self, kind: ShardKind, shards: list[ShardId]) -> list[ShardId]:
        """Read all shards of a kind. Returns those whose streams were deleted while they were read."""
        self.progress.step, self.progress.done, self.progress.total = _WHAT[kind], 0, len(shards)
        vanished = []
        for shard in shards:
            if kind is not ShardKind.TOPIC:
                await self._whole(shard.streams[0], shard)
            elif not await self._partition(shard):
                vanished.append(shard)
            self.progress.done += 1
        return vanished

    async def _partition(self, shard: ShardId) -> bool:
        """Read the log of a partition as it is now. Returns False when it was deleted."""
        stream = shard.streams[0]
        tip = await self._copies.tip(stream)
        if tip is None or not tip.length:
            return True
        return await self._read(stream, StreamReading(tip.first, tip.last, trims_matter=False), self._save_log)

    async def _transactions(self) -> None:
        """Note which transactions are committed or over; save those that still lack markers (CM-146)."""
        self.progress.step, self.progress.done, self.progress.total = "transactions", 0, 1
        saved: set[str] = set()

        async def take(transactional_id: str, stored: StoredTransaction) -> None:
            key = transaction_key(transactional_id)
            try:
                known = read_record(stored.record or b"") if not stored.damage else None
            except UnknownRecordError:
                known = None
            if known is None:
                self._counts.damaged += 1
                self._on_damage(f"{key} cannot be read: {stored.damage or 'it is of a newer version'}")
                return
            self._decided.note(known)
            record = record_to_save(transactional_id, known, secrets.randbits(64))
            if record is not None and key not in saved:
                saved.add(key)
                await self._put(StoredHash(key, record_fields(key, record)))

        await self._copies.transactions(take)

    async def _read_tails(self, shards: list[ShardId]) -> list[ShardId]:
        """Read the rest of the logs, after the saved part, and the control logs. Returns the shards that were
        deleted."""
        self.progress.step, self.progress.done, self.progress.total = "ends of topic partitions", 0, len(shards)
        vanished = []
        for shard in shards:
            if not await self._read_tail(shard):
                vanished.append(shard)
            self.progress.done += 1
        return vanished

    async def _read_tail(self, shard: ShardId) -> bool:
        """Read the rest of a log, after the saved part, up to a commit that is not in the backup; then its control log,
        which thus has every trim of the log. Returns False when it was deleted."""
        stream, control = shard.streams
        tip = await self._copies.tip(stream)
        end = self._ends.get(stream)
        if tip is not None and tip.length:
            reading = StreamReading(tip.first if end is None else successor(end.last), tip.last, trims_matter=False)

            async def take(name: str, page: RawPage) -> None:
                kept = self._decided.before_commits(page)
                reading.done = reading.done or len(kept.entries) < len(page.entries)
                if kept.entries:
                    await self._save_log(name, kept)

            if not await self._read(stream, reading, take):
                return False
        elif end is not None:
            return False
        log_end = self._ends[stream].log_end if stream in self._ends else 0

        async def take_control(name: str, page: RawPage) -> None:
            kept = control_page_within(page, log_end)
            if kept.entries:
                await self._save(name, kept)

        return await self._read_with_retries(control, _from_first, take_control)

    async def _whole(self, stream: str, shard: ShardId) -> None:
        """Read a coordinator's log from where its replay begins; start over if it is trimmed meanwhile."""

        async def start(tip: StreamTip) -> StreamReading:
            return StreamReading(max(await self._copies.replay_from(shard), tip.first), tip.last, trims_matter=True)

        await self._read_with_retries(stream, start, self._save)
        await self._skips(shard.skip_key)

    async def _metadata(self, *, keep: bool) -> MetadataImage:
        """Read the metadata log; with `keep`, save it too."""
        self.progress.step, self.progress.done, self.progress.total = "metadata", 0, 1
        images: list[MetadataImage] = []

        async def start(tip: StreamTip) -> StreamReading:
            images[:] = [MetadataImage()]
            return await _from_first(tip)

        async def take(stream: str, page: RawPage) -> None:
            damaged = {at for at, _ in page.damaged}
            for entry in page.entries:
                images[0] = image_after(images[0], entry, damaged=entry.id in damaged)
            if keep:
                await self._save(stream, page)

        await self._read_with_retries(META_LOG, start, take, keep=keep)
        if keep:
            await self._skips(META_SKIP)
        return images[0] if images else MetadataImage()

    async def _skips(self, key: str) -> None:
        noted = await self._copies.hash_of(key)
        if noted:
            await self._put(StoredHash(key, noted))

    async def _read_with_retries(self, stream: str, start: _Start, take: _Take, *, keep: bool = True) -> bool:
        """Read a stream; discard it and read it again when entries were trimmed before they were read. Returns False
        when it was deleted meanwhile."""
        counts = self._counts.copy()
        went = False
        if keep:
            await self._in_thread(self._writer.keep)
        for attempt in range(READ_ATTEMPTS_MAX):
            tip = await self._copies.tip(stream)
            if tip is None or not tip.length:
                went = attempt > 0
                break
            if await self._read(stream, await start(tip), take):
                break
            if keep:
                await self._in_thread(self._writer.rewind)
                self._counts = counts.copy()
        else:
            raise LogError(
                f"{stream} was trimmed {READ_ATTEMPTS_MAX} times while it was read; read it faster (--rate), or try "
                "again"
            )
        await self._in_thread(self._writer.settle)
        return not went

    async def _read(self, stream: str, reading: StreamReading, take: _Take) -> bool:
        """Read a stream page by page. Returns False when entries are missing or the stream was deleted."""
        size = PageSize()
        if reading.overtaken:
            return False
        while not reading.done:
            page = await self._copies.page(stream, reading.after, reading.through, size.count)
            if page is None:
                return False
            ids = (page.entries[0].id, page.entries[-1].id) if page.entries else None
            if not reading.page(page.first, ids):
                return False
            if page.entries:
                size.learn(page.largest)
                await take(stream, page)
            self.progress.bytes += page.size
            await asyncio.sleep(self._pause_s())
        return True

    def _pause_s(self) -> float:
        elapsed_s = asyncio.get_running_loop().time() - self._began_s
        return pause_s(self.progress.bytes, elapsed_s, self._bytes_per_s)

    async def _save_log(self, stream: str, page: RawPage) -> None:
        """Save a page of a topic log, and note its end."""
        await self._save(stream, page)
        former = self._ends.get(stream, _End(STREAM_START, 0))
        ends = max(entry.id.seq for entry in page.entries)
        self._ends[stream] = _End(page.entries[-1].id, max(former.log_end, ends))

    async def _save(self, stream: str, page: RawPage) -> None:
        self._counts.streams += stream != self._counts.stream and stream not in self._ends
        self._counts.stream = stream
        self._counts.entries += len(page.entries)
        self._counts.damaged += len(page.damaged)
        for at, why in page.damaged:
            if (stream, str(at)) not in self._reported:
                self._reported.add((stream, str(at)))
                self._on_damage(f"{stream} {at} is damaged in the store: {why}")
        await self._put(StreamPage(stream, page.entries))

    async def _put(self, item: Item) -> None:
        """Write an item in a thread, while the next page is read; at most one at a time."""
        await self._written()
        self._writing = asyncio.create_task(asyncio.to_thread(self._writer.add, item))

    async def _in_thread(self, step: Callable[[], None]) -> None:
        """Call the writer in a thread, after everything that was put."""
        await self._written()
        self._writing = asyncio.create_task(asyncio.to_thread(step))
        await self._written()

    async def _written(self) -> None:
        """Wait for the outstanding write. A cancelled wait leaves it running, because a thread cannot be ended: wait
        again."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None


async def _from_first(tip: StreamTip) -> StreamReading:
    return StreamReading(tip.first, tip.last, trims_matter=True)


def topic_shards(image: MetadataImage) -> list[ShardId]:
    """The partitions of all topics, in order."""
    return [
        ShardId(ShardKind.TOPIC, f"{topic_id_text(topic.topic_id)}:{number}")
        for topic in image.topics.values()
        for number in range(topic.partitions)
    ]


def deleted_meanwhile(listed: MetadataImage, last: MetadataImage) -> list[str]:
    """Return the ids, as text, of topics that were listed and that the metadata of the backup no longer has: their
    records are left out on restore."""
    return sorted(topic_id_text(topic_id) for topic_id in listed.by_id if topic_id not in last.by_id)


def _require_deleted(vanished: list[ShardId], left_out: list[str]) -> None:
    """Raise LogError for a partition whose streams were deleted although its topic was not."""
    for shard in vanished:
        if shard.name.partition(":")[0] not in left_out:
            raise LogError(
                f"the streams of {shard.tag} vanished during the read, but its topic is not deleted: someone removed "
                "them from the store by hand"
            )


def image_after(image: MetadataImage, entry: RawEntry, *, damaged: bool) -> MetadataImage:
    """Return the metadata after an entry of its log; one that is damaged or cannot be read changes nothing (CM-103)."""
    named = dict(zip(entry.fields[::2], entry.fields[1::2], strict=False))
    try:
        found = decode(named.get(b"r", b""))
    except (ValueError, KeyError):
        return image.apply(entry.id.seq, ())
    if damaged:
        return image.apply(entry.id.seq, ())
    if found.snapshot is not None:
        image = image_of(entry.id.seq, found.snapshot)
    return image.apply(entry.id.seq, found.changes)


def record_to_save(transactional_id: str, known: Transaction, change_id: int) -> bytes | None:
    """Return the record to save for a restored cluster; None when it needs none. Only a transaction that is committed,
    but not marked in every partition, needs a record: any other is aborted without one, and its producer starts over
    with another id."""
    if known.state is not State.PREPARE_COMMIT:
        return None
    return record_bytes(transactional_id, known._replace(restored=True), change_id)


def control_page_within(page: RawPage, log_end: int) -> RawPage:
    """Return the entries of a control log without snapshots that cover more than the log has in the backup: such a
    snapshot lacks the transactions that were open at the log's end."""
    damaged = {at for at, _ in page.damaged}
    return _page_of(page, [raw for raw in page.entries if raw.id in damaged or _covered_end(raw) <= log_end])


def _page_of(page: RawPage, entries: list[RawEntry]) -> RawPage:
    """Return the page with only these of its entries."""
    left = {entry.id for entry in entries}
    return replace(page, entries=entries, damaged=[each for each in page.damaged if each[0] in left])


def _covered_end(raw: RawEntry) -> int:
    """Return the log end that a snapshot covers; 0 for any other entry."""
    entry = _entry(raw)
    found = read_producers(entry) if entry.kind == PRODUCERS_TYPE else None
    return 0 if found is None else found.log_end


def _entry(raw: RawEntry) -> Entry:
    named = dict(zip(raw.fields[::2], raw.fields[1::2], strict=False))
    return Entry(raw.id, named.get(b"t", b"").decode(errors="replace"), named.get(b"r", b""))


def successor(at: StreamId) -> StreamId:
    """The smallest id above this one."""
    return StreamId(at.epoch, at.seq + 1)


def pause_s(done_bytes: int, elapsed_s: float, bytes_per_s: float | None) -> float:
    """Return how long to wait before the next page, s, so that at most `bytes_per_s` are read; None means no limit."""
    return 0.0 if bytes_per_s is None else max(0.0, done_bytes / bytes_per_s - elapsed_s)
