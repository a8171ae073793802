"""Generates docs/reference/metrics.md from what each process registers for Prometheus: names, labels and HELP texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families

from group_coordinator.metrics import GroupCoordinatorMetrics
from kafka_listener.metrics import KafkaListenerMetrics
from partition_leader.metrics import PartitionLeaderMetrics
from shard_runtime.metrics.loop_time import LoopTime
from shard_runtime.metrics.process import ProcessMetrics
from shard_runtime.metrics.runtime import (
    AccessMetrics,
    AuthenticationMetrics,
    CallMemory,
    CertificateMetrics,
    QuotaMetrics,
    RuntimeMetrics,
)
from shard_runtime.metrics.store import watch_store
from shard_runtime.rpc.quotas import ClientQuotas
from share_coordinator.metrics import ShareCoordinatorMetrics
from share_metrics.gauges.gauges import Gauges
from share_metrics.gauges.process_usage import ProcessUsage
from share_metrics.ingest.job import Freshness
from share_node.backup.manifest import Manifest
from share_node.backup.textfile import BackupMetrics
from sharegroups.worker.core.tally import Tally

_INTRODUCTION: Final = """# Metrics

Made from the declarations by `make docs`; do not edit. All of them are Prometheus text, over HTTP at `/metrics`. A
labelled series appears with its first value; where the values of a label are listed here, its series begin at 0. A page
of its own has [Kafka's names](kafka-names.md) for some of them, and the
[metrics of a consumer](kafka-names.md#metrics-of-the-consumer), which `ShareConsumer.metrics()` returns. The names of
earlier builds: [upgrade](../howto/upgrade.md#new-names-of-metrics).
"""
#: Words in metrics' names, and the units that they stand for.
_UNITS: Final = {"seconds": "s", "bytes": "bytes", "ratio": "0 to 1"}
#: Stands for what a collector reads to get its values, which this page does not need.
_UNREAD: Final[Any] = None
_NO_BACKUP: Final = Manifest("", "", 0, 0, "", 0, 0, 0, 0, (), ())


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. `labels`: the names of its labels, each with those values that its series have from the start."""

    name: str
    kind: str
    labels: dict[str, tuple[str, ...]]
    meaning: str

    @property
    def unit(self) -> str:
        """The unit of its values, from its name; for a metric that says "Whether …", what the values mean."""
        found = [unit for word, unit in _UNITS.items() if word in self.name.split("_")]
        return found[0] if found else "1: yes, 0: no" if self.meaning.startswith("Whether ") else "count"


def metrics_page() -> str:
    """Return the text of the page."""
    parts = [_INTRODUCTION]
    for title, text, rows in _SECTIONS:
        parts += [f"## {title}", "", text, "", "| Name | Type | Labels | Unit | Meaning |", "|---|---|---|---|---|"]
        parts += [*map(_line, sorted(rows(), key=lambda row: row.name)), ""]
    return "\n".join(parts)


def _line(row: Row) -> str:
    labels = "; ".join(
        f"`{name}`" + (": " + ", ".join(f"`{value}`" for value in values) if values else "")
        for name, values in row.labels.items()
    )
    return f"| `{row.name}` | {row.kind} | {labels} | {row.unit} | {row.meaning} |".replace("  ", " ")


def node_rows() -> Iterator[Row]:
    """Yield the metrics that every service process has, whatever its roles."""
    registry = CollectorRegistry()
    RuntimeMetrics(registry)
    watch_store(registry, 0, _UNREAD)
    registry.register(CallMemory(_UNREAD))
    registry.register(CertificateMetrics(_UNREAD))
    registry.register(AccessMetrics(_UNREAD))
    registry.register(QuotaMetrics(ClientQuotas(lambda: 0)))
    registry.register(AuthenticationMetrics(()))
    registry.register(LoopTime())
    registry.register(ProcessMetrics())
    registry.register(KafkaListenerMetrics(()))
    return _registered(registry)


def leader_rows() -> Iterator[Row]:
    """Yield the metrics of a partition leader."""
    registry = CollectorRegistry()
    metrics = PartitionLeaderMetrics(registry)
    metrics.watch(_UNREAD, _UNREAD, _UNREAD, _UNREAD)
    metrics.watch_transactions(_UNREAD, _UNREAD)
    metrics.delivery.watch(_UNREAD, _UNREAD, _UNREAD, _UNREAD)
    return _registered(registry)


def group_rows() -> Iterator[Row]:
    """Yield the metrics of a group coordinator."""
    registry = CollectorRegistry()
    GroupCoordinatorMetrics(registry, _UNREAD)
    return _registered(registry)


def state_rows() -> Iterator[Row]:
    """Yield the metrics of a share coordinator."""
    registry = CollectorRegistry()
    ShareCoordinatorMetrics(registry, _UNREAD)
    return _registered(registry)


def backup_rows() -> Iterator[Row]:
    """Yield the metrics of a backup."""
    registry = CollectorRegistry()
    registry.register(BackupMetrics(_NO_BACKUP))
    return _registered(registry)


def ingest_rows() -> Iterator[Row]:
    """Yield the metrics of an ingest; its collectors declare their families only by returning them."""
    usage = ProcessUsage()
    usage.watch_java(os.getpid())
    own = [one for one in usage.collect() if not one.name.startswith("process_")]  # listed once, for services
    return map(_row, [*Gauges().collect(), *Freshness().collect(), *own])


def worker_rows() -> Iterator[Row]:
    """Yield the metrics of a worker, which writes the text itself, so that it does not need prometheus_client."""
    for row in map(_row, text_string_to_metric_families(Tally(["orders"]).text())):
        topic: dict[str, tuple[str, ...]] = {"topic": ()} if "topic" in row.labels else {}
        yield replace(row, labels=row.labels | topic)


_SECTIONS: Final[tuple[tuple[str, str, Callable[[], Iterable[Row]]], ...]] = (
    ("Every process of services", "At `metrics.port`. The label `service` is the role.", node_rows),
    ("Group coordinators", "At the `metrics.port` of a process with this role.", group_rows),
    ("Share coordinators", "At the `metrics.port` of a process with this role.", state_rows),
    ("Partition leaders", "At the `metrics.port` of a process with this role.", leader_rows),
    ("Workers", "At `--health-port` of `sharegroups worker`.", worker_rows),
    ("Backups", "In the file of `sharegroups backup --textfile`.", backup_rows),
    (
        "The ingest of the metrics pipeline",
        "At `--metrics-port` of `sharegroups metrics ingest --continuous`, or in the file of `--textfile`. The port "
        "also has `process_…`, as services have it, and only the port has `sharegroups_ingest_java_…`.",
        ingest_rows,
    ),
)


def _registered(registry: CollectorRegistry) -> Iterator[Row]:
    """Yield a row for each family of a registry, from private attributes of prometheus_client: no public ones give the
    labels of a family without samples."""
    for collector in registry._collector_to_names:
        labels = getattr(collector, "_labelnames", None)
        if labels is None:
            yield from map(_row, collector.describe())  # type: ignore[attr-defined]  # `ComputedMetrics` has it
        else:
            (family,) = collector.collect()
            yield _row(family, labels)


def _row(family: Metric, labels: tuple[str, ...] | None = None) -> Row:
    """Return the row of a family; values of its labels are those of the samples that it has."""
    if labels is None:
        seen = {name: None for sample in family.samples for name in sample.labels if name != "le"}
        labels = tuple(getattr(family, "_labelnames", seen))
    values = {label: {sample.labels[label]: None for sample in family.samples} for label in labels}
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return Row(name, family.type, {label: tuple(values[label]) for label in labels}, family.documentation)
