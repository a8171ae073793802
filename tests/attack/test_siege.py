"""Every attack once against real nodes: a canary keeps working, new clients are served, memory stays within its
bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.catalogue import ATTACKS
from tests.attack.definition import Attack
from tests.attack.siege import Siege

pytestmark = pytest.mark.attack


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with Siege(Path(tmp_path_factory.mktemp("siege")), seed=1) as running:
        yield running


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_harms_no_other_client(siege: Siege, attack: Attack) -> None:
    struck = siege.strike(attack, seconds=2.0)
    assert struck.canary.failed == 0, struck
    assert struck.restarted == (), f"an attack ended a node: {struck}"
    assert siege.harm() == []
