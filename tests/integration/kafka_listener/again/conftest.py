"""The fixtures of tests/integration/scenarios, for clients of the Kafka listener."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.kafka_listener.again.kafka_wire import KafkaWire
from tests.integration.scenarios.conftest import cluster, kafka, kafka_cluster, wire
from tests.integration.scenarios.wire import Connect
from tests.support.node import Clusters

__all__ = ["cluster", "kafka", "kafka_cluster", "wire"]


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    made = Clusters("--kafka-port", "0")
    yield made
    made.close()


@pytest.fixture
def wire_to() -> Connect:
    return lambda cluster: KafkaWire(cluster.ready["kafka"][0], cluster.bootstrap, cluster.internal)
