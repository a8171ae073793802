"""Prometheus metrics of a process's store: whether the replicas that writes wait for are connected, whether its
settings may lose data, how far its clock is from this host's, and what its nodes say of their memory and disk.

A scrape asks the store nothing: the values are those of the store watch's last check."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from shard_runtime.metrics.families import ComputedMetrics, counter, gauge
from shard_runtime.record_log.redis.store_watch import UNSAFE, StoreWatch


class _Store(ComputedMetrics):
    configured = gauge("sharegroups_store_replicas_configured", "Replicas that store.replicas names.")
    connected = gauge("sharegroups_store_replicas_connected", "Replicas that the store counts.")
    unsafe = gauge(
        "sharegroups_store_unsafe", "Whether the store is set to lose data by this setting.", "setting"
    )  # CM-171
    ahead = gauge(
        "sharegroups_store_clock_ahead_seconds", "By how much the store's clock is ahead of this host's."
    )  # CM-170
    paused = gauge(
        "sharegroups_retention_by_age_paused",
        "Whether no records are deleted by age, since a clock may be wrong.",  # CM-170
    )
    used = gauge(  # CM-208
        "sharegroups_store_memory_used_bytes", "Memory of a store node that counts towards its limit.", "node"
    )
    limit = gauge(
        "sharegroups_store_memory_limit_bytes",
        "Memory limit of a store node (maxmemory), at which it refuses writes; no sample without a limit.",
        "node",
    )
    delayed = counter(
        "sharegroups_store_fsync_delayed_total",
        "Writes of a store node that waited for an earlier fsync of its append-only file, since the node started.",
        "node",
    )
    fork = gauge("sharegroups_store_fork_seconds", "How long the last fork of a store node stopped it.", "node")
    rewrite = gauge(
        "sharegroups_store_rewrite_failed",
        "Whether the last rewrite of a store node's append-only file failed, so that the file grows.",
        "node",
    )

    def __init__(self, configured: int, connected: Callable[[], int | None], watch: StoreWatch | None) -> None:
        self._configured = configured
        self._connected = connected
        self._watch = watch

    def collect(self) -> Iterable[Metric]:
        """Yield configured and connected replicas, the second only when known; with a watch, its findings, too."""
        yield self.configured.of(self._configured)
        connected = self._connected()
        if connected is not None:
            yield self.connected.of(connected)
        if self._watch is None:
            return
        unsafe = self.unsafe.empty()
        for name in UNSAFE:
            unsafe.add_metric([name], name in self._watch.unsafe)
        yield unsafe
        yield self.ahead.of(self._watch.time.store_ahead_ms / 1000)
        yield self.paused.of(bool(self._watch.time.doubt()))
        yield from self._usage(self._watch)

    def _usage(self, watch: StoreWatch) -> Iterable[Metric]:
        used, limit, delayed, fork, rewrite = (
            each.empty() for each in (self.used, self.limit, self.delayed, self.fork, self.rewrite)
        )
        for node, usage in watch.usage.items():
            used.add_metric([node], usage.used_bytes)
            if usage.limit_bytes:
                limit.add_metric([node], usage.limit_bytes)
            delayed.add_metric([node], usage.fsyncs_delayed)
            fork.add_metric([node], usage.fork_s)
            rewrite.add_metric([node], usage.rewrite_failed)
        return used, limit, delayed, fork, rewrite


def watch_store(
    registry: CollectorRegistry,
    configured: int,
    connected: Callable[[], int | None],
    watch: StoreWatch | None = None,
) -> None:
    """Export the replicas that the settings name and, while it is known, how many are connected; with a `watch`, its
    findings, too."""
    registry.register(_Store(configured, connected, watch))
