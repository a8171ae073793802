"""The driver `containers`: its faults happen as requested and can be undone, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.deployment import STORE, Cut, Deployment, Topology, Unsupported, open_deployment
from tests.chaos.runner import RUN_SETTINGS

LEADER, KEEPER, GROUPS = "partition_leader-0", "share_coordinator-0", "group_coordinator-0"
SMALL = Topology(leaders=1, share_coordinators=1, group_coordinators=1, store_replicas=0)
#: Run inside a node: prints whether another node can be reached within a second and, if not, how that fails.
PROBE = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 7932), 1.0).close()
except socket.gaierror:
    print("no name")
except TimeoutError:
    print("silence")
else:
    print("reached")
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    image = os.environ.get("IMAGE_UNDER_TEST", "")
    if not image or shutil.which("docker") is None:
        pytest.skip("needs Docker: make image-check builds the image and tries it")
    os.environ["CHAOS_IMAGE"] = image
    with open_deployment("containers", tmp_path_factory.mktemp("chaos"), SMALL, RUN_SETTINGS) as running:
        yield running


@pytest.fixture(autouse=True)
def mended(deployment: Deployment) -> Iterator[None]:
    yield
    deployment.heal()
    for name in (LEADER, KEEPER, GROUPS):
        deployment.resume(name)
        deployment.start(name)


def probe(deployment: Deployment, one: str, other: str) -> str:
    """Return whether `one` can reach `other`, and if not, how that fails."""
    from tests.chaos.drivers.containers import Containers  # noqa: PLC0415 - the extra chaos is not everywhere

    assert isinstance(deployment, Containers)
    return deployment.box(one).exec("python", "-c", PROBE, other).strip()


def test_a_silent_cut_is_silent_both_ways_and_heals(deployment: Deployment) -> None:
    deployment.cut(LEADER, KEEPER, Cut.SILENT)
    assert probe(deployment, LEADER, KEEPER) == "silence"
    assert probe(deployment, KEEPER, LEADER) == "silence"
    assert probe(deployment, LEADER, GROUPS) == "reached"
    deployment.heal()
    assert probe(deployment, LEADER, KEEPER) == "reached"


def test_a_cut_outlives_a_restart_of_its_node(deployment: Deployment) -> None:
    deployment.cut(LEADER, KEEPER, Cut.SILENT)
    deployment.kill(LEADER)
    deployment.start(LEADER)
    assert probe(deployment, LEADER, KEEPER) == "silence"


def test_a_node_that_is_gone_has_no_name(deployment: Deployment) -> None:
    deployment.cut(LEADER, KEEPER, Cut.GONE)
    assert probe(deployment, LEADER, KEEPER) == "no name"
    deployment.heal()
    assert probe(deployment, LEADER, KEEPER) == "reached"


def test_nodes_are_killed_stopped_paused_and_come_back_with_their_address(deployment: Deployment) -> None:
    address = deployment.reach[deployment.addresses[LEADER]]
    deployment.kill(LEADER)
    deployment.kill(LEADER)  # a node that is down already
    deployment.start(LEADER)
    assert deployment.stop(LEADER)
    deployment.start(LEADER)
    deployment.pause(LEADER)
    deployment.kill(LEADER)  # a frozen one
    deployment.start(LEADER)
    assert deployment.reach[deployment.addresses[LEADER]] == address
    assert probe(deployment, KEEPER, LEADER) == "reached"


def test_what_goes_to_a_container_is_held_up_until_the_cluster_is_healed(deployment: Deployment) -> None:
    try:
        deployment.slow(KEEPER, 2_000)
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert probe(deployment, LEADER, KEEPER) == "silence"  # within a second
    deployment.heal()
    assert probe(deployment, LEADER, KEEPER) == "reached"


def test_packets_of_a_container_are_lost_until_the_cluster_is_healed(deployment: Deployment) -> None:
    deployment.lose(KEEPER, 100)
    assert probe(deployment, LEADER, KEEPER) == "silence"
    deployment.heal()
    assert probe(deployment, LEADER, KEEPER) == "reached"


def test_the_store_answers_commands_and_says_when_it_is_down(deployment: Deployment) -> None:
    (store,) = deployment.names(STORE)
    assert deployment.store_command(store, "PING") == "PONG"
    assert not deployment.down(store)
    deployment.kill(store)
    try:
        assert deployment.down(store)
    finally:
        deployment.start(store)


def test_a_container_may_have_no_more_memory_than_it_is_given(deployment: Deployment) -> None:
    from tests.chaos.drivers.containers import Containers  # noqa: PLC0415 - as above

    assert isinstance(deployment, Containers)
    container = deployment.box(KEEPER).container
    try:
        deployment.limit_memory(KEEPER, 300)
    except Unsupported as reason:
        pytest.skip(str(reason))
    container.reload()
    assert container.attrs["HostConfig"]["Memory"] == 300 << 20
    deployment.limit_memory(KEEPER, 0)
    container.reload()
    assert container.attrs["HostConfig"]["Memory"] > 300 << 20


def test_nothing_of_ours_is_left_and_what_others_started_stays(deployment: Deployment, tmp_path: Path) -> None:
    from tests.chaos.drivers.docker_nodes import LABEL, client  # noqa: PLC0415 - as above

    daemon = client()
    try:
        before = {container.id for container in daemon.containers.list(all=True)}
        with open_deployment("containers", tmp_path, SMALL, RUN_SETTINGS) as second:
            ours = {container.id for container in daemon.containers.list(filters={"label": LABEL})} - before
            assert len(ours) == 4
            assert second.logs().keys() == {LEADER, KEEPER, GROUPS, "store-0"}
        after = {container.id for container in daemon.containers.list(all=True)}
    finally:
        daemon.close()
    assert not ours & after
    assert probe(deployment, LEADER, KEEPER) == "reached"
