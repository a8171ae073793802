"""Metrics of the partition leader; counted per batch or computed at a scrape (P-6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from kip932.ids import TopicIdPartition
from partition_leader.consumed_metrics import ConsumedMetrics
from partition_leader.delivery_metrics import DeliveryMetrics
from partition_leader.meter import LeaderMeter
from partition_leader.progress.metrics import ProgressMetrics
from partition_leader.sessions.core.session import Removed, SessionCache
from partition_leader.share_partition.core.status import DropReason
from partition_leader.share_partition.leader_parts import LedPartition
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.topic_log.core.transactions import LATE_MS
from shard_runtime.clock import Clock
from shard_runtime.hosting.host_options import HostMeter
from shard_runtime.metrics.families import ComputedMetrics, gauge
from shard_runtime.rpc.peer_notices import DROPPED, REFUSED, REPORTED


class Led(Protocol):
    """The partitions led by this process."""

    def led(self) -> dict[TopicIdPartition, LedPartition]:
        """Return every partition led now."""
        ...

    def cached_bytes(self) -> int:
        """Return the memory that their tail caches use now."""
        ...


class Letters(Protocol):
    """The dead letters of this process that are not written yet."""

    def all_waiting(self) -> Iterable[tuple[str, int, bool]]:
        """Yield, for each share-partition with unwritten dead letters: its group, the age of the oldest (ms), and
        whether they have reached the bound."""
        ...


class PartitionLeaderMetrics(LeaderMeter):
    """Counts what topic logs report, and computes gauges over sessions and share-partitions."""

    def __init__(
        self,
        registry: CollectorRegistry,
        host: HostMeter | None = None,
        *,
        by_partition: bool = False,
        rows_max: int = 10_000,
    ) -> None:
        """`host`: receives the counts that all services of a process report under the same names. `by_partition`,
        `rows_max`: for the progress of groups (PL-956)."""
        self._registry = registry
        self.progress: Final = ProgressMetrics(registry, by_partition=by_partition, rows_max=rows_max)
        self.delivery, self.consumed = DeliveryMetrics(registry), ConsumedMetrics(registry)
        self._host = host or HostMeter()
        self._logs = _LogCounters(registry)
        reasons = [reason.value for reason in DropReason]
        self._drops = _labelled(
            registry,
            "sharegroups_share_partition_drops_total",
            "Share-partitions dropped, by reason.",
            "reason",
            reasons,
        )
        text = "Reports to group coordinators about members that lost their connection, or are back, by outcome."
        outcomes = (REPORTED, REFUSED, DROPPED)
        self._member_reports = _labelled(
            registry, "sharegroups_share_session_member_reports_total", text, "outcome", outcomes
        )
        text = "Members that group coordinators had removed, by what happened to their share sessions here."
        self._removals = _labelled(
            registry, "sharegroups_share_session_removed_members_total", text, "outcome", [*Removed]
        )
        self._letters = _LetterCounters(registry)

    def members_reported(self, outcome: str, reports: int) -> None:
        """Count reports about members, by outcome: sent, refused by a coordinator of an older build, or dropped
        (PL-527)."""
        self._member_reports.labels(outcome).inc(reports)

    def member_removed(self, outcome: str) -> None:
        """Count a member's removal that a coordinator reported (PL-528)."""
        self._removals.labels(outcome).inc()

    def appended(self, batches: int, records: int, size: int, elapsed_ms: int) -> None:
        """Count one confirmed flush."""
        self._host.flushed(records, elapsed_ms)
        self._logs.batches.inc(batches)
        self._logs.records.inc(records)
        self._logs.bytes.inc(size)

    def loaded(self, indexed: int, jumped: bool) -> None:
        """Count a log that was rebuilt."""
        del indexed
        self._logs.loads.inc()
        self._logs.jumps.inc(int(jumped))

    def end_raised(self, offsets: int) -> None:
        """Count the offsets by which a log end was raised to match a share-partition's state (CM-47)."""
        self._logs.raised.inc(offsets)

    def refused(self, records: int) -> None:
        """Count refused topic writes, together with the refused writes of the other services."""
        self._host.refused(records)

    def refused_store_full(self, records: int) -> None:
        """Count records that were refused because the store nears its memory limit (CM-214)."""
        self._logs.refused_full.inc(records)

    def end_not_raised(self) -> None:
        """Count a stored state that is too far beyond a log's end to be trusted (CM-83)."""
        self._logs.not_raised.inc()

    def unreadable(self, offsets: int) -> None:
        """Count offsets that damage in the store made unreadable (CM-102)."""
        self._logs.unreadable.inc(offsets)

    def share_partition_dropped(self, reason: DropReason) -> None:
        """Count one share-partition object that was dropped (PL-604, PL-631)."""
        self._drops.labels(reason.value).inc()

    def letters_written(self, group_id: str, letters: int) -> None:
        """Count dead letters that are in their topic (PL-904)."""
        self._letters.written.labels(group_id).inc(letters)

    def letters_dropped(self, group_id: str, reason: str, letters: int) -> None:
        """Count records archived without a dead letter (PL-907)."""
        self._letters.dropped.labels(group_id, reason).inc(letters)

    def letter_request(self, group_id: str, failed: bool) -> None:
        """Count a round of dead letters that was sent to a leader or appended here (PL-912)."""
        self._letters.requests.labels(group_id).inc()
        self._letters.failures.labels(group_id).inc(int(failed))

    def watch(self, sessions: SessionCache, partitions: SharePartitions, led: Led, letters: Letters) -> None:
        """Compute the gauges at each scrape."""
        self._registry.register(_Gauges(sessions, partitions, led))
        self._registry.register(_LetterGauges(letters))

    def watch_transactions(self, led: Led, clock: Clock) -> None:
        """Compute the gauges of open transactions at each scrape."""
        self._registry.register(_TransactionGauges(led, clock))


class _LogCounters:
    """Counts what topic logs report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.batches = Counter(
            "sharegroups_topic_log_appended_batches_total", "Record batches appended.", registry=registry
        )
        self.records = Counter("sharegroups_topic_log_appended_records_total", "Records appended.", registry=registry)
        self.bytes = Counter(
            "sharegroups_topic_log_appended_bytes_total", "Bytes of record batches appended.", registry=registry
        )
        self.loads = Counter("sharegroups_topic_log_loads_total", "Topic logs loaded after a claim.", registry=registry)
        self.jumps = Counter(
            "sharegroups_topic_log_end_jumps_total",
            "Loads that moved the log end up because a tail may be lost.",
            registry=registry,
        )
        self.raised = Counter(
            "sharegroups_topic_log_end_raised_offsets_total",
            "Offsets by which log ends were raised to match share-partition state.",
            registry=registry,
        )
        self.not_raised = Counter(
            "sharegroups_topic_log_end_not_raised_total",
            "Loads of share-partitions refused because their state is further beyond the log than a lost tail.",
            registry=registry,
        )
        self.refused_full = Counter(
            "sharegroups_produce_refused_store_full_total",
            "Records refused, one for each try, because the store is nearly full (store.produce.memory.percent).",
            registry=registry,
        )
        self.unreadable = Counter(
            "sharegroups_topic_log_unreadable_offsets_total",
            "Offsets whose records cannot be read, because their entries in the store are damaged or missing.",
            registry=registry,
        )


class _LetterCounters:
    """Counts dead letters, and the requests with them, by group."""

    def __init__(self, registry: CollectorRegistry) -> None:
        group = ["group"]
        self.written = Counter(
            "sharegroups_share_group_dead_letters_written_total", "Dead letters written.", group, registry=registry
        )
        self.requests = Counter(
            "sharegroups_share_group_dead_letter_produce_requests_total",
            "Requests with dead letters, including failed ones.",
            group,
            registry=registry,
        )
        self.failures = Counter(
            "sharegroups_share_group_dead_letter_failed_produce_requests_total",
            "Requests with dead letters that failed; their dead letters are retried.",
            group,
            registry=registry,
        )
        self.dropped = Counter(
            "sharegroups_share_group_dead_letters_dropped_total",
            "Records archived without a dead letter, by reason.",
            [*group, "reason"],
            registry=registry,
        )


def _labelled(registry: CollectorRegistry, name: str, text: str, label: str, values: Iterable[str]) -> Counter:
    """Return a counter whose series all exist from the start: a rate over a series that starts at 1 misses the first
    event."""
    counter = Counter(name, text, [label], registry=registry)
    for value in values:
        counter.labels(value)
    return counter


class _Gauges(ComputedMetrics):
    sessions = gauge("sharegroups_share_sessions", "Share sessions.")
    session_partitions = gauge("sharegroups_share_session_partitions", "Partitions over all sessions.")
    parked = gauge("sharegroups_purgatory_size", "Parked ShareFetch requests.")
    partitions_led = gauge("sharegroups_partitions_led", "Topic-partitions led.")
    cached = gauge("sharegroups_topic_log_cached_bytes", "Memory of the tail caches.")  # CM-46

    def __init__(self, sessions: SessionCache, partitions: SharePartitions, led: Led) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._led = led

    def collect(self) -> Iterable[Metric]:
        """Yield sessions, parked fetches, and partitions led."""
        yield self.sessions.of(len(self._sessions))
        yield self.session_partitions.of(self._sessions.partition_count)
        yield self.parked.of(self._partitions.parked)
        yield self.partitions_led.of(len(self._led.led()))
        yield self.cached.of(self._led.cached_bytes())


class _LetterGauges(ComputedMetrics):
    age = gauge(
        "sharegroups_share_group_dead_letters_oldest_age_seconds", "Age of the oldest dead letter that waits.", "group"
    )
    full = gauge(
        "sharegroups_share_group_dead_letters_full", "Share-partitions that dead letters hold up.", "group"
    )  # PL-916

    def __init__(self, letters: Letters) -> None:
        self._letters = letters

    def collect(self) -> Iterable[Metric]:
        """Yield how long dead letters have waited, and what they hold up, by group (PL-920)."""
        found: dict[str, tuple[int, int]] = {}
        for group, age_ms, full in self._letters.all_waiting():
            oldest_ms, bound = found.get(group, (0, 0))
            found[group] = (max(oldest_ms, age_ms), bound + full)
        age_gauge, full_gauge = self.age.empty(), self.full.empty()
        for group, (oldest_ms, bound) in found.items():
            age_gauge.add_metric([group], oldest_ms / 1000)
            full_gauge.add_metric([group], bound)
        yield from (age_gauge, full_gauge)


class _TransactionGauges(ComputedMetrics):
    transactions = gauge("sharegroups_topic_log_open_transactions", "Transactions open in the logs led.")
    oldest = gauge(
        "sharegroups_topic_log_oldest_open_transaction_seconds", "Age of the oldest open transaction in the logs led."
    )
    late = gauge(
        "sharegroups_partitions_with_late_transactions",
        f"Partitions with a transaction that is open for {LATE_MS // 1_000} s or longer.",
    )
    unstable = gauge(
        "sharegroups_topic_log_unstable_offsets",
        "Offsets between the last stable offset and the high watermark, which groups that read committed records "
        "do not get yet.",
    )

    def __init__(self, led: Led, clock: Clock) -> None:
        self._led = led
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """Yield gauges of the open transactions in the logs led here, which hold up groups that read committed records:
        their number, the age of the oldest, the number of partitions held up for long, and of unstable offsets
        (PL-1006)."""
        wall_ms = self._clock.wall_ms()
        oldest_ms = late = unstable = 0
        transactions: set[tuple[int, int]] = set()
        for led in self._led.led().values():
            log = led.log
            earliest = log.transactions.earliest
            if earliest is None:
                continue
            longest_ms = max(one.open_ms(wall_ms) for one in log.transactions.open)
            oldest_ms = max(oldest_ms, longest_ms)
            late += longest_ms >= LATE_MS
            unstable += max(log.high_watermark - log.last_stable, 0)
            transactions |= {(one.producer_id, one.producer_epoch) for one in log.transactions.open}
        yield self.transactions.of(len(transactions))
        yield self.oldest.of(oldest_ms / 1_000)
        yield self.late.of(late)
        yield self.unstable.of(unstable)
