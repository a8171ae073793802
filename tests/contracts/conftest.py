"""Fixtures of the contract suite: every test runs against the twin and against a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .deployment import KINDS, deploy
from .world import World


@pytest_asyncio.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """One store without replicas, `appendfsync always`."""
    made = World(await deploy(request.param, 0))
    yield made
    await made.close()


@pytest_asyncio.fixture(params=["valkey-resp2"])
async def resp2_world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The same under RESP2."""
    made = World(await deploy(request.param, 0))
    yield made
    await made.close()


@pytest_asyncio.fixture(params=KINDS)
async def replicated(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A master and one replica; one copy commits a flush, so that a tail can be lost."""
    made = World(await deploy(request.param, 1), replicas=1, min_insync_replicas=1)
    yield made
    await made.close()


@pytest_asyncio.fixture(params=KINDS)
async def synced(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A master and one replica; two copies commit a flush."""
    made = World(await deploy(request.param, 1), replicas=1, min_insync_replicas=2)
    yield made
    await made.close()
