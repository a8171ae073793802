"""A directory as an ingest leaves it, with random histories of groups and share-partitions; made without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import Lifecycle, TopicState
from kip932.failures import Failure
from kip932.ids import SharePartitionKey, topic_id_text
from kip932.records.v1 import owner_log_pb2 as owner_pb
from kip932.state_batches import CAUSE_ACK, CAUSE_COLD, ArchivedRange, StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.ingest.log_samples import stored_samples
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import RawEntry, decode, gap_row
from tests.support.kept_files import keep
from tests.support.pipeline_entries import snapshot, state_entry, update

#: The time at which histories begin, s since 1970: ten minutes before an hour begins.
BASE_S: Final = 36_000 - 600
TOPICS: Final = {name: bytes(15) + bytes([number]) for number, name in enumerate(("orders", "mails", "jobs"), 1)}
LIMIT: Final = 3
_REASONS: Final = ("LookupError: no price", "no reason that has a class", "", "ValueError: 7")

Row = dict[str, Any]


class Partition:
    """A share-partition whose leader writes at random; `records` yields each write with its second."""

    def __init__(self, random: Random, key: SharePartitionKey) -> None:
        self._random = random
        self.key = key
        self.start = random.randrange(50)
        self.hwm = self.start
        self.epoch = 1
        self.leader = 1
        self._number = 0

    def _stats(self, **counts: Any) -> WriteStats:
        self._number += 1
        self.hwm = max(self.hwm, self.start + self._random.randrange(30))
        known = self._random.random() < 0.8
        return WriteStats(CAUSE_ACK, hwm=self.hwm if known else -1, write_id=self._number, **counts)

    def begin(self) -> ShareRecord:
        return snapshot(self.start, key=self.key, state_epoch=self.epoch, stats=self._stats())

    def write(self, now_s: int) -> list[ShareRecord]:
        """The records of the next write, sometimes of several."""
        roll = self._random.random()
        if roll < 0.03:
            return self._again()
        if roll < 0.08:
            self.epoch += 1
            self.start = self._random.randrange(80)
            return [self.begin()]
        if roll < 0.2:
            return [self.begin()]
        if roll < 0.25:
            copy = snapshot(self.start, key=self.key, state_epoch=self.epoch, create_ms=1_000, write_ms=2_000)
            return [copy._replace(stats=WriteStats(CAUSE_COLD)) if hasattr(copy, "_replace") else copy]
        return self._update(now_s, roll)

    def _again(self) -> list[ShareRecord]:
        """Deleted, and mostly created again."""
        self.epoch += 1
        self.start = self._random.randrange(50)
        gone: list[ShareRecord] = [ShareTombstone(self.key)]
        return gone if self._random.random() < 0.3 else [*gone, self.begin()]

    def _update(self, now_s: int, roll: float) -> list[ShareRecord]:
        random, start = self._random, self.start
        if roll < 0.45:  # released, some of them with a delay
            until = (BASE_S + now_s + random.randrange(600)) * 1_000 if random.random() < 0.4 else 0
            batch = StateBatch(start, start + random.randrange(4), 0, random.randrange(1, LIMIT), until)
            said = (Failure(start, start, 1, random.choice(_REASONS)),)
            done = update(batches=[batch], key=self.key, stats=self._stats(n_release=1, delivery_limit=LIMIT))
            return [done._replace(failures=said if random.random() < 0.5 else ())]
        if roll < 0.55:
            first = start + random.randrange(3)
            archived = ArchivedRange(first, first, LIMIT, random.randrange(1, 3))
            stats = self._stats(n_reject=1, max_dc=LIMIT, sum_dc=LIMIT, archived=(archived,), delivery_limit=LIMIT)
            return [update(batches=[StateBatch(first, first, 4, LIMIT)], key=self.key, stats=stats)]
        if roll < 0.6:
            self.leader += 1
        moved = random.randrange(1, 12)
        self.start += moved
        stats = self._stats(n_accept=moved, max_dc=random.randrange(1, 3), sum_dc=moved + random.randrange(2))
        one = update(self.start, random.randrange(2), key=self.key, stats=stats)._replace(leader_epoch=self.leader)
        return [one, one] if random.random() < 0.1 else [one]


class History:
    """Rows of states, groups and logs over `span_s` seconds from BASE_S, and samples of the logs' ends."""

    def __init__(
        self, seed: int, span_s: int = 5_400, streams: int = 3, partitions: int = 9, writes: int = 400
    ) -> None:
        self.random = Random(seed)
        self.span_s = span_s
        self._seqs: dict[str, int] = {}
        self.partitions = [
            Partition(self.random, SharePartitionKey(f"g{number % 4}", topic, number // 3))
            for number, topic in zip(range(partitions), [*TOPICS.values()] * partitions, strict=False)
        ]
        self._streams = [f"{{sgs:{number}}}:log" for number in range(streams)]
        self.writes = writes
        self.states = sorted(self._states(), key=lambda row: (row["epoch"], row["seq"]))
        self.groups = list(self._groups())
        self.logs = list(self._logs())

    @property
    def end_s(self) -> int:
        return BASE_S + self.span_s

    def at(self, second: float) -> datetime:
        return datetime.fromtimestamp(BASE_S + second, UTC)

    def _id(self, stream: str) -> EntryId:
        self._seqs[stream] = self._seqs.get(stream, 0) + 1
        return EntryId(1, self._seqs[stream])

    def _states(self) -> Iterator[Row]:
        random = self.random
        of = {id(one): self._streams[number % len(self._streams)] for number, one in enumerate(self.partitions)}
        active = [one for one in self.partitions if random.random() < 0.8]
        times = sorted(random.randrange(self.span_s) for _ in range(self.writes))
        quiet_from = self.span_s * 2 // 3  # some of them finish nothing any more
        for one in self.partitions:
            yield self._state(of[id(one)], 0, one.begin())
        for at in times:
            one = random.choice(active if at < quiet_from else active[: max(1, len(active) // 2)])
            stream = of[id(one)]
            behind = 40 if random.random() < 0.05 else 0  # another owner, whose clock is behind
            for record in one.write(at):
                yield self._state(stream, at - behind, record)
            roll = random.random()
            if roll < 0.01:
                claim = owner_pb.ClaimEntry(append_time_ms=(BASE_S + at) * 1_000).SerializeToString()
                yield decode(Kind.SHARE_STATE, RawEntry(stream, self._id(stream), "C", claim))
            elif roll < 0.02:
                lost = self._id(stream)
                yield gap_row(Gap(stream, lost, EntryId(1, lost.seq + 1), 1, random.choice(("trimmed", "tail"))))
            elif roll < 0.03:
                yield decode(Kind.SHARE_STATE, RawEntry(stream, self._id(stream), "U", b"\xff\xff"))

    def _state(self, stream: str, at: int, record: ShareRecord) -> Row:
        return decode(Kind.SHARE_STATE, state_entry(self._id(stream), record, (BASE_S + at) * 1_000, stream))

    def _groups(self) -> Iterator[Row]:
        random = self.random
        epochs = dict.fromkeys(("g0", "g1", "g2", "unused"), 0)
        members: dict[str, set[str]] = {group: set() for group in epochs}
        states = {topic: TopicState(topic, name, 3, {}, (0, 1, 2)) for name, topic in TOPICS.items() if name != "jobs"}
        yield self._group(0, r.StateMetadata("g0", Lifecycle(states, {})))
        for at in sorted(random.randrange(self.span_s) for _ in range(120)):
            group = random.choice(list(epochs))
            member = f"m{random.randrange(4)}"
            if member in members[group] and random.random() < 0.5:
                members[group].discard(member)
                yield self._group(at, r.Tombstone(r.MEMBER, group, member, random.choice(("left", "expired"))))
            else:
                members[group].add(member)
                client = f"c{random.randrange(2)}"
                yield self._group(at, r.MemberMetadata(group, member, None, client, "h", ("orders",)))
                given = {TOPICS["orders"]: (0, 1)}
                yield self._group(at, r.CurrentAssignment(group, member, epochs[group], 0, r.STABLE, given))
            epochs[group] += 1
            yield self._group(at, r.TargetMetadata(group, epochs[group], 0, {}))
        for member in sorted(members["g1"]):
            yield self._group(self.span_s // 2 + 1, r.Tombstone(r.MEMBER, "g1", member, "left"))
        for at in range(self.span_s - 50, self.span_s - 46):  # it cannot stay
            yield self._group(at, r.MemberMetadata("g2", "flaps", None, "c9", "h", ("orders",)))
            yield self._group(at, r.Tombstone(r.MEMBER, "g2", "flaps", "expired"))
        yield gap_row(Gap("{gc:0}:log", self._id("{gc:0}:log"), self._id("{gc:0}:log"), 2, "missing"))

    def _group(self, at: int, record: r.Record) -> Row:
        stream = "{gc:0}:log"
        letter, data = GroupLogCodec().encode(record, (BASE_S + at) * 1_000)
        return decode(Kind.GROUP, RawEntry(stream, self._id(stream), letter, data))

    def _logs(self) -> Iterator[tuple[str, int, list[tuple[int, int]]]]:
        """Each log: topic id, partition, and at which second it had grown to which end."""
        for topic in TOPICS.values():
            for index in range(3):
                own = [one for one in self.partitions if one.key.topic_id == topic and one.key.partition == index]
                most = max((one.hwm for one in own), default=0) + self.random.randrange(20)
                times = sorted(self.random.randrange(self.span_s) for _ in range(12))
                yield topic_id_text(topic), index, [(at, most * (n + 1) // 12) for n, at in enumerate(times)]

    def store(self, data: Path, *, parts: int = 3, log_meta: bool = True, sampled: bool = True) -> Path:
        """Keep everything as an ingest does, in `parts` batches. Everything was read up to 100 s before the end."""
        for kind, rows in ((Kind.SHARE_STATE, self.states), (Kind.GROUP, self.groups)):
            for number in range(parts):
                keep(data, kind, rows[len(rows) * number // parts : len(rows) * (number + 1) // parts], number)
        if log_meta:
            keep(data, Kind.LOG_META, list(self._batches()), 0)
        if sampled:
            self._sample(data)
        (data / "read-up-to").write_text(self.at(self.span_s - 100).isoformat())
        return data

    def _batches(self) -> Iterator[Row]:
        for topic_id, index, ends in self.logs:
            before = 0
            for seq, (at, end) in enumerate(ends, start=1):
                if end > before:
                    yield {
                        "stream": f"{{tp:{topic_id}:{index}}}:log", "entry_id": f"1-{seq}", "epoch": 1, "seq": seq,
                        "ts": self.at(at), "record_type": "batch", "bytes": 10, "topic_id": topic_id,
                        "partition": index, "base_offset": before, "last_offset": end - 1,
                        "record_count": end - before, "log_end_offset": end,
                    }  # fmt: skip
                    before = end

    def _sample(self, data: Path) -> None:
        rows = []
        for at in range(7, self.span_s, 60):
            if 2_000 < at < 2_600:  # nothing was sampled
                continue
            for topic_id, index, ends in self.logs:
                end = max((end for second, end in ends if second <= at), default=0)
                if index < 2:
                    rows.append((topic_id, index, 0, end, end, self.at(at)))
        schema = stored_samples(data).schema
        columns = [list(column) for column in zip(*rows, strict=True)]
        days: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            days.setdefault(f"dt={row[-1]:%Y-%m-%d}/{row[-1]:%H}", []).append(place)
        table = pa.table(columns, schema=schema)
        for name, places in days.items():
            path = data / "log_ends" / f"{name}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table.take(pa.array(places)), path)
