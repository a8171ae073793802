"""Fixtures of the contract suite: tests run against the twin, a real Valkey, and a Redis Cluster of real nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio

from tests.support.cluster_nodes import ClusterNodes
from tests.support.stores import Deployment, Twin, Valkey

from .redis_cluster import RedisCluster
from .world import World

KINDS: Final = ("twin", "valkey", "cluster")


@pytest.fixture(scope="package")
def nodes() -> Iterator[ClusterNodes]:
    """Yields the nodes of the Redis Cluster that all contract tests share; they start when the first test needs
    them."""
    made = ClusterNodes()
    yield made
    made.stop()


async def deploy(kind: str, replicas: int, nodes: ClusterNodes) -> Deployment:
    """Start a deployment named by a test's parameter. The cluster's masters have a replica in any case."""
    if kind == "twin":
        return Twin(replicas)
    protocol = 2 if kind.endswith("-resp2") else 3
    made = RedisCluster(nodes, protocol) if kind.startswith("cluster") else Valkey(replicas, protocol)
    await made.start()
    return made


@pytest_asyncio.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, nodes: ClusterNodes) -> AsyncIterator[World]:
    """Yields one store without replicas, `appendfsync always`."""
    made = World(await deploy(request.param, 0, nodes))
    yield made
    await made.close()


@pytest_asyncio.fixture(params=["valkey-resp2", "cluster-resp2"])
async def resp2_world(request: pytest.FixtureRequest, nodes: ClusterNodes) -> AsyncIterator[World]:
    """Yields the same under RESP2."""
    made = World(await deploy(request.param, 0, nodes))
    yield made
    await made.close()


@pytest_asyncio.fixture(params=KINDS)
async def replicated(request: pytest.FixtureRequest, nodes: ClusterNodes) -> AsyncIterator[World]:
    """Yields masters with one replica; one copy commits a flush, so that a tail can be lost."""
    made = World(await deploy(request.param, 1, nodes), replicas=1, min_insync_replicas=1)
    yield made
    await made.close()


@pytest_asyncio.fixture(params=KINDS)
async def synced(request: pytest.FixtureRequest, nodes: ClusterNodes) -> AsyncIterator[World]:
    """Yields masters with one replica; two copies commit a flush."""
    made = World(await deploy(request.param, 1, nodes), replicas=1, min_insync_replicas=2)
    yield made
    await made.close()
