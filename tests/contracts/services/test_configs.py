"""Configs of topics, groups and nodes: how clients see them, and the effects of a change."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.describe_configs_pb2 import DescribeConfigsRequest
from kip932.api.v1.incremental_alter_configs_pb2 import IncrementalAlterConfigsRequest
from kip932.api.v1.metadata_pb2 import MetadataRequest
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from tests.support.node import unique

from .hosting import Services, contract
from .members import topic

UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST = 3, 40, 42
SET, DELETE = 0, 1
TOPIC_SOURCE, DEFAULT_SOURCE, GROUP_SOURCE = 1, 5, 8


async def described(services: Services, kind: int, name: str, address: str | None = None) -> Any:
    request = DescribeConfigsRequest(include_synonyms=True)
    request.resources.add(resource_type=kind, resource_name=name)
    (result,) = (await services.call("DescribeConfigs", request, address)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def altered(services: Services, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    request = IncrementalAlterConfigsRequest()
    resource = request.resources.add(resource_type=kind, resource_name=name)
    for config, operation, value in changes:
        resource.configs.add(name=config, config_operation=operation, value=value)
    (result,) = (await services.call("IncrementalAlterConfigs", request)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def value_of(services: Services, kind: int, name: str, config: str) -> tuple[str, int]:
    found = {one.name: one for one in (await described(services, kind, name)).configs}[config]
    return found.value, found.config_source


@contract
async def test_a_config_is_set_and_deleted_again(services: Services) -> None:
    place, group = await topic(services), unique("g")
    kinds = (
        (RESOURCE_TOPIC, place.name, "retention.ms", "60000", TOPIC_SOURCE),
        (RESOURCE_GROUP, group, "share.isolation.level", "read_committed", GROUP_SOURCE),
    )
    for kind, name, config, value, source in kinds:
        default, before = await value_of(services, kind, name, config)
        assert before == DEFAULT_SOURCE
        assert (await altered(services, kind, name, (config, SET, value))).error_code == 0
        assert await value_of(services, kind, name, config) == (value, source)
        assert (await altered(services, kind, name, (config, DELETE, None))).error_code == 0
        assert await value_of(services, kind, name, config) == (default, DEFAULT_SOURCE)


@contract
async def test_a_config_comes_with_the_places_it_may_come_from(services: Services) -> None:
    group, name = unique("g"), "share.record.lock.duration.ms"
    assert (await altered(services, RESOURCE_GROUP, group, (name, SET, "20000"))).error_code == 0
    found = {one.name: one for one in (await described(services, RESOURCE_GROUP, group)).configs}[name]
    assert (found.read_only, found.is_sensitive) == (False, False)
    first, *_, last = found.synonyms
    assert (first.name, first.value, first.source) == (name, "20000", GROUP_SOURCE)
    assert (last.name, last.source) == (f"group.{name}", DEFAULT_SOURCE)


@contract
async def test_a_change_is_refused_whole(services: Services) -> None:
    group, name = unique("g"), "share.record.lock.duration.ms"
    for wrong in (("share.no.such", SET, "1"), ("share.delivery.count.limit", SET, "99")):
        answer = await altered(services, RESOURCE_GROUP, group, (name, SET, "20000"), wrong)
        assert answer.error_code == INVALID_CONFIG
        assert wrong[0] in answer.error_message
    assert (await value_of(services, RESOURCE_GROUP, group, name))[1] != GROUP_SOURCE
    assert (await altered(services, RESOURCE_GROUP, group, ("share.no.such", DELETE, None))).error_code == 0


@contract
async def test_configs_of_a_topic_that_is_not_there(services: Services) -> None:
    missing = unique("t")
    assert (await described(services, RESOURCE_TOPIC, missing)).error_code == UNKNOWN_TOPIC_OR_PARTITION
    answer = await altered(services, RESOURCE_TOPIC, missing, ("retention.ms", SET, "60000"))
    assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION


@contract
async def test_a_node_describes_its_own_configs_and_the_clusters_and_no_other_nodes(services: Services) -> None:
    nodes = (await services.call("Metadata", MetadataRequest())).brokers
    for node in nodes:
        address = f"{node.host}:{node.port}"
        for name in (str(node.node_id), ""):
            found = await described(services, RESOURCE_BROKER, name, address)
            configs = {one.name: one for one in found.configs}
            assert configs["share.version"].value == "2"
            assert configs["share.version"].read_only
            assert not configs["group.share.assignment.interval.ms"].read_only
        (other,) = [str(one.node_id) for one in nodes if one != node]
        assert (await described(services, RESOURCE_BROKER, other, address)).error_code == INVALID_REQUEST
