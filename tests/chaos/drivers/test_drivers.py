"""The driver `processes` runs a cluster with a process per node, and its faults have the documented effects."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import cast

import pytest

from tests.chaos.deployment import (
    GROUP_COORDINATOR,
    PARTITION_LEADER,
    REPLICA,
    SENTINEL,
    SERVICES,
    SHARE_COORDINATOR,
    STORE,
    Cut,
    Unsupported,
)
from tests.chaos.drivers.conftest import World
from tests.chaos.drivers.processes import ProcessesDeployment

#: No machine's own clock is wrong by this much.
YEARS_MS = 1_000 * 86_400_000
#: A sample with a counter's creation time.
_STORE_AHEAD = re.compile(r"^sharegroups_store_clock_ahead_seconds (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def world(run_world: Callable[[str], World]) -> World:
    return run_world("processes")


def test_every_role_has_its_nodes_and_every_service_its_address(world: World) -> None:
    deployment = world.deployment
    assert deployment.names(PARTITION_LEADER) == ["partition_leader-0", "partition_leader-1"]
    counts = {role: len(deployment.names(role)) for role in (SHARE_COORDINATOR, GROUP_COORDINATOR, STORE, REPLICA)}
    assert counts == {SHARE_COORDINATOR: 1, GROUP_COORDINATOR: 1, STORE: 1, REPLICA: 1}
    assert deployment.names(SENTINEL) == []
    assert sorted(deployment.addresses) == sorted(name for role in SERVICES for name in deployment.names(role))
    assert deployment.bootstrap == deployment.outside == ",".join(deployment.addresses.values())
    assert set(deployment.logs()) == {name for role in (*SERVICES, STORE, REPLICA) for name in deployment.names(role)}


@pytest.mark.rule("CM-1", "CM-12")
def test_a_killed_node_is_started_again_with_its_name_address_and_data(world: World) -> None:
    leader, addresses = world.topic("killed"), dict(world.deployment.addresses)
    world.produce("killed", 20)
    for name in (leader, "replica-0"):
        world.deployment.kill(name)
        world.deployment.kill(name)
    for name in ("replica-0", leader):
        world.deployment.start(name)
        world.deployment.start(name)
    ledger = json.loads(
        (cast(ProcessesDeployment, world.deployment).home / leader / "nodes" / f"{leader}.json").read_text()
    )
    assert len(ledger["incarnations"]) == 2  # the second process of this name, on the first one's data
    assert world.deployment.addresses == addresses
    world.produce("killed", 5)
    assert world.end("killed") == 25


@pytest.mark.rule("CM-3", "CM-12")
def test_a_leader_paused_beyond_its_lease_has_a_successor(world: World) -> None:
    leader = world.topic("paused")
    world.deployment.pause(leader)
    try:
        world.deployment.pause(leader)
        assert world.until_led_by_another("paused", leader) != leader
    finally:
        world.deployment.resume(leader)
    world.produce("paused", 3)
    assert world.end("paused") == 3


@pytest.mark.rule("CM-4")
def test_a_stopped_node_leaves_in_good_order_and_comes_back(world: World) -> None:
    leader = world.topic("stopped")
    assert world.deployment.stop(leader)
    assert world.until_led_by_another("stopped", leader) != leader
    world.deployment.start(leader)
    assert leader in world.deployment.logs()


def test_without_a_network_of_its_own_the_driver_says_that_it_cannot_cut(world: World) -> None:
    with pytest.raises(Unsupported, match="cannot cut partition_leader-0 from store-0"):
        world.deployment.cut("partition_leader-0", "store-0", Cut.SILENT)
    with pytest.raises(Unsupported, match="cannot delay what goes to store-0"):
        world.deployment.slow("store-0", 100)
    with pytest.raises(Unsupported, match="loses none of store-0"):
        world.deployment.lose("store-0", 10)
    world.deployment.heal()


def test_the_store_answers_commands_and_a_node_that_ended_is_down(world: World) -> None:
    assert world.deployment.store_command("store-0", "PING") == "PONG"
    assert not world.deployment.down("replica-0")
    world.deployment.kill("replica-0")
    try:
        assert world.deployment.down("replica-0")
        with pytest.raises(AssertionError, match="PING at"):
            world.deployment.store_command("replica-0", "PING")
    finally:
        world.deployment.start("replica-0")


def test_a_service_wears_a_clock_that_is_moved_while_it_runs(world: World) -> None:
    deployment = cast(ProcessesDeployment, world.deployment)
    (keeper,) = deployment.names(SHARE_COORDINATOR)
    deployment.kill(keeper)
    deployment.wear_clock(keeper)
    deployment.set_clock(keeper, wall_ms=YEARS_MS)
    deployment.start(keeper)
    with urllib.request.urlopen(f"http://{deployment.metrics_addresses[keeper]}/metrics", timeout=10) as answer:
        (store_ahead_s,) = _STORE_AHEAD.findall(answer.read().decode())
    assert round(float(store_ahead_s) * 1_000 / YEARS_MS) == -1  # the log uses another clock, read in C
    deployment.set_clock(keeper, wall_ms=0)
    world.topic("clocks")
    world.produce("clocks", 3)


@pytest.mark.rule("CM-47")
def test_a_killed_store_is_started_again_on_its_data(world: World) -> None:
    world.topic("store-killed")
    world.produce("store-killed", 3)
    world.deployment.kill("store-0")
    world.deployment.start("store-0")
    world.produce("store-killed", 1)
    assert world.end("store-killed") >= 4  # the end offset jumps (CM-47), so this test must be the last
