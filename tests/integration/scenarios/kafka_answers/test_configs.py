"""Configs of groups and of the broker: names, defaults and allowed values."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1 import describe_configs_pb2 as describe_pb
from kip932.api.v1 import incremental_alter_configs_pb2 as alter_pb
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP
from tests.integration.scenarios.wire import Connect, Wire
from tests.support.node import KAFKA, Clusters, unique

pytestmark = pytest.mark.asyncio

NONE = 0
CONFIG = errors.InvalidConfigError.code
REQUEST = errors.InvalidRequestError.code
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]

LOCK, SESSION = "share.record.lock.duration.ms", "share.session.timeout.ms"
HEARTBEAT, LOCKS = "share.heartbeat.interval.ms", "share.partition.max.record.locks"
ISOLATION, INTERVAL = "share.isolation.level", "share.assignment.interval.ms"

#: Kafka's defaults and bounds, except lower minimums for lock, session and heartbeat, as set on the broker used.
PLAIN = {
    **KAFKA,
    "group.share.assignment.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "200",
}


async def _alter(wire: Wire, group: str, *changes: Change, check: bool = False) -> tuple[int, str]:
    request = alter_pb.IncrementalAlterConfigsRequest(validate_only=check)
    resource = request.resources.add(resource_type=RESOURCE_GROUP, resource_name=group)
    for name, operation, value in changes:
        resource.configs.add(name=name, config_operation=operation, value=value)
    (result,) = (await wire.call("IncrementalAlterConfigs", request)).responses
    return result.error_code, result.error_message


async def _configs(wire: Wire, kind: int, name: str) -> dict[str, Any]:
    request = describe_pb.DescribeConfigsRequest()
    request.resources.add(resource_type=kind, resource_name=name)
    (result,) = (await wire.call("DescribeConfigs", request)).results
    assert result.error_code == NONE, result.error_message
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (LOCK, "999", CONFIG), (LOCK, "-1", CONFIG), (LOCK, "1000", NONE), (LOCK, "60000", NONE),
        (LOCK, " 5000 ", NONE), (LOCK, "60001", CONFIG), (LOCK, "abc", CONFIG), (LOCK, "", CONFIG),
        (LOCK, "1e4", CONFIG), (LOCK, "5000.0", CONFIG),
        (SESSION, "999", CONFIG), (SESSION, "60001", CONFIG),
        (LOCKS, "99", CONFIG), (LOCKS, "100", NONE), (LOCKS, "4000", NONE), (LOCKS, "4001", CONFIG),
        (ISOLATION, "READ_COMMITTED", CONFIG), (ISOLATION, "serializable", CONFIG), (ISOLATION, "", CONFIG),
        (INTERVAL, "0", NONE), (INTERVAL, "15000", NONE), (INTERVAL, "15001", CONFIG), (INTERVAL, "-1", CONFIG),
    ],
)  # fmt: skip
async def test_values(clusters: Clusters, wire_to: Connect, name: str, value: str, code: int) -> None:
    async with wire_to(clusters.of(PLAIN)) as wire:
        found, message = await _alter(wire, unique("g"), (name, SET, value))
    assert (found, not message) == (code, code == NONE)
    assert code == NONE or name in message


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ([("nope", SET, "1")], CONFIG, "Unknown group config name: nope"),
        ([(LOCK, SET, "5000"), ("nope", SET, "1")], CONFIG, "Unknown group config name: nope"),
        ([(LOCK, DELETE, None)], NONE, ""),
        ([], NONE, ""),
        ([("nope", DELETE, None), (LOCK, SET, "5000")], NONE, ""),
        ([(LOCK, SET, None)], REQUEST, LOCK),
        ([(LOCK, APPEND, None), (SESSION, SET, None), ("nope", SET, "1")], REQUEST, f"{LOCK},{SESSION}"),
        ([(SESSION, SET, "5000"), (HEARTBEAT, SET, "5000")], CONFIG, SESSION),
        ([(SESSION, SET, "4000")], CONFIG, SESSION),
        ([(LOCK, APPEND, "1")], CONFIG, LOCK),
        ([(LOCK, SUBTRACT, "1")], CONFIG, LOCK),
        ([(LOCK, SET, "5000"), (LOCK, SET, "6000")], REQUEST, LOCK),
        ([(LOCK, SET, "5000"), (LOCKS, SET, "1")], CONFIG, LOCKS),
        ([(LOCK, 9, "5000")], REQUEST, "operation 9"),
    ],
)
async def test_changes(clusters: Clusters, wire_to: Connect, changes: list[Change], code: int, says: str) -> None:
    group = unique("g")
    async with wire_to(clusters.of(PLAIN)) as wire:
        found, message = await _alter(wire, group, *changes)
        assert (found, says in message) == (code, True), message
        stored = (await _configs(wire, RESOURCE_GROUP, group))[LOCK].value
        asked = [value for name, operation, value in changes if name == LOCK and operation == SET]
        assert stored == (asked[0] if code == NONE and asked else "30000"), "all of it, or nothing"


async def test_groups_without_a_name_the_same_resource_twice_and_trials(clusters: Clusters, wire_to: Connect) -> None:
    group = unique("g")
    async with wire_to(clusters.of(PLAIN)) as wire:
        code, message = await _alter(wire, "", (LOCK, SET, "5000"))
        assert (code, message) == (REQUEST, "Default group resources are not allowed.")
        assert (await _alter(wire, "   ", (LOCK, SET, "5000")))[0] == NONE
        request = alter_pb.IncrementalAlterConfigsRequest()
        for _ in range(2):
            request.resources.add(resource_type=RESOURCE_GROUP, resource_name=group)
        answer = await wire.call("IncrementalAlterConfigs", request)
        assert {result.error_code for result in answer.responses} == {REQUEST}
        assert (await _alter(wire, group, (LOCK, SET, "5000"), check=True))[0] == NONE
        assert (await _alter(wire, group, (LOCK, SET, "1"), check=True))[0] == CONFIG
        assert (await _configs(wire, RESOURCE_GROUP, group))[LOCK].value == "30000"


async def test_the_configs_that_a_group_has(clusters: Clusters, wire_to: Connect) -> None:
    async with wire_to(clusters.of(PLAIN)) as wire:
        found = await _configs(wire, RESOURCE_GROUP, unique("g"))
    newer = {"share.assignor.offload.enable"}
    newer |= {f"sharegroups.errors.deadletterqueue.{name}" for name in ("failure", "waiting.max")}  # PL-902
    newer |= {"sharegroups.assignor", "sharegroups.assignor.members.per.partition"}  # GC-58, GC-52a
    newer |= {name for name in found if name.startswith("sharegroups.retry.")}  # PL-936
    assert len(found.keys() - newer) == 11
    assert all(name.startswith(("share.", "errors.")) for name in found.keys() - newer)


async def test_the_share_configs_of_the_broker_and_their_defaults(clusters: Clusters, wire_to: Connect) -> None:
    """Every config that Kafka 4.4.0 lists, with its defaults; `snapshot.update.records.per.snapshot` is 500 there
    [SR-14]."""
    async with wire_to(clusters.of({})) as wire:
        found = await _configs(wire, RESOURCE_BROKER, "")
    wanted = {
        "errors.deadletterqueue.auto.create.topics.enable": "false",
        "errors.deadletterqueue.topic.name.prefix": "dlq.",
        "group.share.assignment.interval.ms": "1000",
        "group.share.assignors": "simple",
        "group.share.delivery.count.limit": "5",
        "group.share.heartbeat.interval.ms": "5000",
        "group.share.max.assignment.interval.ms": "15000",
        "group.share.max.delivery.count.limit": "10",
        "group.share.max.heartbeat.interval.ms": "15000",
        "group.share.max.partition.max.record.locks": "4000",
        "group.share.max.record.lock.duration.ms": "60000",
        "group.share.max.session.timeout.ms": "60000",
        "group.share.max.share.sessions": "2000",
        "group.share.max.size": "200",
        "group.share.min.assignment.interval.ms": "0",
        "group.share.min.delivery.count.limit": "2",
        "group.share.min.heartbeat.interval.ms": "5000",
        "group.share.min.partition.max.record.locks": "100",
        "group.share.min.record.lock.duration.ms": "15000",
        "group.share.min.session.timeout.ms": "45000",
        "group.share.partition.max.record.locks": "2000",
        "group.share.record.lock.duration.ms": "30000",
        "group.share.session.timeout.ms": "45000",
        "share.coordinator.append.linger.ms": "-1",
        "share.coordinator.load.buffer.size": "5242880",
        "share.coordinator.cached.buffer.max.bytes": "1048588",
        "share.coordinator.snapshot.update.records.per.snapshot": "100",
        "share.coordinator.state.topic.compression.codec": "0",
        "share.coordinator.state.topic.min.isr": "2",
        "share.coordinator.state.topic.num.partitions": "50",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.segment.bytes": "104857600",
        "share.coordinator.threads": "1",
        "share.coordinator.write.timeout.ms": "5000",
        "share.fetch.purgatory.purge.interval.requests": "1000",
    }
    assert {name: found[name].value for name in wanted} == wanted
    internal_there = {
        "group.share.dlq.manager.class.name", "group.share.initialize.retry.interval.ms",
        "group.share.persister.class.name", "share.coordinator.cold.partition.snapshot.interval.ms",
        "share.coordinator.state.topic.prune.interval.ms",
    }  # fmt: skip
    ours = {  # a feature in Kafka; only of groups in Kafka; newer than 4.4.0; only in this project
        "share.version", "group.share.auto.offset.reset", "group.share.assignor.offload.enable",
        "group.share.fast.first.assignment",
    }  # fmt: skip
    share = {name for name in found if name.startswith(("group.share.", "share.", "errors."))}
    assert share == wanted.keys() | internal_there | ours
