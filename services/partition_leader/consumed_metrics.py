"""Metrics of consumed retention, counted per changed partition or per round, never per record (P-6)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class ConsumedMetrics:
    """Counts what `sharegroups.retention=consumed` does (CM-163)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._offsets = Counter(
            "sharegroups_topic_log_consumed_offsets_total",
            "Offsets deleted since every group had finished them (sharegroups.retention=consumed).",
            registry=registry,
        )
        self._unknown = Counter(
            "sharegroups_topic_log_consumed_unknown_total",
            "Rounds of sharegroups.retention=consumed that deleted nothing, as not every share coordinator answered.",
            registry=registry,
        )

    def deleted(self, offsets: int) -> None:
        """Count offsets that were deleted because every group had finished them."""
        self._offsets.inc(offsets)

    def unknown(self) -> None:
        """Count a round that deleted nothing because not every share coordinator responded."""
        self._unknown.inc()
