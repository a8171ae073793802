"""One topic log's state in its leader's memory, and the values that callers get. Plain data: no I/O, no waiting."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from kip932.errors import KafkaError
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.core.batch_run import BatchRun
from partition_leader.topic_log.core.epochs import EpochStarts
from partition_leader.topic_log.core.holes import Holes
from partition_leader.topic_log.core.pages import PageIndex
from partition_leader.topic_log.core.producers import ProducerTable
from partition_leader.topic_log.core.transactions import AbortedTransaction, LogTransactions
from shard_runtime.record_log.protocol import ShardId, StreamId

_SMOOTHING = 16
#: The maximum number of transactions that a leader remembers as joined; beyond it the oldest is forgotten and must join
#: again.
JOINED_MAX: Final = 10_000
_base_offset = attrgetter("base_offset")
_last_offset = attrgetter("last_offset")


class ReadResult(NamedTuple):
    """A read's result (PL-006). `data_offset`: no record exists from the requested offset up to this one, so the caller
    may skip the hole at once (CM-47). If there are batches, it is their first offset, but not below the requested
    one."""

    batches: tuple[LogBatch, ...]
    data_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable: int
    epoch: int
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions with offsets in these batches; set only by a read of committed records."""

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch; −1 if there are no batches."""
        return self.batches[-1].last_offset if self.batches else -1

    def covering(self, first: int, last: int) -> tuple[LogBatch, ...]:
        """Return the batches with offsets in `first`…`last`: the same objects, found by bisection (PL-250)."""
        batches = self.batches
        begin = bisect_left(batches, first, key=_last_offset)
        end = bisect_right(batches, last, lo=begin, key=_base_offset)
        return batches[begin:end]


class AppendOutcome(NamedTuple):
    """The outcome of appending one partition's batches: their offsets, or the error."""

    base_offsets: tuple[int, ...]
    append_time_ms: int
    log_start_offset: int
    error: KafkaError | None = None


class FoundOffset(NamedTuple):
    """An offset found by timestamp; `timestamp_ms` is -1 if the request named no timestamp."""

    offset: int
    timestamp_ms: int
    epoch: int


class Measured(NamedTuple):
    """A log's bytes, and whether they are exact; when its oldest batch was appended, None for an empty log or if that
    was not read (PL-960). `records`: at most as many as there are; −1 if they were not counted."""

    size: int
    exact: bool
    oldest_append_ms: int | None
    records: int = -1


class LogListener(Protocol):
    """Callbacks for changes of a log, called at once and on the event loop (PL-008). They must not wait: note the
    change, and do the work later."""

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Handle a new high watermark: records below it may be read now. This is also how LAST_STABLE moves: with a
        marker or, without open transactions, with the high watermark (PL-808)."""
        ...

    def log_start_advanced(self, log_start: int) -> None:
        """Archive the records below `log_start`, which are deleted (PL-620)."""
        ...

    def log_closed(self, error: KafkaError) -> None:
        """Start answering requests with `error`: this node no longer leads the partition, or the topic was deleted.
        This is the last call."""
        ...


@dataclass(slots=True)
class LogState:
    """One log in memory. `high_watermark`: the end of the last confirmed flush; `data_end`: the end of the last batch.

    `snapshot_end`: producers of batches below it are in the newest snapshot of the control log.
    """

    shard: ShardId
    epoch: int
    log_start: int
    high_watermark: int
    data_end: int
    epochs: EpochStarts
    producers: ProducerTable
    tail: BatchRun
    control_seq: int = 0
    control_entries: int = 0
    batches_since_snapshot: int = 0
    bytes_since_snapshot: int = 0
    snapshot_end: int = 0
    mean_batch_bytes: int = 1024
    mean_batch_records: int = 1
    window: BatchRun | None = None
    pages: PageIndex = field(default_factory=PageIndex)
    holes: Holes = field(default_factory=Holes)
    transactions: LogTransactions = field(default_factory=LogTransactions.none)
    joined: dict[int, int] = field(default_factory=dict)
    """Epochs by producer id, for transactions whose durable record names this partition and which have had no marker
    here since (CM-44). At most JOINED_MAX; only in this leader's memory."""
    main: str = field(init=False)
    """The key of the stream with the batches."""
    control: str = field(init=False)
    """The key of the control log."""

    def __post_init__(self) -> None:
        self.main, self.control = self.shard.streams

    @property
    def last_stable(self) -> int:
        """LAST_STABLE (PL-008)."""
        return self.transactions.last_stable(self.log_start, self.high_watermark)

    def position(self, offset: int) -> StreamId:
        """Return the id such that the batch with `offset` is the first entry after it (CM-40)."""
        return StreamId(*self.epochs.position(offset))

    def learn_size(self, size: int, records: int, batches: int) -> None:
        """Update the weighted mean of recent batch sizes, from which cold reads compute their COUNT (CM-46)."""
        weight = min(batches, _SMOOTHING)
        rest = _SMOOTHING - weight
        self.mean_batch_bytes = max((self.mean_batch_bytes * rest + size // batches * weight) // _SMOOTHING, 1)
        self.mean_batch_records = max((self.mean_batch_records * rest + records // batches * weight) // _SMOOTHING, 1)

    def join(self, producer_id: int, epoch: int) -> None:
        """Note that the transaction's durable record names this partition."""
        while len(self.joined) >= JOINED_MAX:
            del self.joined[next(iter(self.joined))]
        self.joined[producer_id] = epoch

    def bytes_available(self, offset: int, committed: bool = False) -> int:
        """Return the bytes from `offset` to the high watermark or, with `committed`, to LAST_STABLE: exact within the
        tail cache, else an estimate (at least 1)."""
        if offset >= self.high_watermark:
            return 0
        if committed and self.transactions.open:
            stable = self.last_stable
            if offset >= stable:
                return 0
            if self.tail.start <= offset:
                return self.tail.bytes_from(offset) - self.tail.bytes_from(stable)
        if self.tail.start <= offset:
            return self.tail.bytes_from(offset)
        cold = min(self.tail.start, self.data_end) - offset
        batches = -(-max(cold, 0) // self.mean_batch_records)
        return self.tail.size + batches * self.mean_batch_bytes
