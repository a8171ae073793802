"""Every attack once against real nodes, and some of them with TLS and access control: a canary keeps working, new
clients are served, memory stays within its bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.catalogue import ATTACKS, named
from tests.attack.definition import Attack
from tests.attack.siege import Siege

pytestmark = pytest.mark.attack


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with Siege(Path(tmp_path_factory.mktemp("siege")), seed=1) as running:
        yield running


@pytest.fixture(scope="module")
def tls_siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with Siege(Path(tmp_path_factory.mktemp("siege-tls")), seed=2, tls=True) as running:
        yield running


PLAIN = [attack for attack in ATTACKS if not attack.tls_only]
#: The attacks on TLS and, of the others, one for each kind of principal, connection and client.
WITH_TLS = [attack for attack in ATTACKS if attack.tls_only and not attack.by_name_only]
WITH_TLS += map(named, ("silent-connections", "ping-flood", "parsed-state", "random-internal-calls"))
WITH_TLS += map(named, ("members-that-vanish", "forged-batches", "unread-fetches"))


@pytest.mark.parametrize("attack", PLAIN, ids=lambda attack: attack.name)
def test_an_attack_harms_no_other_client(siege: Siege, attack: Attack) -> None:
    _strike(siege, attack)


@pytest.mark.parametrize("attack", WITH_TLS, ids=lambda attack: attack.name)
def test_an_attack_on_a_cluster_with_tls_harms_no_other_client(tls_siege: Siege, attack: Attack) -> None:
    _strike(tls_siege, attack)


def _strike(siege: Siege, attack: Attack) -> None:
    struck = siege.strike(attack, seconds=2.0)
    assert struck.canary.failed == 0, struck
    assert struck.restarted == (), f"an attack ended a node: {struck}"
    assert siege.harm() == []
