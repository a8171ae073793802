"""One node for the tests of a module, and a canary on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sharegroups import Admin, NewTopic
from tests.attack.canary import Canary, song
from tests.support.node import Cluster


@pytest.fixture(scope="module")
def attacked() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def canary(attacked: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    """Yields a canary that must get through all tests in the module without a failed turn."""
    with Admin({"bootstrap.servers": attacked.bootstrap}) as admin:
        admin.create_topics([NewTopic("canary", 1)])
    with Canary(attacked.bootstrap, "canary", tmp_path_factory.mktemp("canary")) as singing:
        yield singing
        assert song(singing.turns()).failed == 0
