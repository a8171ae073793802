"""A client's view of the cluster: nodes, topics, leaders, coordinators, producer ids."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.create_partitions_pb2 import CreatePartitionsRequest
from kip932.api.v1.create_topics_pb2 import CreateTopicsRequest
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterRequest
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest
from kip932.api.v1.metadata_pb2 import MetadataRequest
from kip932.ids import KEY_TYPE_GROUP
from tests.support.node import unique

from .hosting import Services, contract
from .members import topic

INVALID_TOPIC_EXCEPTION = 17
UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, UNKNOWN_TOPIC_ID = 3, 36, 37, 100


async def metadata(services: Services, *, name: str | None = None, topic_id: bytes | None = None) -> Any:
    wanted = MetadataRequest.Topic()
    if name is not None:
        wanted.name = name
    if topic_id is not None:
        wanted.topic_id = topic_id
    return await services.call("Metadata", MetadataRequest(topics=MetadataRequest.TopicList(values=[wanted])))


@contract
async def test_metadata_name_the_nodes_and_who_leads_what(services: Services) -> None:
    before = await services.call("Metadata", MetadataRequest())
    made = await topic(services, 4)
    after = await services.call("Metadata", MetadataRequest())
    assert after.cluster_id
    assert after.metadata_version > before.metadata_version
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in after.brokers}
    assert len(nodes) == 2
    assert set(made.leaders.values()) <= set(nodes.values())
    (found,) = [one for one in after.topics if one.name == made.name]
    assert (found.topic_id, found.error_code) == (made.id, 0)
    assert sorted(part.partition_index for part in found.partitions) == [0, 1, 2, 3]
    assert all(part.leader_epoch >= 0 and part.error_code == 0 for part in found.partitions)
    assert made.name not in {one.name for one in before.topics}


@contract
async def test_metadata_of_one_topic_by_name_and_by_id(services: Services) -> None:
    made = await topic(services, 2)
    await topic(services)
    by_name, by_id = await metadata(services, name=made.name), await metadata(services, topic_id=made.id)
    for answer in (by_name, by_id):
        (found,) = answer.topics
        assert (found.name, found.topic_id, found.error_code) == (made.name, made.id, 0)
        assert len(found.partitions) == 2


@contract
async def test_metadata_of_a_topic_that_is_not_there(services: Services) -> None:
    missing = unique("t")
    (by_name,) = (await metadata(services, name=missing)).topics
    assert (by_name.error_code, by_name.name) == (UNKNOWN_TOPIC_OR_PARTITION, missing)
    (by_id,) = (await metadata(services, topic_id=b"no topic has it!")).topics
    assert (by_id.error_code, by_id.name, by_id.topic_id) == (UNKNOWN_TOPIC_ID, "", b"no topic has it!")


@contract
async def test_metadata_of_a_name_that_no_topic_can_have(services: Services) -> None:
    for name in ("my orders", "", "..", "x" * 250, "ünicode"):
        (found,) = (await metadata(services, name=name)).topics
        assert (found.error_code, found.name) == (INVALID_TOPIC_EXCEPTION, name)
        assert found.error_message.startswith(f"topic name {name!r} cannot be: a name has 1 to 249 of a-z, A-Z, 0-9, ")
    (reserved,) = (await metadata(services, name=unique("__t"))).topics
    assert reserved.error_code == UNKNOWN_TOPIC_OR_PARTITION


@contract
async def test_a_topic_is_created_once(services: Services) -> None:
    made = await topic(services)
    request = CreateTopicsRequest(timeout_ms=10_000)
    for name in (made.name, unique("t")):
        request.topics.add(name=name, num_partitions=3, replication_factor=1)
    old, new = (await services.call("CreateTopics", request)).topics
    assert (old.name, old.error_code) == (made.name, TOPIC_ALREADY_EXISTS)
    assert (new.name, new.error_code) == (request.topics[1].name, 0)
    assert len(await services.leaders(new.name, 3)) == 3
    assert (await metadata(services, name=new.name)).topics[0].topic_id == new.topic_id
    assert len((await metadata(services, name=made.name)).topics[0].partitions) == 1


@contract
async def test_every_group_has_a_coordinator_among_the_nodes(services: Services) -> None:
    groups = [unique("g"), unique("g")]
    request = FindCoordinatorRequest(key_type=KEY_TYPE_GROUP, coordinator_keys=groups)
    answer = await services.call("FindCoordinator", request)
    brokers = (await services.call("Metadata", MetadataRequest())).brokers
    nodes = {(node.node_id, node.host, node.port) for node in brokers}
    assert [found.key for found in answer.coordinators] == groups
    for found in answer.coordinators:
        assert found.error_code == 0
        assert (found.node_id, found.host, found.port) in nodes


@contract
async def test_no_two_producers_get_the_same_id(services: Services) -> None:
    answers = [await services.call("InitProducerId", InitProducerIdRequest()) for _ in range(3)]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {(answer.producer_id >= 0, answer.producer_epoch, answer.error_code) for answer in answers} == {(True, 0, 0)}


@contract
async def test_a_topic_only_grows(services: Services) -> None:
    made, missing = await topic(services), unique("t")
    for name, count, validate_only, error in (
        (made.name, 3, True, 0),
        (made.name, 1, False, INVALID_PARTITIONS),
        (missing, 3, False, UNKNOWN_TOPIC_OR_PARTITION),
        (made.name, 3, False, 0),
    ):
        request = CreatePartitionsRequest(timeout_ms=10_000, validate_only=validate_only)
        request.topics.add(name=name, count=count)
        (result,) = (await services.call("CreatePartitions", request)).results
        assert (result.name, result.error_code) == (name, error)
    assert len(await services.leaders(made.name, 3)) == 3


@contract
async def test_the_cluster_is_described_with_the_nodes_of_its_metadata(services: Services) -> None:
    found = await services.call("DescribeCluster", DescribeClusterRequest())
    metadata = await services.call("Metadata", MetadataRequest())
    assert (found.error_code, found.cluster_id, found.controller_id) == (0, metadata.cluster_id, -1)
    answered = [{(node.node_id, node.host, node.port) for node in answer.brokers} for answer in (found, metadata)]
    assert answered[0] == answered[1]
    assert len(answered[0]) == 2
