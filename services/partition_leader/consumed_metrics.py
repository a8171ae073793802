"""What rounds of consumed retention report to metrics: once per partition that they change, never per record (P-6)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class ConsumedMetrics:
    """Counts what `sharegroups.retention=consumed` does (CM-163)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._offsets = Counter(
            "topic_log_consumed_offsets",
            "Offsets deleted since every group had finished them (sharegroups.retention=consumed).",
            registry=registry,
        )
        self._unknown = Counter(
            "topic_log_consumed_unknown",
            "Rounds of sharegroups.retention=consumed that deleted nothing, as not every share coordinator answered.",
            registry=registry,
        )

    def deleted(self, offsets: int) -> None:
        """Every group had finished them, and the topic keeps only what is needed."""
        self._offsets.inc(offsets)

    def unknown(self) -> None:
        """A round did not hear of every group."""
        self._unknown.inc()
