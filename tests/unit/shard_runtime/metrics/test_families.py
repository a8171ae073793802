"""A computed family is known to its registry before the first scrape."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from shard_runtime.hosting.host_options import HostState
from shard_runtime.metrics.families import ComputedMetrics, counter, gauge
from shard_runtime.metrics.loop_time import LoopTime
from shard_runtime.metrics.runtime import RuntimeMetrics


class Depths(ComputedMetrics):
    depth = gauge("depth", "How deep it is.", "place")
    dives = counter("dives", "Dives.")

    def collect(self) -> Iterable[Metric]:
        depth = self.depth.empty()
        depth.add_metric(["lake"], 7)
        return depth, self.dives.of(3)


def test_the_families_of_a_class_are_exported_with_its_samples() -> None:
    registry = CollectorRegistry()
    registry.register(Depths())
    assert [(one.name, one.documentation, one.samples) for one in Depths().describe()] == [
        ("depth", "How deep it is.", []),
        ("dives", "Dives.", []),
    ]
    text = generate_latest(registry).decode()
    assert '# TYPE depth gauge\ndepth{place="lake"} 7.0\n' in text
    assert "# TYPE dives_total counter\ndives_total 3.0\n" in text
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(Depths())


def test_a_request_for_single_metrics_finds_those_that_are_computed() -> None:
    registry = CollectorRegistry()
    RuntimeMetrics(registry).watch_hosts("x", lambda: [HostState.ACTIVE])
    registry.register(LoopTime(busy_ns=lambda: 10**9, now_ns=lambda: 0))
    for name in ("sharegroups_shards", "sharegroups_event_loop_busy_seconds_total"):
        found = registry.restricted_registry([name]).collect()
        assert {sample.name for family in found for sample in family.samples} == {name}
