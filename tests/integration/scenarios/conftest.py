"""The clusters that all scenarios of a session share, and the RPC client of one test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.integration.scenarios.wire import Connect, Wire
from tests.support.node import KAFKA, QUICK, Cluster, Clusters


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    made = Clusters()
    yield made
    made.close()


@pytest.fixture
def cluster(clusters: Clusters) -> Cluster:
    return clusters.of(QUICK)


@pytest.fixture
def kafka_cluster(clusters: Clusters) -> Cluster:
    return clusters.of(KAFKA)


@pytest.fixture
def wire_to() -> Connect:
    """How a test gets a client of a cluster; the same tests have another kind at the Kafka listener."""
    return lambda cluster: Wire(cluster.bootstrap, cluster.internal)


@pytest_asyncio.fixture
async def wire(cluster: Cluster, wire_to: Connect) -> AsyncIterator[Wire]:
    async with wire_to(cluster) as made:
        yield made


@pytest_asyncio.fixture
async def kafka(kafka_cluster: Cluster, wire_to: Connect) -> AsyncIterator[Wire]:
    async with wire_to(kafka_cluster) as made:
        yield made
