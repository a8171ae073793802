"""Prometheus metrics of the Kafka listener, read when they are collected (KL-9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import Metric

from kafka_listener.listener import KafkaListener
from shard_runtime.metrics.families import ComputedMetrics, counter, gauge


class KafkaListenerMetrics(ComputedMetrics):
    """What the connections of Kafka's clients ask for, and why some are closed."""

    connections = gauge("sharegroups_kafka_connections", "Open connections of Kafka's clients.")
    under_way = gauge("sharegroups_kafka_requests_under_way", "Their requests that are not answered.")
    requests = counter("sharegroups_kafka_requests_total", "Their requests, by Kafka's name of the API.", "api")
    malformed = counter(
        "sharegroups_kafka_malformed_requests_total", "Requests that could not be read; each closed its connection."
    )
    refused = counter(
        "sharegroups_kafka_refused_connections_total",
        "Connections closed for what their clients did, or not taken, by the reason.",
        "reason",
    )

    def __init__(self, listeners: Sequence[KafkaListener]) -> None:
        self._listeners = listeners

    def collect(self) -> Iterable[Metric]:
        """Yield connections, requests by API, and what was refused, of all ports for Kafka's clients."""
        every = [listener.counts for listener in self._listeners]
        yield self.connections.of(sum(listener.connections for listener in self._listeners))
        yield self.under_way.of(sum(listener.under_way for listener in self._listeners))
        requests = self.requests.empty()
        for name, number in sorted(_sums(counts.requests for counts in every).items()):
            requests.add_metric([name], number)
        yield requests
        yield self.malformed.of(sum(counts.malformed for counts in every))
        refused = self.refused.empty()
        for reason, number in sorted(_sums(counts.refused for counts in every).items()):
            refused.add_metric([reason], number)
        yield refused


def _sums(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return found
