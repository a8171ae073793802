"""Metrics of hosts: counters are updated per batch, gauges by state are computed on a scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from shard_runtime.hosting.host_options import HostState
from shard_runtime.metrics.runtime import RuntimeMetrics
from shard_runtime.record_log.protocol import ShardId, ShardKind
from shard_runtime.record_log.redis.keys import META_LOG


def test_hosts_are_counted_per_batch_and_by_state_at_scrape_time() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    states = [HostState.ACTIVE, HostState.ACTIVE, HostState.LOADING, HostState.IDLE]
    metrics.watch_hosts("group_coordinator", lambda: states, lambda: 3, lambda: 2)
    meter = metrics.meter("group_coordinator")
    meter.flushed(5, 12)
    meter.refused(2)
    meter.loaded(100, 1, 40)
    meter.trimmed(7)
    service = {"service": "group_coordinator"}

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**service, **labels})

    assert value("sharegroups_shards", state="active") == 2
    assert value("sharegroups_shards", state="loading") == 1
    assert value("sharegroups_event_queue_size") == 3
    assert value("sharegroups_quarantined_entries") == 2
    assert value("sharegroups_batch_flush_records_sum") == 5
    assert value("sharegroups_batch_flush_time_seconds_sum") == 0.012
    assert value("sharegroups_shard_load_time_seconds_sum") == 0.04
    assert value("sharegroups_batch_refused_records_total") == 2
    assert value("sharegroups_unknown_entries_total") == 1
    assert value("sharegroups_stream_trims_total") == 1
    states.clear()
    assert value("sharegroups_shards", state="active") == 0


def test_services_share_a_family() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    metrics.watch_hosts("group_coordinator", lambda: [HostState.FAILED], lambda: 3)
    metrics.watch_hosts("partition_leader", lambda: [])
    text = generate_latest(registry).decode()
    assert text.count("# TYPE sharegroups_shards") == 1
    assert 'sharegroups_shards{service="group_coordinator",state="failed"} 1.0' in text
    assert 'sharegroups_shards{service="partition_leader",state="failed"} 0.0' in text
    assert text.count("\nsharegroups_event_queue_size{") == 1


def test_damaged_entries_are_counted_by_the_kind_of_their_stream_each_from_zero() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    shards = [ShardId(ShardKind.TOPIC, "AAAA:0"), ShardId(ShardKind.SHARE_STATE, "7"), ShardId(ShardKind.TOPIC, "B:1")]
    for stream in [stream for shard in shards for stream in shard.streams] + [META_LOG]:
        metrics.damage_found(stream)
    expected = dict.fromkeys((kind.value for kind in ShardKind), 0)
    for shard in shards:
        expected[shard.kind.value] += len(shard.streams)
    assert {
        kind: registry.get_sample_value("sharegroups_damaged_entries_total", {"kind": kind})
        for kind in [*expected, "meta"]
    } == {**expected, "meta": 1}
