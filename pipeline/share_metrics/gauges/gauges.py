"""Gauges and counters for Prometheus, updated with every batch (PM-38, PM-65).

Counters continue from the previous process with the same directory, see `counters`. The history by windows is in
Parquet.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import DataFrame

from kip932.ids import ACK_NAMES, shard_index
from share_metrics.gauges.counters import Counters, Key
from share_metrics.gauges.lost_tails import lost_tails, rows_after
from share_metrics.metrics.newest import newest_members, newest_states, rebalances, stream_news, topic_names
from share_metrics.reader import Kind
from share_metrics.reader.log_ends import LogEnd
from share_metrics.reader.schemas import WRITE_COUNTS

SERIES_MAX: Final = 2_000
#: The label `partition` of the series that sums up all partitions of a topic beyond SERIES_MAX.
ROLLED_UP: Final = "others"

_PARTITION: Final = ("group", "topic", "partition")
#: The gauges of share-partitions, by what `_Partition.gauge` calls them: names and meanings.
_GAUGES: Final = {
    "start_offset": (
        "sharegroups_ingest_share_group_start_offset",
        "First unfinished offset, as last persisted.",
    ),
    "finished_offset": (
        "sharegroups_ingest_share_group_finished_offset",
        "Start offset plus the records finished after it: how many records are done.",
    ),
    "lag": (
        "sharegroups_ingest_share_group_lag",
        "High watermark less finished records: by the last write, or where the log was seen to end since; no series "
        "where that is not known, or only what it is at least.",
    ),
    "in_flight_width": (
        "sharegroups_ingest_share_group_in_flight_width",
        "Offsets between the start and the end of what may be delivered.",
    ),
    "state_epoch": (
        "sharegroups_ingest_share_group_state_epoch",
        "State epoch; a change means that the state was reinitialised.",
    ),
}
_ADD_UP: Final = frozenset({"lag", "in_flight_width"})
#: How long, in seconds, a log end counts as current after it was last seen; see `current_for_s`.
FRESH_S: Final = 90.0
_FRESH_TRIGGERS: Final = 3
#: The counters of share-partitions, by the columns that they sum up: names and meanings.
_COUNTERS: Final = {
    "n_timeout": ("sharegroups_ingest_share_group_timed_out_records_total", "Records whose acquisition lock expired."),
    "n_limit": (
        "sharegroups_ingest_share_group_limit_archived_records_total",
        "Records archived at the delivery limit.",
    ),
    "n_given_back": (
        "sharegroups_ingest_share_group_given_back_records_total",
        "Records given back because their member's session ended; they are no acknowledgements.",
    ),
    "writes": ("sharegroups_ingest_share_group_writes_total", "Writes of share-partition state."),
    "poison_sightings": (
        "sharegroups_ingest_share_group_poison_sightings_total",
        "Offsets archived at the delivery limit, or released with one delivery left.",
    ),
}
#: The counts of acknowledge types, with the types' names as labels, which are those of the leaders' own metrics;
#: renewals are not written, so have no count.
_ACKS: Final = {f"n_{name}": name for name in ACK_NAMES.values() if f"n_{name}" in WRITE_COUNTS}
_TROUBLE: Final = {
    "lost": ("sharegroups_ingest_lost_entries_total", "Entries that were gone before they were read."),
    "quarantined": ("sharegroups_ingest_quarantined_entries_total", "Entries that are not records."),
    "unknown": ("sharegroups_ingest_unknown_entries_total", "Entries of types that this build does not know."),
}

_Log = tuple[str, int]
_STATE_STREAMS: Final = "{sgs:"
#: The limit for reading the rows of earlier runs.
_RESUME_MAX_S: Final = 3_600.0
#: The maximum number of samples that wait until everything up to their time was read; beyond it the oldest is dropped.
_WAITING_MAX: Final = 60


def current_for_s(trigger_s: float | None) -> float:
    """How long a log end counts as current, by how often the job samples; None: a job that runs once.

    A sample is applied by the first trigger that ends after it, so the newest one is up to two triggers old (PM-38).
    """
    return FRESH_S if trigger_s is None else max(FRESH_S, _FRESH_TRIGGERS * trigger_s)


class ResumeError(Exception):
    """The values of earlier runs could not be read, so counters would begin at 0."""


class _Seen(NamedTuple):
    """A log's end and start as sampled at `at_s`, seconds since 1970."""

    at_s: float = 0.0
    end: int = 0
    start: int | None = None


@dataclass(slots=True)
class _Partition:
    """The newest known values of one share-partition."""

    values: dict[str, int] = field(default_factory=dict)
    last_write: Any = None
    hwm_s: float = 0.0

    def new_counts(self, row: Mapping[str, Any]) -> Counter[str]:
        """The counts of a batch, without its first write if that repeats one that an earlier batch counted (PM-34)."""
        found, first = _counts(row), row["first_write"]
        if first is not None and first["write"] == self.last_write:
            found.subtract(_counts(first))
        return found

    def take(self, row: Mapping[str, Any]) -> None:
        """Replace known values with newer ones. An absent value changes nothing, unless the state is new."""
        epoch = row["state_epoch"]
        reset = epoch is not None and self.values.get("state_epoch", epoch) != epoch
        if reset or row["begins"]:
            self.values.clear()
            self.hwm_s = 0.0
        for name in ("start_offset", "delivery_complete_count", "hwm", "speo"):
            if row[name] is not None and not (reset and row["early"][name]):
                self.values[name] = row[name]
        if "hwm" in self.values:
            self.hwm_s = max(self.hwm_s, row["hwm_s"] or 0.0)
        if epoch is not None:
            self.values["state_epoch"] = epoch
        self.last_write = row["last_write"] or self.last_write

    def gauge(self, name: str) -> int | None:
        """The value of one gauge; None while it is unknown."""
        known = self.values
        if name in known:
            return known[name]
        if "start_offset" not in known:
            return None
        start = known["start_offset"]
        finished = start + max(known.get("delivery_complete_count", 0), 0)
        if name == "finished_offset":
            return finished
        return max(known["speo"] - start, 0) if name == "in_flight_width" and "speo" in known else None

    def lag(self, log: _Seen, since_s: float) -> int | None:
        """The lag from its writes and from `log`, the last sample of its log; None if it is unknown (PM-38, PM-42).

        It is known if the end of the log was seen since `since_s`. If not, the lag is a lower bound at best, which is
        no gauge: it would stand still while the log grows.
        """
        if max(log.at_s, self.hwm_s) < since_s:
            return None
        finished = self.gauge("finished_offset")
        if finished is None:
            return 0 if log.start is not None and log.at_s >= since_s and log.end <= log.start else None
        return max(max(self.values.get("hwm", 0), log.end) - finished, 0)


class Gauges(Collector):
    """The collector for a Prometheus registry. The ingest job calls `take` for every batch, from any thread.

    `keep` is called with the new counters before a scrape shows them.
    """

    def __init__(
        self,
        series_max: int = SERIES_MAX,
        now: Callable[[], float] = time.time,
        fresh_s: float = FRESH_S,
        keep: Callable[[Counters], None] = lambda counters: None,
    ) -> None:
        self._series_max = series_max
        self._now = now
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._partitions: dict[Key, _Partition] = {}
        self._rolled_up: dict[Key, _Partition] = {}
        self._names: dict[str, str] = {}
        self._members: dict[str, set[str]] = {}
        self._of_groups_known = False
        self._newest: dict[str, float] = {}
        self._unread: dict[str, int] = {}
        self._counters = Counters()
        self._keep = keep
        self._resuming = False
        self._resumed = threading.Event()
        self._resumed.set()
        self._broken = False
        self._sampled: deque[tuple[float, dict[_Log, _Seen | None]]] = deque(maxlen=_WAITING_MAX)
        self._logs: dict[_Log, _Seen] = {}
        self._as_of_s: float | None = None
        self._unknown_before_s: float | None = None
        self._read_s = 0.0

    def take(self, kind: Kind, rows: DataFrame, number: int | None = None, *, kept: bool = False) -> None:
        """Take the rows of one batch. Spark aggregates them, so that the driver receives one row for each key.

        A batch with a `number` is counted once: if it is repeated, only the newest entry times are taken. `kept`: the
        rows were ingested by earlier runs, so their values are taken but nothing is counted. Others wait while those
        are taken, since they are newer. Propagates an OSError from `keep`; then nothing in the batch was counted.
        Raises ResumeError if the rows of earlier runs could not be taken.
        """
        if not kept and not (self._resumed.wait(_RESUME_MAX_S) and not self._broken):
            raise ResumeError("values for Prometheus from earlier runs are not there, so this batch is not counted")
        again = self._counters.has(kind, number)
        new_counts = stream_news(rows).collect()
        of_states = kind is Kind.SHARE_STATE and not again
        tails = lost_tails(rows) if of_states and any(row["lost"] for row in new_counts) else {}
        states = newest_states(rows_after(rows, tails) if kept else rows).collect() if of_states else []
        of_groups = kind is Kind.GROUP and not again
        members, computed, names = (
            of(rows).collect() if of_groups else [] for of in (newest_members, rebalances, topic_names)
        )
        uncounted: dict[str, Any] = dict(_NOTHING) if kept else {}
        found = {(row["group_id"], row["topic_id"], row["partition"]): row.asDict() | uncounted for row in states}
        with self._lock:
            counters = self._counters.copy()
            for key in sorted(found):
                self._count_state(counters, key, found[key])
            for row in computed:
                counters.rebalances[row["group_id"]] += 0 if kept else row["rebalances"]
            for row, name in product(new_counts, _TROUBLE):
                counters.trouble[row["stream"], name] += 0 if kept or again else row[name] or 0
            if number is not None and not again:
                counters.batches[kind] = number
                self._keep(counters)
            self._counters = counters
            if tails:
                self._forget(tails)
            for key, newest in found.items():
                self._take_state(key, newest)
            self._of_groups_known |= of_groups
            for row in members:
                there = self._members.setdefault(row["group_id"], set())
                (there.add if row["there"] else there.discard)(row["member_id"])
            self._names.update({row["topic_id"]: row["topic_name"] for row in names})
            for row in new_counts:
                if row["newest_s"] is not None:
                    self._newest[row["stream"]] = max(row["newest_s"], self._newest.get(row["stream"], 0.0))

    @contextmanager
    def resuming(self, counters: Counters) -> Iterator[None]:
        """Continue from `counters`. Inside the block, the caller takes the rows of earlier runs. Until it ends, a
        scrape shows nothing, since series would have no values yet, and topics no names; and new batches wait."""
        with self._lock:
            self._counters, self._resuming = counters, True
        self._resumed.clear()
        self._broken = True
        try:
            yield
            with self._lock:
                self._counters.only(self._partitions)
                self._resuming = self._broken = False
        finally:
            self._resumed.set()

    def unknown_before(self, at_s: float) -> None:
        """Take into account that nothing was read for a while until `at_s`, seconds since 1970 (PM-106).

        What was seen before says nothing about the present. So a lag is unknown until the end of its log is seen
        again, and members are until everything that was written before `at_s` was read.
        """
        with self._lock:
            self._unknown_before_s = at_s

    def positions(self, at: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Take the number of entries ever added to each stream, up to the read position and up to the end (PM-65)."""
        with self._lock:
            self._unread.update({stream: max(end - at.get(stream, 0), 0) for stream, end in ends.items()})

    def sampled(self, at_s: float, ends: Iterable[LogEnd]) -> None:
        """Take the ends of all logs as sampled at `at_s`, in seconds since 1970. They are applied once everything up to
        then was read."""
        seen = {
            (end.topic_id, end.partition): None
            if end.high_watermark is None
            else _Seen(at_s, end.high_watermark, end.log_start_offset)
            for end in ends
        }
        with self._lock:
            self._sampled.append((at_s, seen))

    def read_up_to(self, at_s: float, *, last: bool = False) -> None:
        """Apply the samples up to `at_s`, seconds since 1970: all rows written before then were taken (PM-42).

        A later sample would count as lag records that have been finished by then. `last`: nothing more will be read, so
        the gauges are as of that time.
        """
        with self._lock:
            self._as_of_s = at_s if last else None
            self._read_s = max(self._read_s, at_s)
            while self._sampled and self._sampled[0][0] <= at_s:
                _, seen = self._sampled.popleft()
                # A log that is being claimed shows no end; its previous end still applies.
                known = {log: self._logs.get(log, _Seen()) if one is None else one for log, one in seen.items()}
                self._logs = known

    def collect(self) -> Iterable[Metric]:
        """All metric families, for a scrape."""
        with self._lock:
            return [] if self._resuming else [*self._of_partitions(), *self._of_groups(), *self._of_ingest()]

    def _count_state(self, counters: Counters, key: Key, row: Mapping[str, Any]) -> None:
        """Count a share-partition's row. As long as the share-partition exists, it keeps its own series or stays rolled
        up."""
        own = counters.partitions
        rolled_up = key in self._rolled_up or (key not in own and len(own) >= self._series_max)
        partition = (self._rolled_up if rolled_up else self._partitions).get(key, _Partition())
        counts = counters.others.setdefault(key[:2], Counter()) if rolled_up else own.setdefault(key, Counter())
        counts.update(partition.new_counts(row))

    def _take_state(self, key: Key, row: Mapping[str, Any]) -> None:
        """Take the values of a share-partition whose row was counted."""
        known = self._partitions if key in self._counters.partitions else self._rolled_up
        if row["gone"]:
            known.pop(key, None)
            self._counters.partitions.pop(key, None)
        else:
            partition = known.setdefault(key, _Partition())
            partition.take(row)

    def _forget(self, streams: Container[str]) -> None:
        """Forget the values of the share-partitions of these streams, which lost a tail: they may be those of entries
        that the store no longer has. They are unknown until they are written again (PM-123)."""
        shards = sum(stream.startswith(_STATE_STREAMS) for stream in self._unread)
        for known in (self._partitions, self._rolled_up):
            for (group, topic_id, partition), one in known.items():
                shard = shard_index(f"{group}:{topic_id}:{partition}", shards) if shards else None
                if shard is None or f"{_STATE_STREAMS}{shard}}}:log" in streams:
                    one.values.clear()
                    one.hwm_s = 0.0

    def _of_partitions(self) -> list[Metric]:
        gauges = {value: GaugeMetricFamily(name, words, labels=_PARTITION)
                  for value, (name, words) in _GAUGES.items()}  # fmt: skip
        counters = {column: CounterMetricFamily(name, words, labels=_PARTITION)
                    for column, (name, words) in _COUNTERS.items()}  # fmt: skip
        acks = CounterMetricFamily(
            "sharegroups_ingest_share_group_acknowledged_records_total",
            "Records acknowledged, by type.",
            labels=(*_PARTITION, "ack_type"),
        )
        unknown = GaugeMetricFamily(
            "sharegroups_ingest_share_group_lag_unknown",
            "Share-partitions whose lag is not known, or only what it is at least; these have no series of the lag.",
            labels=("group", "topic"),
        )
        dark: Counter[tuple[str, str]] = Counter()
        since_s = (self._now() if self._as_of_s is None else self._as_of_s) - self._fresh_s
        since_s = max(since_s, self._unknown_before_s or 0.0)
        for labels, members, counts in self._series():
            lags = [partition.lag(self._logs.get(key[1:], _Seen()), since_s) for key, partition in members]
            dark[labels[0], labels[1]] += lags.count(None)
            for name, gauge in gauges.items():
                values = lags if name == "lag" else [one.gauge(name) for _, one in members]
                known = [value for value in values if value is not None]
                whole = name != "lag" or len(known) == len(values)
                if known and whole and (name in _ADD_UP or labels[2] != ROLLED_UP):
                    gauge.add_metric(labels, sum(known))
            for column, counter in counters.items():
                counter.add_metric(labels, counts[column])
            for name, word in _ACKS.items():
                acks.add_metric([*labels, word], counts[name])
        for of, count in sorted(dark.items()):
            unknown.add_metric(of, count)
        return [*gauges.values(), unknown, *counters.values(), acks]

    def _series(self) -> list[tuple[list[str], list[tuple[Key, _Partition]], Counter[str]]]:
        """Labels, share-partitions and counts of each series: one share-partition, or all others of a topic."""
        shown = [
            ([key[0], self._names.get(key[1], key[1]), str(key[2])], [(key, partition)], self._counters.partitions[key])
            for key, partition in sorted(self._partitions.items())
        ]
        others: dict[tuple[str, str], tuple[list[tuple[Key, _Partition]], Counter[str]]] = {}
        for (group, topic_id), counts in self._counters.others.items():
            others.setdefault((group, self._names.get(topic_id, topic_id)), ([], Counter()))[1].update(counts)
        for key, partition in self._rolled_up.items():
            others[key[0], self._names.get(key[1], key[1])][0].append((key, partition))
        return shown + [([*key, ROLLED_UP], *found) for key, found in sorted(others.items(), key=lambda one: one[0])]

    def _of_groups(self) -> list[Metric]:
        members = GaugeMetricFamily(
            "sharegroups_ingest_share_group_members",
            "Current members; no series while they are not known.",
            labels=["group"],
        )
        computed = CounterMetricFamily(
            "sharegroups_ingest_share_group_rebalances_total", "Target assignments computed.", labels=["group"]
        )
        # A group with share-partitions that never had a member, for example after a tool set its offsets, shows 0.
        groups = {key[0] for key in (*self._partitions, *self._rolled_up)} if self._of_groups_known else set()
        present = self._unknown_before_s is None or self._read_s >= self._unknown_before_s
        for group in sorted(groups | set(self._members)) if present else ():
            members.add_metric([group], len(self._members.get(group, ())))
        for group, count in sorted(self._counters.rebalances.items()):
            computed.add_metric([group], count)
        return [members, computed]

    def _of_ingest(self) -> list[Metric]:
        age = GaugeMetricFamily(
            "sharegroups_ingest_freshness_seconds", "Age of the newest entry that was ingested.", labels=["stream"]
        )
        behind = GaugeMetricFamily(
            "sharegroups_ingest_entries_behind", "Entries that are not ingested yet.", labels=["stream"]
        )
        for stream, newest_s in sorted(self._newest.items()):
            age.add_metric([stream], max(self._now() - newest_s, 0.0))
        for stream, count in sorted(self._unread.items()):
            behind.add_metric([stream], count)
        return [age, behind, *map(self._of_trouble, _TROUBLE)]

    def _of_trouble(self, what: str) -> Metric:
        family = CounterMetricFamily(*_TROUBLE[what], labels=["stream"])
        for (stream, kind), count in sorted(self._counters.trouble.items()):
            if kind == what:
                family.add_metric([stream], count)
        return family


_NOTHING: Final = {**dict.fromkeys((*_ACKS, *_COUNTERS), 0), "first_write": None}


def _counts(row: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: row[name] for name in (*_ACKS, *_COUNTERS)})
