"""One server for all tests of the pipeline; every test begins with an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .world import World, running


@pytest.fixture(scope="session")
def server() -> Iterator[World]:
    """The server that all tests share."""
    with running() as world:
        yield world


@pytest.fixture
def world(server: World) -> World:
    """An empty store."""
    server.clear()
    return server
