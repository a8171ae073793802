"""The driver `namespaces`: any two nodes can be cut off from each other, and everything that was created is removed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.chaos.deployment import Cut, Topology, Unsupported, open_deployment
from tests.chaos.drivers.conftest import World
from tests.chaos.drivers.namespaces import NamespacesDeployment, require_namespaces
from tests.chaos.experiment import SETTINGS
from tests.chaos.history import Acknowledged, Produced, read_history
from tests.chaos.load import wait_for
from tests.chaos.workers import WorkerOptions

WAIT_S = 60.0
DELAY_MS = 100


@pytest.fixture(scope="module")
def world(run_world: Callable[[str], World]) -> World:
    return run_world("namespaces")


@pytest.mark.rule("CM-3", "CM-12")
@pytest.mark.parametrize("kind", [Cut.SILENT, Cut.ONE_WAY, Cut.GONE])
def test_a_leader_cut_off_from_the_store_has_a_successor(kind: Cut, world: World) -> None:
    topic = f"cut-{kind.name}"
    leader = world.topic(topic)
    world.deployment.cut("store-0", leader, kind)
    try:
        assert world.until_led_by_another(topic, leader) != leader
        world.produce(topic, 3)
    finally:
        world.deployment.heal()
    assert world.end(topic) == 3


def test_workers_run_inside_and_leave_when_they_are_asked_to(world: World) -> None:
    world.topic("worked")
    workers = []
    for name, kind in (("consumer0", "consumer"), ("producer", "producer")):
        history = str(world.folder / f"{name}.jsonl")
        options = WorkerOptions("", "worked", "crew", 1, name, 1, 50, history)
        workers.append(world.deployment.worker(name, kind, options))
    wait_for(lambda: _has_worked(world.folder), "acknowledged record", WAIT_S)
    consumer, producer = workers
    world.deployment.cut("consumer0", "partition_leader-0", Cut.SILENT)
    consumer.pause()
    assert consumer.wait(0.1) is None
    consumer.resume()
    world.deployment.heal()
    for worker in (producer, consumer):
        worker.leave()
        assert worker.wait(WAIT_S) == 0, (world.folder / f"{worker.name}.err").read_text()


def _has_worked(folder: Path) -> bool:
    events = read_history(sorted(folder.glob("*.jsonl")))
    return {Produced, Acknowledged} <= {type(event) for event in events if not getattr(event, "error", "")}


def test_what_goes_to_a_node_is_held_up_until_the_cluster_is_healed(world: World) -> None:
    try:
        world.deployment.slow("store-0", DELAY_MS)
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert asked_ms(world) >= DELAY_MS
    world.deployment.slow("store-0", 3 * DELAY_MS)
    assert asked_ms(world) >= 3 * DELAY_MS
    world.deployment.heal()
    assert min(asked_ms(world) for _ in range(20)) < DELAY_MS


def asked_ms(world: World) -> float:
    """Return how long the store took to reply to one request."""
    began = time.monotonic()
    world.deployment.store_command("store-0", "PING")
    return (time.monotonic() - began) * 1000


def test_packets_are_lost_until_the_cluster_is_healed(world: World) -> None:
    world.deployment.lose("store-0", 100)
    try:
        with pytest.raises(AssertionError, match="PING at"):
            world.deployment.store_command("store-0", "PING")
    finally:
        world.deployment.heal()
    assert "PONG" in world.deployment.store_command("store-0", "PING")


def test_nothing_remains_of_a_deployment_that_did_not_come_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        require_namespaces()
    except Unsupported as reason:
        pytest.skip(str(reason))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    topology = Topology(leaders=1, share_coordinators=1, group_coordinators=1, store_replicas=0)
    deployment = cast(NamespacesDeployment, open_deployment("namespaces", tmp_path, topology, SETTINGS))
    with pytest.raises(AssertionError, match="store-0 said nothing"), deployment:
        pass
    mine = f"sgchaos{deployment.run.number}"
    assert [path for path in Path("/run/netns").iterdir() if path.name.startswith(f"{mine}-")] == []
    assert not Path("/sys/class/net", mine).exists()


def test_the_reason_is_given_where_a_program_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.chaos.drivers.namespaces._why_not", lambda: "iptables not found")
    with pytest.raises(Unsupported, match=r"^needs network namespaces: iptables not found$"):
        open_deployment("namespaces", tmp_path, Topology(), SETTINGS)
