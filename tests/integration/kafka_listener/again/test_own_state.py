"""Scenarios of state writes that are slow or are refused, run again through the Kafka listener."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.kafka_listener.again.left_out import again
from tests.integration.scenarios import test_state_faults
from tests.integration.scenarios.state_edge import StateEdge, cluster_with_an_edge
from tests.integration.scenarios.wire import Connect, Wire
from tests.support.node import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

globals().update(again(test_state_faults))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edged() -> AsyncIterator[tuple[Cluster, StateEdge]]:
    async with cluster_with_an_edge("--kafka-port", "0") as made:
        yield made


@pytest.fixture
def edge(edged: tuple[Cluster, StateEdge]) -> StateEdge:
    return edged[1]


@pytest_asyncio.fixture(loop_scope="module")
async def wire(edged: tuple[Cluster, StateEdge], wire_to: Connect) -> AsyncIterator[Wire]:
    async with wire_to(edged[0]) as made:
        yield made
