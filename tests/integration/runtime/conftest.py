"""The one-process cluster whose ClusterService several modules call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.runtime.cluster_wire import SERVICE, Wire
from tests.integration.runtime.harness import Cluster
from tests.twin.transport import InMemoryNetwork


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    async with Cluster() as cluster:
        process = await cluster.start("a")
        network = InMemoryNetwork()
        network.serve("node:1", SERVICE, process.node.service())
        yield Wire(process, network.transport())
