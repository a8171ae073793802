"""Every test of the client-facing services' contract runs on the fake and on real services."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from kip932.api.v1.metadata_pb2 import MetadataRequest
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import Cluster

from .hosting import SETTINGS, Fake, Hosting, Node, Simulated

KINDS: Final = ("fake", "simulated", "node")


@pytest.fixture(scope="package")
def node_cluster() -> Iterator[Cluster]:
    """Yields two real processes on a real store; they start when the first test needs them."""
    with Cluster(SETTINGS) as made:
        made.add_leader("second")
        asyncio.run(_both_known(made))
        yield made


async def _both_known(cluster: Cluster) -> None:
    """Wait until the first node knows the second one."""
    async with Wire(cluster.bootstrap) as wire:
        async for _ in attempts():
            if len((await wire.call("Metadata", MetadataRequest())).brokers) == 2:
                return
    raise AssertionError("the second leader did not come")


@pytest.fixture(params=KINDS)
def hosting(request: pytest.FixtureRequest) -> Hosting:
    """Returns the services that the test runs on."""
    if request.param == "node":
        return Node(request.getfixturevalue("node_cluster"))
    return Fake() if request.param == "fake" else Simulated()
