"""Loads a topic log from its streams after a claim (CM-40, CM-43, CM-47). It reads, lets the core decide, and makes the
log's end durable with a marker before any producer may append.

The claim entry `e-0` is already in both streams, so the store refuses appends of an older owner. Every read ends at
that entry. A failed load leaves at most the marker in the streams: claim again, then load again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import structlog

from partition_leader.topic_log.codec import (
    BATCH_TYPE,
    LOG_START_TYPE,
    PRODUCERS_TYPE,
    ProducersSnapshot,
    read_batch,
    read_log_start,
    read_marker,
    read_producers,
)
from partition_leader.topic_log.core.batch_run import BatchRun
from partition_leader.topic_log.core.epochs import EpochStarts, rebuild
from partition_leader.topic_log.core.holes import HOLES_MAX, Holes
from partition_leader.topic_log.core.producers import ProducerTable
from partition_leader.topic_log.core.recovery import Found, Recovery, TailMemory, recover
from partition_leader.topic_log.operations import Draft
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.state import LogState
from shard_runtime.clock import Clock
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import STREAM_START, Claimed, Entry, RecordLog, ShardId, StreamId

log = structlog.get_logger(__name__)

_HOP_ENTRIES = 16
_CONTROL_PAGE = 16
_INDEX_PAGE = 1_000


@dataclass(slots=True)
class _Main:
    """The content of the main stream below this owner's claim."""

    epochs: EpochStarts
    log_end: int
    data_end: int
    unsure: bool
    """Whether the log's end is known only from a damaged entry."""
    holes: Holes
    """Offsets skipped by the markers that were read, which include every jump at least as long as the current setting
    (CM-105)."""


@dataclass(slots=True)
class _Control:
    """The content of the control log below this owner's claim. `damaged`: whether a damaged entry may hold a newer
    value."""

    log_start: int | None = None
    snapshot: ProducersSnapshot | None = None
    damaged: bool = False


@dataclass(slots=True)
class LoadReport:
    """The result of a load, for the log line and the counters."""

    log_end: int = 0
    rejoined: int = 0
    jumped: bool = False
    indexed: int = 0
    unknown: int = 0
    compact_from: StreamId | None = None


async def load_state(
    record_log: RecordLog,
    lease: Lease,
    claimed: Claimed,
    clock: Clock,
    settings: TopicLogSettings,
    *,
    memory: TailMemory | None,
    suspect: bool,
) -> tuple[LogState, LoadReport]:
    """Load the log and make its end durable. After LogError, claim again; after AppendRefusedError, load again."""
    shard, epoch = lease.shard, claimed.epoch
    report = LoadReport()
    main = await _read_main(record_log, shard, epoch, settings.jump_offsets)
    control = await _read_control(record_log, shard, epoch)
    log_start = control.log_start or 0
    if control.damaged:
        log_start = max(log_start, await _first_held(record_log, shard, epoch))
    log_end = max(main.log_end, log_start)
    previous = claimed.previous.epoch if claimed.previous is not None else 0
    # Entries without an owner record were restored from a backup, so the log may have been longer (CM-145). That such a
    # topic is older than its store's history is no sign of a loss: all of them are.
    restored = claimed.previous is None and bool(main.epochs.newest)
    torn = log_end > main.log_end  # a log start above the end found: the log once reached that start
    lossy = claimed.lossy or torn or main.unsure or (suspect and not restored)
    found = Found(log_end, main.epochs.newest, previous, lossy or restored)
    decision = recover(found, memory, settings.jump_offsets)
    producers = ProducerTable(settings.producers_max)
    main.epochs.begin(epoch, log_end)
    state = LogState(
        shard,
        epoch,
        log_start,
        log_end,
        min(main.data_end, log_end),
        main.epochs,
        producers,
        BatchRun(log_end, settings.tail_cache_bytes),
        holes=main.holes,
    )
    await _rebuild_producers(record_log, state, control.snapshot, report)
    producers.forgot = producers.forgot or decision.jump or control.damaged
    await _secure_end(
        record_log,
        state,
        decision,
        clock=clock,
        settings=settings,
        report=report,
        rewrite=control.damaged,
        restored=restored and not lossy,
    )
    state.epochs.trim(state.log_start)
    state.transactions.trim(state.log_start)
    state.producers.expire(clock.wall_ms() - settings.producer_expiration_ms)
    return state, report


async def _read_main(record_log: RecordLog, shard: ShardId, epoch: int, jump_offsets: int) -> _Main:
    """Read backwards from claim to claim: each epoch's last entry shows the log's end in that epoch (CM-40)."""
    stream = shard.streams[0]
    ends: dict[int, int] = {}
    newest_damaged: dict[int, bool] = {}
    data_end = -1
    holes = Holes()
    unseen: list[int] = []  # epochs whose first entries were not read
    skipped_entries = False  # whether an epoch may have batches that were not read
    cursor = StreamId(epoch, 0)
    while True:
        page = await record_log.read_back(stream, cursor, _HOP_ENTRIES)
        if not page:
            break
        for entry in page:
            ends[entry.id.epoch] = max(ends.get(entry.id.epoch, 0), entry.id.seq)  # a claim's seq is 0
            newest_damaged.setdefault(entry.id.epoch, bool(entry.damage))
            skipped_entries = skipped_entries or bool(entry.damage)
            if data_end < 0 and not skipped_entries and entry.kind == BATCH_TYPE:
                data_end = entry.id.seq
            _note_hole(holes, entry)
        oldest = page[-1]
        if oldest.id.seq != 0:
            skipped_entries = True
            unseen.append(oldest.id.epoch)
        cursor = StreamId(oldest.id.epoch, 0)
    epochs, log_end = rebuild(ends)
    if data_end < 0:
        data_end = log_end if skipped_entries else 0
    begun = dict(epochs.as_list())
    jumped_epochs = [each for each in unseen if ends[each] - begun[each] >= jump_offsets][:HOLES_MAX]
    for each in jumped_epochs:  # a jump's marker is the first entry after the claim
        for entry in await record_log.index(stream, StreamId(each, 0), StreamId(each, ends[each]), 1):
            _note_hole(holes, entry)
    unsure = any(damaged and ends[epoch] >= log_end for epoch, damaged in newest_damaged.items())
    return _Main(epochs, log_end, data_end, unsure, holes)


def _note_hole(holes: Holes, entry: Entry) -> None:
    hole = read_marker(entry)
    if hole is not None:
        holes.add(hole.start, hole.end)


async def _first_held(record_log: RecordLog, shard: ShardId, epoch: int) -> int:
    """Return the first offset of the oldest intact batch in the stream, or 0. Offsets below it cannot be read, so the
    log starts there at the earliest."""
    after, through = STREAM_START, StreamId(epoch, 0)
    while page := await record_log.index(shard.streams[0], after, through, _HOP_ENTRIES):
        for entry in page:
            if (batch := read_batch(entry)) is not None:
                return batch.base_offset
        after = page[-1].id
    return 0


async def _read_control(record_log: RecordLog, shard: ShardId, epoch: int) -> _Control:
    """Read the newest log start and the newest snapshot. Compaction keeps them near the end of the stream (CM-18)."""
    control = _Control()
    cursor = StreamId(epoch, 0)
    while control.log_start is None or control.snapshot is None:
        page = await record_log.read_back(shard.streams[1], cursor, _CONTROL_PAGE)
        for entry in page:
            _note_control(control, entry)
        if len(page) < _CONTROL_PAGE:
            break
        cursor = page[-1].id
    return control


def _note_control(control: _Control, entry: Entry) -> None:
    if entry.damage:
        control.damaged = True  # it may have been of either type; an older entry's value is a lower bound
    elif entry.kind == LOG_START_TYPE and control.log_start is None:
        control.log_start = read_log_start(entry)
    elif entry.kind == PRODUCERS_TYPE and control.snapshot is None:
        control.snapshot = read_producers(entry)


async def _rebuild_producers(
    record_log: RecordLog, state: LogState, snapshot: ProducersSnapshot | None, report: LoadReport
) -> None:
    """Load the snapshot, then the index of the batches after it: about one snapshot interval at most (CM-43, CM-44,
    P-11)."""
    covered = state.log_start
    if snapshot is not None:
        for producer_id, producer in snapshot.producers:
            state.producers.restore(producer_id, producer, state.high_watermark)
        state.transactions.restore(snapshot.open, snapshot.aborted, state.high_watermark)
        state.snapshot_end = min(snapshot.log_end, state.high_watermark)
        covered = max(covered, state.snapshot_end)
    after = state.position(covered)
    through = StreamId(state.epoch, 0)
    while True:
        page = await record_log.index(state.main, after, through, _INDEX_PAGE)
        for entry in page:
            batch = read_batch(entry)
            if batch is None:
                report.unknown += entry.kind == BATCH_TYPE and not entry.damage
                # The producer of a damaged batch continues after it, with a sequence number that is not its first.
                state.producers.forgot = state.producers.forgot or bool(entry.damage)
                continue
            report.indexed += 1
            state.batches_since_snapshot += 1
            state.bytes_since_snapshot += batch.size
            state.learn_size(batch.size, batch.record_count, 1)
            if batch.producer_id >= 0 and (batch.base_sequence >= 0 or batch.is_control):
                state.producers.accept(batch)
            if batch.is_transactional:
                state.transactions.note(batch)
        if len(page) < _INDEX_PAGE:
            return
        after = page[-1].id


async def _secure_end(
    record_log: RecordLog,
    state: LogState,
    decision: Recovery,
    *,
    clock: Clock,
    settings: TopicLogSettings,
    report: LoadReport,
    rewrite: bool = False,
    restored: bool = False,
) -> None:
    """Append the marker, the jump or the lost batches, and wait until that is durable (CM-40, CM-47). `restored`:
    whether a backup was restored and nothing else is wrong."""
    found_end = state.high_watermark
    tip = await record_log.tip(state.control)
    state.control_entries = tip.length if tip is not None else 0
    again = deque(decision.again)
    draft = Draft(state, clock.wall_ms())
    if decision.jump:
        draft.add_marker(decision.log_end, jump_from=found_end)
    elif found_end > 0:
        draft.add_marker(found_end)
    if rewrite or state.control_entries > settings.control_entries_max:
        draft.add_snapshot()
        report.compact_from = draft.compact_from
    while True:
        while again and draft.size < settings.flush_max_bytes:
            draft.add_batch(again.popleft())
        if not draft.empty:
            await commit_load(record_log, state, draft)
        if not again:
            break
        draft = Draft(state, clock.wall_ms())
    report.log_end, report.rejoined, report.jumped = state.high_watermark, len(decision.again), decision.jump
    if decision.jump and restored:
        log.info(
            "log_end_jumped_after_restore",
            effect="no offset that was given after the backup is given twice",
            shard=state.shard.name,
            epoch=state.epoch,
            found_end=found_end,
            log_end=state.high_watermark,
        )
    elif decision.jump:
        log.error(
            "log_end_jumped",
            cause="a tail of this log may have been lost with the store",
            shard=state.shard.name,
            epoch=state.epoch,
            found_end=found_end,
            log_end=state.high_watermark,
        )
    elif decision.again:
        log.warning(
            "lost_tail_reappended",
            cause="the store had lost it, and this process still had it in memory",
            shard=state.shard.name,
            epoch=state.epoch,
            found_end=found_end,
            batches=len(decision.again),
        )


async def commit_load(record_log: RecordLog, state: LogState, draft: Draft) -> None:
    """Append one draft during the load, while no operations are accepted."""
    appended = await record_log.append(state.shard, state.epoch, draft.appends())
    state.control_seq = appended.tip.seq if appended.tip.epoch == state.epoch else 0
    state.control_entries += len(draft.control) + appended.noops
    apply_draft(state, draft)


def apply_draft(state: LogState, draft: Draft) -> None:
    """Update memory to the state that the store has confirmed."""
    state.high_watermark = draft.next_offset
    state.log_start = draft.log_start
    state.tail.append(draft.batches, draft.next_offset)
    for start, end in draft.holes:
        state.holes.add(start, end)
    if draft.batches:
        for batch in draft.batches:
            if batch.is_transactional:
                state.transactions.note(batch)
        state.data_end = draft.batches[-1].end_offset
        records = sum(batch.record_count for batch in draft.batches)
        state.learn_size(draft.size, records, len(draft.batches))
    if draft.compact_from is None:
        state.batches_since_snapshot += len(draft.batches)
        state.bytes_since_snapshot += draft.size
    else:
        state.batches_since_snapshot = state.bytes_since_snapshot = 0
        state.snapshot_end = draft.snapshot_end  # a load adds the lost batches after the snapshot
        state.control_entries = len(draft.control)
