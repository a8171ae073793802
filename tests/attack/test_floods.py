"""Floods of frames that need no call do not make clients wait, at the listeners for clients and for nodes (CM-180)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.attacks.floods import FLOOD_ATTACKS
from tests.attack.definition import Attack, Target
from tests.support.node import QUICK, Cluster

pytestmark = pytest.mark.attack


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(QUICK) as running:
        yield running


@pytest.mark.rule("CM-180")
@pytest.mark.parametrize(("port", "seed"), [("client", 1), ("internal", 2)])  # three floods at once, and one
@pytest.mark.parametrize("attack", FLOOD_ATTACKS, ids=lambda attack: attack.name)
def test_a_flood_of_frames_keeps_no_client_waiting(
    cluster: Cluster, tmp_path: Path, attack: Attack, port: str, seed: int
) -> None:
    address = cluster.bootstrap if port == "client" else cluster.internal
    target = Target(clients={"node": address}, internal={}, metrics={}, topic="", topic_id=b"")
    attack.run(target, random.Random(seed), 5.0, tmp_path)
