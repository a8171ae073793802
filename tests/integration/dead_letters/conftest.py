"""The node shared by the tests of dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.dead_letters.queues import Queues
from tests.support.node import QUICK, Cluster
from tests.support.ports import free_port


@pytest.fixture(scope="session")
def metrics_port() -> int:
    """The port of the node's metrics."""
    return free_port()


@pytest.fixture(scope="session")
def node(metrics_port: int) -> Iterator[Cluster]:
    with Cluster({**QUICK, "metrics.port": str(metrics_port)}) as cluster:
        yield cluster


@pytest.fixture
def queues(node: Cluster) -> Iterator[Queues]:
    made = Queues(node)
    yield made
    made.close()
