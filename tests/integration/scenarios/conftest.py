"""The clusters that all scenarios of a session share, and the RPC client of one test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.integration.scenarios.wire import Wire
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


@pytest_asyncio.fixture
async def wire(cluster: Cluster) -> AsyncIterator[Wire]:
    async with Wire(cluster.bootstrap, cluster.internal) as made:
        yield made


@pytest_asyncio.fixture
async def kafka(kafka_cluster: Cluster) -> AsyncIterator[Wire]:
    async with Wire(kafka_cluster.bootstrap, kafka_cluster.internal) as made:
        yield made
