"""A hand-written story of four groups, with a ledger that counts its events independently of the pipeline."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import Lifecycle, TopicState
from kip932.ids import SharePartitionKey, topic_id_text
from kip932.state_batches import ARCHIVED_AT_LIMIT, ARCHIVED_REJECTED, ArchivedRange, StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord
from share_metrics.ingest.log_samples import COLUMNS
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import decode, gap_row
from tests.support.pipeline_entries import snapshot, state_entry, update

from .frames import BASE_S, frame

MINUTE: Final = 60
MINUTES: Final = 10
END: Final = MINUTES * MINUTE
LIMIT: Final = 3
TOPICS: Final = {
    name: bytes(15) + bytes([number]) for number, name in enumerate(("orders", "mails", "logs", "jobs"), 1)
}


def at_time(at: float) -> datetime:
    """Return a moment of the story, given in seconds from its start."""
    return datetime.fromtimestamp(BASE_S + at, UTC)


class Ledger:
    """One share-partition: the actions of producers and consumers, the records that the leader writes, and the
    counts."""

    def __init__(self, group: str, topic: str, partition: int = 0) -> None:
        self.group, self.topic, self.partition = group, topic, partition
        self.key = SharePartitionKey(group, TOPICS[topic], partition)
        self.written: list[tuple[int, ShareRecord]] = []
        self.produced = self.finished = self.start = 0
        self.released = self.given_back = self.timed_out = self.redelivered = 0
        self.arrived_in: Counter[int] = Counter()
        self.finished_in: Counter[int] = Counter()
        self.deliveries: Counter[int] = Counter()
        self.failed: set[tuple[int, str, int]] = set()
        self.waited_ms: dict[int, list[int]] = {}
        self._released_at: dict[int, int] = {}
        self._appended_at: list[int] = []
        #: For each finished record: when it was finished, in s, and how long after its append, in ms.
        self.ended: list[tuple[int, int]] = []
        self.written.append((0, snapshot(0, key=self.key, stats=self._stats())))

    @property
    def lag(self) -> int:
        return self.produced - self.finished

    def produce(self, at: int, count: int) -> None:
        self.produced += count
        self.arrived_in[at // MINUTE] += count
        self._appended_at += [at] * count

    def release(self, at: int, offset: int, *, timed_out: bool = False, given_back: bool = False) -> None:
        """Deliver the record once more, and release it: by its member, unless the lock or the session ends first."""
        self.deliveries[offset] += 1
        self.released += not (timed_out or given_back)
        self.given_back += given_back
        self.timed_out += timed_out
        self._released_at.setdefault(offset, at)
        batch = StateBatch(offset, offset, 0, self.deliveries[offset])
        reported = {"n_timeout": 1} if timed_out else {"n_given_back": 1} if given_back else {"n_release": 1}
        self._write(at, [batch], delivery_limit=LIMIT, **reported)

    def accept(self, at: int, count: int) -> None:
        """Accept `count` records beginning at the start offset, each on one more delivery."""
        taken = self._finish(at, count)
        counts = [self.deliveries[offset] for offset in taken]
        self._write(at, [], n_accept=count, max_dc=max(counts), sum_dc=sum(counts))

    def give_up(self, at: int, reason: str) -> None:
        """End the record at the start offset as failed, on one more delivery."""
        (offset,) = self._finish(at, 1)
        count = self.deliveries[offset]
        self.failed.add((offset, reason, count))
        why, reported = (ARCHIVED_REJECTED, "n_reject") if reason == "rejected" else (ARCHIVED_AT_LIMIT, "n_limit")
        archived = (ArchivedRange(offset, offset, count, why),)
        self._write(at, [], max_dc=count, sum_dc=count, archived=archived, delivery_limit=LIMIT, **{reported: 1})

    def _finish(self, at: int, count: int) -> range:
        taken = range(self.start, self.start + count)
        for offset in taken:
            self.deliveries[offset] += 1
            self.redelivered += self.deliveries[offset] > 1
            self.ended.append((at, (at - self._appended_at[offset]) * 1000))
            if offset in self._released_at:
                self.waited_ms.setdefault(at // MINUTE, []).append((at - self._released_at.pop(offset)) * 1000)
        self.finished += count
        self.finished_in[at // MINUTE] += count
        self.start = taken.stop
        return taken

    def _write(self, at: int, batches: list[StateBatch], **reported: Any) -> None:
        self.written.append((at, update(self.start, batches=batches, stats=self._stats(**reported), key=self.key)))

    def _stats(self, **reported: Any) -> WriteStats:
        return WriteStats(1, hwm=self.produced, write_id=len(self.written), **reported)


class Story:
    """Four groups: one working, one that has stopped, one without members, and one with nothing left to do."""

    STREAMS: Final = {"busy": "{sgs:0}:log", "stopped": "{sgs:1}:log", "left": "{sgs:1}:log", "done": "{sgs:1}:log"}
    LOST: Final = Gap("{sgs:2}:log", EntryId(1, 1), EntryId(1, 5), 3, "trimmed")

    def __init__(self) -> None:
        busy = [Ledger("busy", "orders", 0), Ledger("busy", "orders", 1)]
        for minute in range(MINUTES):
            at = minute * MINUTE + 10
            for ledger, count in zip(busy, (20, 7), strict=True):
                ledger.produce(at, count)
                ledger.release(at + 10, ledger.start + 1, timed_out=minute % 3 == 0, given_back=minute % 3 == 1)
                ledger.accept(at + 20 + minute, count - 1)
        busy[0].give_up(END - 20, "rejected")
        for ledger in busy:  # one delivery left
            ledger.release(END - 18, ledger.start)
            ledger.release(END - 17, ledger.start)
        busy[1].give_up(END - 16, "delivery limit")
        idle = [Ledger("stopped", "mails"), Ledger("left", "logs"), Ledger("done", "jobs")]
        for ledger in idle:
            ledger.produce(20, 5)
            ledger.accept(30, 5 if ledger.group == "done" else 2)
        for ledger in idle[:2]:
            ledger.produce(70, 500)  # nothing is written after this
        self.all = [*busy, *idle]

    def of(self, group: str) -> list[Ledger]:
        return [ledger for ledger in self.all if ledger.group == group]

    def states(self, spark: SparkSession) -> DataFrame:
        rows = [gap_row(self.LOST)]
        for stream in sorted(set(self.STREAMS.values())):
            reported = [one for ledger in self.all if self.STREAMS[ledger.group] == stream for one in ledger.written]
            for seq, (at, record) in enumerate(sorted(reported, key=lambda one: one[0]), start=1):
                entry = state_entry(EntryId(1, seq), record, (BASE_S + at) * 1000, stream)
                rows.append(decode(Kind.SHARE_STATE, entry))
        return frame(spark, Kind.SHARE_STATE, rows)

    def log_ends(self, spark: SparkSession) -> DataFrame:
        """Return samples of each log's end, every half minute."""
        rows = []
        for ledger in self.all:
            for at in range(0, END, 30):
                end = sum(ledger.arrived_in[minute] for minute in range(at // MINUTE + (at % MINUTE > 0)))
                topic = topic_id_text(TOPICS[ledger.topic])
                rows.append((topic, ledger.partition, 0, end, end, at_time(at)))
        return spark.createDataFrame(rows, COLUMNS)


REPORTED: Final[list[tuple[int, r.Record]]] = [
    (
        0,
        r.StateMetadata(
            "busy", Lifecycle({TOPICS["orders"]: TopicState(TOPICS["orders"], "orders", 2, {}, (0, 1))}, {})
        ),
    ),
    *((1, r.MemberMetadata(group, "a", None, "c", "h", ("orders",))) for group in ("busy", "stopped", "left")),
    (2, r.TargetMetadata("busy", 1, 0, {})),
    (5, r.CurrentAssignment("busy", "a", 1, 0, r.STABLE, {TOPICS["orders"]: (1, 0)})),
    (90, r.MemberMetadata("busy", "b", None, "d", "h", ("orders",))),
    (90, r.TargetMetadata("busy", 2, 0, {})),
    (91, r.CurrentAssignment("busy", "a", 2, 1, r.STABLE, {TOPICS["orders"]: (0,)})),
    (97, r.CurrentAssignment("busy", "b", 2, 0, r.STABLE, {TOPICS["orders"]: (1,)})),
    (100, r.Tombstone(r.MEMBER, "left", "a", "expired")),
    (200, r.Tombstone(r.MEMBER, "busy", "b", "left")),
    (200, r.TargetMetadata("busy", 3, 0, {})),
]
