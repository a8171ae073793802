"""The roles of a process as `Roles` connects them: settings reach the parts that use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from group_coordinator.core.assignor import GroupSpec, SimpleAssignor
from group_coordinator.core.views import Assignment
from kip932.api.v1 import cluster_service_pb2
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest
from kip932.ids import KEY_TYPE_GROUP, KEY_TYPE_SHARE, RESOURCE_GROUP, shard_index, topic_id_text
from kip932.rpc.transport import service_methods
from partition_leader.led_partitions import TailCaches
from partition_leader.topic_log.core.batch_run import BATCH_BYTES
from partition_leader.topic_log.settings import TopicLogSettings
from shard_runtime.cluster.metadata import ConfigSet, MetadataImage, TopicCreated, TopicDeleted
from shard_runtime.hosting.host_options import HostOptions
from shard_runtime.metrics.runtime import CallMemory
from share_node.node.roles import Roles
from tests.simulation import determinism
from tests.simulation.shape import Shape
from tests.simulation.world import World
from tools.metrics_page import group_rows, leader_rows, node_rows, state_rows


class Configured(SimpleAssignor):
    """A custom assignor that remembers what it was configured with."""

    def __init__(self) -> None:
        self.configs: Mapping[str, object] = {}

    def configure(self, configs: Mapping[str, object]) -> None:
        self.configs = configs

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        return super().assign(spec)


def parts(**flags: str) -> Any:
    """The parts of a process started with these settings; in a name, `_` stands for a dot."""

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
    assert found._state.dispatcher._write_timeout_ms == 900


#: For each setting, how to read its value from the part that it must reach. Each test value differs from every default.
_ARRIVES: dict[str, Callable[[Any], object]] = {
    "offsets.commit.timeout.ms": lambda found: {host._options.write_timeout_ms for host in found._groups.hosts},
    "share.coordinator.write.timeout.ms": lambda found: {host._options.write_timeout_ms for host in found._state.hosts},
    "shard.queue.max": lambda found: {
        host._options.waiting_max for host in (*found._groups.hosts, *found._state.hosts)
    },
    "shard.compaction.entries.min": lambda found: {options.compaction.entries_min for options in _options(found)},
    "shard.history.ms": lambda found: {options.compaction.history_ms for options in _options(found)},
    "shard.readers.max.lag.ms": lambda found: {options.compaction.readers_max_lag_ms for options in _options(found)},
    "log.lost.tail.jump.offsets": lambda found: {found._leader.owners.settings.jump_offsets},
    "persister.operation.timeout.ms": lambda found: {
        found._persister._settings.operation_timeout_ms,
        found._leader.share_partitions._parts.operation_timeout_ms,
    },
    "fetch.max.bytes": lambda found: {
        found._leader.requests._fetch_max_bytes,
        found._leader.service._offsets._fetch_max_bytes,
    },
    "group.share.max.share.sessions": lambda found: {found._leader.requests.sessions._sessions_max},
}


def _options(found: Any) -> list[HostOptions]:
    return [host._options for host in (*found._groups.hosts, *found._state.hosts)]


@pytest.mark.rule("CM-18")
def test_a_log_of_groups_is_compacted_at_half_as_many_entries_as_one_of_share_state() -> None:
    found = parts()
    assert {host._options.compaction.entries_per_key for host in found._groups.hosts} == {2}
    assert {host._options.compaction.entries_per_key for host in found._state.hosts} == {4}


def test_each_setting_arrives_at_its_own_part() -> None:
    values = {name: str(70_001 + number) for number, name in enumerate(_ARRIVES)}
    values["group.share.max.share.sessions"] = "1701"
    found = parts(**{name.replace(".", "_"): value for name, value in values.items()})
    assert {name: arrives(found) for name, arrives in _ARRIVES.items()} == {
        name: {int(value)} for name, value in values.items()
    }


@pytest.mark.rule("PL-524")
@pytest.mark.parametrize(("session", "lock"), [("2000", "9000"), ("9000", "2000")])
def test_a_silent_session_lasts_as_long_as_the_longer_of_time_out_and_lock(session: str, lock: str) -> None:
    found = parts(group_share_session_timeout_ms=session, group_share_record_lock_duration_ms=lock)
    assert found._leader._around.config("g").idle_ms == 9_000


class Reported:
    """Stands in for a role, and records the metadata changes that it is notified of."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def topics_changed(self, deleted: object = None) -> None:
        self.calls.append(("topics", deleted))

    def groups_changed(self) -> None:
        self.calls.append(("groups", None))

    async def topics_deleted(self, deleted: object) -> None:
        self.calls.append(("deleted", deleted))


def test_a_new_image_reaches_each_role_with_what_it_must_act_on() -> None:
    gone, config = bytes(15) + b"\x07", ConfigSet(RESOURCE_GROUP, "g", "share.auto.offset.reset", "earliest")
    known = MetadataImage().apply(1, [TopicCreated("t", gone, 1)])
    without = known.apply(2, [TopicDeleted(gone, "t")])
    reported = _reported(without, known)
    assert (reported["groups"], reported["state"]) == ([("topics", None)], [("deleted", {gone})])
    assert reported["leader"][0] == ("topics", {gone})
    configured = known.apply(2, [config])
    assert _reported(configured, known) == {
        "groups": [("topics", None)], "leader": [("topics", frozenset()), ("groups", None)], "state": [],
    }  # fmt: skip
    # Deletions that were reported earlier are not reported again.
    assert _reported(without.apply(3, [config]), without)["state"] == []


def _reported(image: MetadataImage, previous: MetadataImage) -> dict[str, list[tuple[str, object]]]:
    async def reported() -> dict[str, list[tuple[str, object]]]:
        roles: Any = object.__new__(Roles)
        roles._tasks = set()
        roles._groups, roles._leader, roles._state = Reported(), Reported(), Reported()
        roles.metadata_changed(image, previous)
        await asyncio.gather(*roles._tasks)
        return {"groups": roles._groups.calls, "leader": roles._leader.calls, "state": roles._state.calls}

    return asyncio.run(reported())


@pytest.mark.rule("CM-40", "CM-46", "CM-47")
def test_topic_logs_are_bounded_as_the_rules_say_unless_set_otherwise() -> None:
    log, caches = TopicLogSettings(), TailCaches()
    assert (log.snapshot_batches, log.snapshot_bytes, log.jump_offsets) == (1_000, 16 << 20, 1_000_000)
    assert (log.tail_cache_bytes, caches.total_bytes, caches.least_bytes) == (64 << 20, 256 << 20, 8 << 10)
    assert caches.total_bytes // caches.least_bytes == 32_768
    assert BATCH_BYTES == 440


@pytest.mark.rule("CM-80")
def test_a_client_gets_the_client_address_of_its_coordinator_and_a_node_the_other() -> None:
    async def story() -> None:
        world = World(1, Shape.two())
        await world.open()
        await world.start("a")
        await world.settled()
        process = world.processes["a"]
        record, found = process.node.registry.record, process.parts
        assert record.address != record.internal_address
        for owner, address in (
            (found._groups._node.owner_of(0), record.address),
            (found._state.dispatcher._owner(0), record.internal_address),
        ):
            assert f"{owner.host}:{owner.port}" == address
        await world.close()

    determinism.run(1, story)


FIND: Any = service_methods(cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"])["FindCoordinator"]


async def _named(world: World, process: str, key_type: int, keys: list[str]) -> dict[str, tuple[str, int]]:
    """Return, for each key, the coordinator's (host, node id) as named by the process, on the port that such callers
    use."""
    record = world.processes[process].node.registry.record
    address = record.address if key_type == KEY_TYPE_GROUP else record.internal_address
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


def test_every_metric_that_the_roles_register_is_on_its_page_with_its_labels() -> None:
    rows = {row.name: row for of in (node_rows, group_rows, state_rows, leader_rows) for row in of()}
    registry, seen = parts()._registry, set()
    for collector in [one for one in registry._collector_to_names if isinstance(one, CallMemory)]:
        registry.unregister(collector)  # it reads a server's memory of calls; the simulated one has none
    for family in registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert name in rows, "let tools/metrics_page.py register it, then run: make docs"
        assert (family.type, family.documentation) == (rows[name].kind, rows[name].meaning)
        seen |= {name}
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == rows[name].labels.keys(), name
    assert {row.name for of in (group_rows, state_rows, leader_rows) for row in of()} <= seen
