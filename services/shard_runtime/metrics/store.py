"""A process's store, for Prometheus: whether the replicas that writes wait for are connected."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class _Store(Collector):
    def __init__(self, configured: int, connected: Callable[[], int | None]) -> None:
        self._configured = configured
        self._connected = connected

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Configured and connected replicas; the second is left out while it is not known."""
        yield GaugeMetricFamily("store_replicas_configured", "Replicas that store.replicas names.", self._configured)
        connected = self._connected()
        if connected is not None:
            yield GaugeMetricFamily("store_replicas_connected", "Replicas that the store counts.", connected)


def watch_store(registry: CollectorRegistry, configured: int, connected: Callable[[], int | None]) -> None:
    """Export `store_replicas_configured` and, while it is known, `store_replicas_connected`."""
    registry.register(_Store(configured, connected))
