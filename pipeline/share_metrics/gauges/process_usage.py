"""Memory and processor time of an ingest: of its own process, under the names that nodes use, and of Spark's Java
process (CM-242)."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class ProcessUsage(Collector):
    """Reads /proc when the metrics are collected; without /proc there are no series.

    They are of a process that runs, so they belong to a port and not into a text file.
    """

    def __init__(self) -> None:
        self._own = ProcessCollector(registry=None)
        self._java: ProcessCollector | None = None

    def watch_java(self, pid: int) -> None:
        """Show Spark's Java process, once it runs."""
        self._java = ProcessCollector(pid=lambda: pid, registry=None)

    def collect(self) -> Iterable[Metric]:
        """The families, for a scrape."""
        yield from self._own.collect()
        java = {} if self._java is None else {one.name: one.samples[0].value for one in self._java.collect()}
        if "process_resident_memory_bytes" in java:
            yield GaugeMetricFamily(
                "sharegroups_ingest_java_resident_memory_bytes",
                "Memory of Spark's Java process that is in RAM, on this machine.",
                java["process_resident_memory_bytes"],
            )
            yield CounterMetricFamily(
                "sharegroups_ingest_java_cpu_seconds_total",
                "Processor time of Spark's Java process, on this machine.",
                java["process_cpu_seconds"],
            )
