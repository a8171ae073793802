"""The operations on a topic log, and how they are combined into one flush (CM-42 … CM-44, CM-47). No I/O, no waiting.

An operation is planned only while no flush is in flight. So a duplicate of a batch in the producer table is either
confirmed already and is answered with its old offset at once, or it is in the same draft and is answered with that
draft. A duplicate is never answered before the batch is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kip932.errors import ConcurrentTransactionsError, KafkaError, KafkaStorageError, OffsetOutOfRangeError
from kip932.ids import OFFSET_MAX
from partition_leader.topic_log.codec import batch_entry, log_start_entry, marker_entry, producers_entry
from partition_leader.topic_log.core.batch import LogBatch, NewBatch, marker_batch
from partition_leader.topic_log.core.producers import Undo
from partition_leader.topic_log.core.transactions import ABORTED_MAX, OPEN_MAX, LogTransactions
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.state import AppendOutcome, LogState
from shard_runtime.record_log.protocol import Entry, StreamAppend, StreamId
from shard_runtime.tracing import tracing

NO_DEADLINE: Final = 1 << 62


class Draft:
    """One flush: entries for both streams, what they change, and the operations that wait for it."""

    __slots__ = (
        "batches",
        "compact_from",
        "control",
        "forgets",
        "holes",
        "log_start",
        "main",
        "next_offset",
        "operations",
        "raised",
        "size",
        "snapshot_end",
        "state",
        "undo",
        "wall_ms",
    )

    def __init__(self, state: LogState, wall_ms: int) -> None:
        self.state = state
        self.wall_ms = wall_ms
        self.next_offset = state.high_watermark
        self.log_start = state.log_start
        self.main: list[Entry] = []
        self.control: list[Entry] = []
        self.batches: list[LogBatch] = []
        self.undo: list[Undo] = []
        self.operations: list[LogOperation] = []
        self.size = 0
        self.raised = 0
        self.compact_from: StreamId | None = None
        self.snapshot_end = 0
        self.forgets = False
        self.holes: list[tuple[int, int]] = []

    @property
    def empty(self) -> bool:
        """Return whether nothing needs to be written."""
        return not self.main and not self.control

    def add_batch(self, batch: LogBatch) -> None:
        """Add a batch at the end of the log; also used for batches that already have an offset (CM-47)."""
        self.main.append(batch_entry(self.state.epoch, batch))
        self.batches.append(batch)
        self.next_offset = batch.end_offset
        self.size += batch.size
        if batch.producer_id >= 0:
            self.undo.append(self.state.producers.accept(batch))

    def add_marker(self, log_end: int, jump_from: int | None = None) -> None:
        """Add a marker that records `log_end`."""
        self.main.append(marker_entry(self.state.epoch, log_end, self.wall_ms, jump_from))
        if jump_from is not None:
            self.holes.append((jump_from, log_end))
        self.next_offset = log_end

    def next_control_id(self) -> StreamId:
        """Return the id of the next entry of the control log."""
        return StreamId(self.state.epoch, self.state.control_seq + len(self.control) + 1)

    def add_snapshot(self) -> None:
        """Add a copy of the log start, all producers and all transactions, so that the control log can be trimmed
        before it (CM-18)."""
        self.compact_from, self.snapshot_end = self.next_control_id(), self.next_offset
        self.control.append(log_start_entry(self.compact_from, self.log_start, self.wall_ms, cold=True))
        at, producers = self.next_control_id(), self.state.producers
        self.control.append(producers_entry(at, self.next_offset, producers, self._transactions(), self.wall_ms))

    def _transactions(self) -> LogTransactions:
        """Return the transactions as they will be after this flush."""
        if not self.batches:
            return self.state.transactions
        result = self.state.transactions.copy()
        for batch in self.batches:
            result.note(batch)
        return result

    def roll_back(self, mark: int = 0) -> None:
        """Undo the producers' accepted batches, except the first `mark`."""
        while len(self.undo) > mark:
            self.state.producers.undo(self.undo.pop())

    def appends(self) -> list[StreamAppend]:
        """Return the flush in the form that `RecordLog.append` takes."""
        state = self.state
        both = ((state.main, self.main), (state.control, self.control))
        return [StreamAppend(stream, entries) for stream, entries in both if entries]


class LogOperation:
    """An operation that a caller waits for. `future` always gets an AppendOutcome, never an exception."""

    __slots__ = ("deadline_ms", "future", "outcome", "sent", "size", "span")

    def __init__(self, future: asyncio.Future[AppendOutcome], deadline_ms: int = NO_DEADLINE, size: int = 0) -> None:
        #: The span of the request that wants it, if that is traced.
        self.span = tracing.current
        self.future = future
        self.deadline_ms = deadline_ms
        self.size = size
        self.sent = False
        self.outcome = AppendOutcome((), -1, -1)

    def plan(self, draft: Draft) -> None:
        """Add the needed entries to the draft. Raises KafkaError to refuse, leaving the draft as it was."""
        raise NotImplementedError

    def answer(self, outcome: AppendOutcome) -> None:
        """Answer the caller, unless it no longer waits or has timed out."""
        if not self.future.done():
            self.future.set_result(outcome)

    def fail(self, error: KafkaError) -> None:
        """Answer the caller with an error."""
        self.answer(AppendOutcome((), -1, -1, error))


class ProduceOperation(LogOperation):
    """The batches of one produce request for this partition: all are appended, or none (a duplicate counts as
    appended)."""

    __slots__ = ("batches",)

    def __init__(
        self, future: asyncio.Future[AppendOutcome], batches: Sequence[NewBatch], size: int, deadline_ms: int
    ) -> None:
        super().__init__(future, deadline_ms, size)
        self.batches = batches

    def plan(self, draft: Draft) -> None:
        """Give each batch its offset, or find the batch that it repeats (CM-43)."""
        accepted, batches, next_offset, size = len(draft.undo), len(draft.batches), draft.next_offset, draft.size
        entries = len(draft.main)
        base_offsets = []
        append_time_ms = draft.wall_ms
        try:
            for batch in self.batches:
                repeated = draft.state.producers.check(batch) if batch.idempotent else None
                if repeated is None:
                    if batch.is_transactional:
                        _check_transaction(draft.state, batch)
                    _check_offset(draft, batch.record_count)
                    base_offsets.append(draft.next_offset)
                    draft.add_batch(batch.at(draft.next_offset, draft.wall_ms))
                else:
                    base_offsets.append(repeated.base_offset)
                    append_time_ms = repeated.append_time_ms
        except KafkaError:
            draft.roll_back(accepted)
            del draft.batches[batches:], draft.main[entries:]
            draft.next_offset, draft.size = next_offset, size
            raise
        self.outcome = AppendOutcome(tuple(base_offsets), append_time_ms, draft.log_start)


class EndTransactionOperation(LogOperation):
    """Appends the marker that ends a transaction here, unless the transaction has one already (CM-44)."""

    __slots__ = ("control_type", "producer")

    def __init__(self, future: asyncio.Future[AppendOutcome], producer: tuple[int, int], control_type: int) -> None:
        super().__init__(future)
        self.producer = producer
        self.control_type = control_type

    def plan(self, draft: Draft) -> None:
        """Add the control batch. It is written even if the transaction has no batch here, so that a batch that arrives
        late is refused for its epoch. The join is undone even if the store refuses this flush: a later batch must check
        again whether the transaction is still open."""
        producer_id, epoch = self.producer
        state = draft.state
        if state.joined.get(producer_id, epoch + 1) <= epoch:
            del state.joined[producer_id]
        if not state.producers.ended(producer_id, epoch):
            _check_offset(draft, 1)
            draft.add_batch(marker_batch(draft.next_offset, self.producer, self.control_type, draft.wall_ms))


def _check_offset(draft: Draft, records: int) -> None:
    """Raise OffsetOutOfRangeError if not enough offsets are left for this many records."""
    if draft.next_offset + records > OFFSET_MAX:
        raise OffsetOutOfRangeError(
            f"{draft.state.shard.name}: {records} records from offset "
            f"{draft.next_offset} would pass the largest offset {OFFSET_MAX}; use another topic"
        )


def _check_transaction(state: LogState, batch: NewBatch) -> None:
    """Raise unless this log may take a batch of the transaction: it already holds one, or the transaction has joined
    this partition and has had no marker here since (CM-44)."""
    opened = state.transactions.open.get(batch.producer_id)
    if opened is not None and opened.producer_epoch == batch.producer_epoch:
        return
    if opened is not None:
        raise ConcurrentTransactionsError(
            f"{state.shard.name}: the transaction of epoch {opened.producer_epoch} of producer {batch.producer_id} has "
            "no marker here yet; nothing was written, try again"
        )
    if state.joined.get(batch.producer_id) != batch.producer_epoch:
        raise ConcurrentTransactionsError(
            f"{state.shard.name}: the transaction of epoch {batch.producer_epoch} of producer {batch.producer_id} was "
            "ended or forgotten here while the batch waited; nothing was written, try again"
        )
    if state.transactions.full:
        raise KafkaStorageError(
            f"{state.shard.name}: {len(state.transactions.open)} transactions are open and the log holds "
            f"{len(state.transactions.aborted)} aborted ones; at most {OPEN_MAX} and {ABORTED_MAX} are kept. Nothing "
            "was written: end the open ones, or let retention.ms or DeleteRecords remove old records"
        )


class RaiseEndOperation(LogOperation):
    """Raises the log end to at least `min_end`, up to which a share-partition has state (CM-47)."""

    __slots__ = ("min_end",)

    def __init__(self, future: asyncio.Future[AppendOutcome], min_end: int) -> None:
        super().__init__(future)
        self.min_end = min_end

    def plan(self, draft: Draft) -> None:
        """Add a jump marker, unless the log already reaches `min_end`."""
        if draft.next_offset < self.min_end:
            draft.raised += self.min_end - draft.next_offset
            draft.add_marker(self.min_end, jump_from=draft.next_offset)


class MoveStartOperation(LogOperation):
    """Moves the log start to `log_start` (CM-45); durable before anything is trimmed."""

    __slots__ = ("log_start",)

    def __init__(self, future: asyncio.Future[AppendOutcome], log_start: int) -> None:
        super().__init__(future)
        self.log_start = log_start

    def plan(self, draft: Draft) -> None:
        """Add an entry of type L, unless the log starts there or later. Raises OffsetOutOfRangeError above the high
        watermark."""
        if self.log_start > draft.state.high_watermark:
            raise OffsetOutOfRangeError(
                f"{draft.state.shard.name}: log start {self.log_start} is above the high watermark "
                f"{draft.state.high_watermark}"
            )
        if self.log_start > draft.log_start:
            draft.log_start = self.log_start
            draft.control.append(log_start_entry(draft.next_control_id(), self.log_start, draft.wall_ms))
            # The next owner reads batches only from here on, so producers and
            # transactions of earlier ones must be in a snapshot.
            known = len(draft.state.producers) > 0 or draft.state.transactions.any
            draft.forgets = self.log_start > draft.state.snapshot_end and known


def form_draft(state: LogState, queue: Sequence[LogOperation], settings: TopicLogSettings, wall_ms: int) -> Draft:
    """Plan operations in order of arrival until the flush is full. The draft lists all operations that it took. The
    caller must answer those that were refused or need no write; `outcome.error` is set for the refused ones."""
    draft = Draft(state, wall_ms)
    for operation in queue:
        if draft.size >= settings.flush_max_bytes or len(draft.main) >= settings.flush_max_batches:
            break
        draft.operations.append(operation)
        try:
            operation.plan(draft)
        except KafkaError as error:
            operation.outcome = AppendOutcome((), -1, -1, error)
    if _snapshot_due(draft, settings):
        draft.add_snapshot()
    return draft


def _snapshot_due(draft: Draft, settings: TopicLogSettings) -> bool:
    state = draft.state
    return (
        draft.forgets
        or state.batches_since_snapshot + len(draft.batches) >= settings.snapshot_batches
        or state.bytes_since_snapshot + draft.size >= settings.snapshot_bytes
        or state.control_entries + len(draft.control) > settings.control_entries_max
    )
