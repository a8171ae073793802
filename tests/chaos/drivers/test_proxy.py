"""The driver `proxy`: what its links can do to a cluster, and what they cannot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import pytest

from tests.chaos.deployment import PARTITION_LEADER, Cut, Topology, Unsupported, open_deployment
from tests.chaos.drivers.conftest import WAIT_S, World
from tests.chaos.drivers.echo import Asker
from tests.chaos.drivers.proxy import ProxyDeployment
from tests.chaos.experiment import SETTINGS
from tests.chaos.load import wait_for


@pytest.fixture(scope="module")
def world(run_world: Callable[[str], World]) -> World:
    return run_world("proxy")


@pytest.mark.rule("CM-3", "CM-12")
@pytest.mark.parametrize("kind", [Cut.SILENT, Cut.ONE_WAY, Cut.GONE])
def test_a_leader_cut_off_from_the_store_has_a_successor(kind: Cut, world: World) -> None:
    topic = f"cut-{kind.name}"
    leader = world.topic(topic)
    world.produce(topic, 3)
    world.deployment.cut(leader, "store-0", kind)
    try:
        assert world.until_led_by_another(topic, leader) != leader
        world.produce(topic, 3)
    finally:
        world.deployment.heal()
    assert world.end(topic) == 6


@pytest.mark.rule("CM-15")
def test_a_batch_whose_confirmation_by_the_store_was_lost_is_there_once(world: World) -> None:
    world.topic("lost-reply")
    world.produce("lost-reply", 1)
    deployment = cast(ProxyDeployment, world.deployment)
    # At both leaders, since it is unknown when the leader that was cut off takes its partitions back.
    struck = [deployment.lose_reply(leader, b"XADD") for leader in deployment.names(PARTITION_LEADER)]
    world.produce("lost-reply", 1)
    wait_for(lambda: any(order.is_set() for order in struck), "lost reply", WAIT_S)
    deployment.heal()
    world.produce("lost-reply", 1)
    assert world.end("lost-reply") == 3


def test_what_goes_to_the_store_is_delayed(world: World) -> None:
    world.topic("slow")
    world.deployment.slow("store-0", 150)
    began = time.monotonic()
    world.produce("slow", 1)
    world.deployment.heal()
    assert time.monotonic() - began >= 0.15


def test_a_service_that_is_gone_refuses_everybody_until_it_is_healed(world: World) -> None:
    host, _, port = world.deployment.addresses["share_coordinator-0"].rpartition(":")
    client = Asker(host, int(port))
    world.deployment.cut("partition_leader-0", "share_coordinator-0", Cut.GONE)
    try:
        assert client.new(20, "anybody") == "refused"
    finally:
        world.deployment.heal()
        client.close()
    world.deployment.slow("share_coordinator-0", 10)
    world.deployment.heal()


def test_what_the_proxy_cannot_separate_is_unsupported_with_the_reason(world: World) -> None:
    with pytest.raises(Unsupported, match="one link to share_coordinator-0 for all that call it"):
        world.deployment.cut("partition_leader-0", "share_coordinator-0", Cut.SILENT)
    with pytest.raises(Unsupported, match="no link between partition_leader-0 and replica-0"):
        world.deployment.cut("partition_leader-0", "replica-0", Cut.SILENT)
    with pytest.raises(Unsupported, match="nothing goes to replica-0 through a link"):
        world.deployment.slow("replica-0", 10)
    with pytest.raises(AssertionError, match="there is no partition_leader-7"):
        world.deployment.cut("partition_leader-7", "store-0", Cut.SILENT)
    with pytest.raises(Unsupported, match="Sentinels"):
        open_deployment("proxy", world.folder, Topology(sentinels=3), SETTINGS)
