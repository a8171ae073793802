"""The roles of a process as `Roles` wires them: settings reach the part that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from group_coordinator.core.assignor import GroupSpec, SimpleAssignor
from group_coordinator.core.views import Assignment
from kip932.api.v1 import cluster_service_pb2
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest
from kip932.ids import KEY_TYPE_GROUP, KEY_TYPE_SHARE, shard_index, topic_id_text
from kip932.rpc.transport import service_methods
from tests.simulation import determinism
from tests.simulation.shape import Shape
from tests.simulation.world import World


class Configured(SimpleAssignor):
    """A custom assignor that remembers what it was configured with."""

    def __init__(self) -> None:
        self.configs: Mapping[str, object] = {}

    def configure(self, configs: Mapping[str, object]) -> None:
        self.configs = configs

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        return super().assign(spec)


def parts(**flags: str) -> Any:
    """The parts of a process that was started with these settings, `_` for a dot."""

    async def started() -> Any:
        world = World(1, replace(Shape.two(), flags={name.replace("_", "."): value for name, value in flags.items()}))
        await world.open()
        await world.start("a")
        found = world.processes["a"].parts
        await world.close()
        return found

    return determinism.run(1, started)


@pytest.mark.rule("GC-57")
def test_a_custom_assignor_is_given_the_broker_configs_and_no_secret() -> None:
    found = parts(group_share_assignors=f"{__name__}:Configured", group_share_max_size="17")
    configs = found._groups._assignor.configs
    assert (configs["group.share.max.size"], configs["num.partitions"]) == (17, 1)
    assert not [name for name in configs if name.startswith("store.")]


@pytest.mark.rule("GC-4", "SC-63")
def test_each_coordinator_waits_for_the_store_as_long_as_its_own_setting_says() -> None:
    found = parts(offsets_commit_timeout_ms="700", share_coordinator_write_timeout_ms="900")
    assert {host._options.write_timeout_ms for host in found._groups.hosts} == {700}
    assert found._state._dispatcher._write_timeout_ms == 900


FIND: Any = service_methods(cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"])["FindCoordinator"]


async def _named(world: World, process: str, key_type: int, keys: list[str]) -> dict[str, tuple[str, int]]:
    """Key → (host, node id), as the process names the coordinator; asked on the port that such callers use."""
    record = world.processes[process].node.registry.record
    address = record.address if key_type == KEY_TYPE_GROUP else record.peer_address
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    answer: Any = await world.transport("asking").call(address, FIND, request, 10)
    assert {found.error_code for found in answer.coordinators} == {0}
    return {found.key: (found.host, found.node_id) for found in answer.coordinators}


@pytest.mark.rule("GC-132", "SC-4")
def test_of_two_nodes_each_names_the_one_that_serves_the_shard_of_the_key() -> None:
    groups = [f"group-{number}" for number in range(20)]
    shares = [f"{name}:{topic_id_text(bytes(range(16)))}:{number}" for number, name in enumerate(groups)]

    async def story() -> None:
        shards = ("offsets.topic.num.partitions", "share.coordinator.state.topic.num.partitions")
        world = World(1, replace(Shape.two(), flags=dict.fromkeys(shards, "12")))
        await world.open()
        for name in "ab":
            await world.start(name)
        await world.settled()
        for key_type, keys in ((KEY_TYPE_GROUP, groups), (KEY_TYPE_SHARE, shares)):
            serving: dict[int, tuple[str, int]] = {}
            for name, process in world.processes.items():
                hosts = process.groups.hosts if key_type == KEY_TYPE_GROUP else process.state.hosts
                node_id = process.node.registry.record.node_id
                serving |= {index: (name, node_id) for index, host in enumerate(hosts) if host.shard is not None}
            expected = {key: serving[shard_index(key, 12)] for key in keys}
            assert {host for host, _ in expected.values()} == {"a", "b"}
            for name in "ab":
                assert await _named(world, name, key_type, keys) == expected
        await world.close()

    determinism.run(1, story)
