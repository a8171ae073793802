"""Declares the metric families that collectors compute when the metrics are read.

Each declaration has the whole name, with the prefix `sharegroups_` and a counter's `_total`, so that a search in the
source finds it; tests/packaging/test_metric_names.py refuses names that do not follow Prometheus' conventions.

prometheus_client learns the name of such a family only by collecting it. When it is declared, a registry refuses a
second family of the same name, `/metrics?name[]=…` finds it, and docs/reference/metrics.md lists it before its first
sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Samples = GaugeMetricFamily | CounterMetricFamily


@dataclass(frozen=True, slots=True)
class Family:
    """A gauge or counter: its name, its meaning, and the labels of its series."""

    kind: type[GaugeMetricFamily] | type[CounterMetricFamily]
    name: str
    meaning: str
    labels: tuple[str, ...]

    def empty(self) -> Samples:
        """Return the family without samples; `add_metric` adds one."""
        return self.kind(self.name, self.meaning, labels=self.labels)

    def of(self, value: float) -> Samples:
        """Return the family with the one sample of a family without labels."""
        family = self.empty()
        family.add_metric([], value)
        return family


def gauge(name: str, meaning: str, *labels: str) -> Family:
    """Declare a gauge."""
    return Family(GaugeMetricFamily, name, meaning, labels)


def counter(name: str, meaning: str, *labels: str) -> Family:
    """Declare a counter, whose name ends in `_total`."""
    return Family(CounterMetricFamily, name, meaning, labels)


class ComputedMetrics(Collector):
    """A collector whose families are attributes of its class. `collect` returns some or all of them."""

    def describe(self) -> Iterable[Metric]:
        """Return all families without samples; prometheus_client calls this when the collector is registered."""
        return [family.empty() for family in vars(type(self)).values() if isinstance(family, Family)]
