"""Scenarios that have a cluster of their own, run again through its Kafka listener."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.integration.kafka_listener.again.left_out import again
from tests.integration.scenarios import test_consumed_retention, test_limits
from tests.integration.scenarios.test_consumed_retention import FREQUENT
from tests.integration.scenarios.test_limits import TWO_SESSIONS
from tests.integration.scenarios.wire import Connect, Wire
from tests.support.node import Cluster

pytestmark = pytest.mark.asyncio

globals().update(again(test_consumed_retention, test_limits))


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster(FREQUENT, "--kafka-port", "0") as running:
        yield running


@pytest_asyncio.fixture
async def quick(own: Cluster, wire_to: Connect) -> AsyncIterator[Wire]:
    async with wire_to(own) as made:
        yield made


@pytest.fixture(scope="module")
def two_sessions() -> Iterator[Cluster]:
    with Cluster(TWO_SESSIONS, "--kafka-port", "0") as running:
        yield running


@pytest_asyncio.fixture
async def wire(two_sessions: Cluster, wire_to: Connect) -> AsyncIterator[Wire]:
    async with wire_to(two_sessions) as made:
        yield made
