"""Answers at the external port: every node in them has its external address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message

from kip932.api.v1 import cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2
from kip932.api.v1.create_topics_pb2 import CreateTopicsResponse
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterResponse
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorResponse
from kip932.api.v1.metadata_pb2 import MetadataResponse
from kip932.api.v1.share_group_describe_pb2 import ShareGroupDescribeResponse
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamResponse
from kip932.rpc.transport import service_methods
from shard_runtime.cluster.external_names import ExternalNames, ways_to_nodes
from shard_runtime.record_log.cluster_store import NodeRecord


def record(number: int, external: str, kafka: str = "") -> NodeRecord:
    return NodeRecord(
        number, number, f"n{number}", f"in:{number}", frozenset(), "", "live", "",
        kafka_address=f"in:9{number}", external_address=external, kafka_external_address=kafka,
    )  # fmt: skip


NODES = {1: record(1, "out:11", "out:19"), 2: record(2, "[fd00::1]:12"), 3: record(3, "")}
NAMES = ExternalNames(NODES.get)


def endpoints(message: Message) -> Iterator[tuple[int, str, int]]:
    """Yield id, host and port of each node in an answer."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in value if field.is_repeated else [value]:
            if {"node_id", "host", "port"} <= set(each.DESCRIPTOR.fields_by_name):
                yield each.node_id, each.host, each.port
            else:
                yield from endpoints(each)


@pytest.mark.rule("CM-237")
def test_every_answer_that_names_nodes_is_renamed() -> None:
    endpoint: Any = {"node_id": 1, "host": "in", "port": 1}
    group: Any = {"coordinator": endpoint}
    nodes: Any = {"node_endpoints": [endpoint]}
    found: Any = {"key": "g", **endpoint}
    answers = [
        MetadataResponse(brokers=[endpoint]),
        FindCoordinatorResponse(coordinators=[found]),
        DescribeClusterResponse(brokers=[endpoint]),
        ShareGroupHeartbeatResponse(coordinator=endpoint),
        ShareGroupDescribeResponse(groups=[group]),
        ShareStreamResponse(correlation_id=1, fetch=nodes),
        ShareStreamResponse(correlation_id=1, acknowledge=nodes),
    ]
    for answer in answers:
        before = answer.SerializeToString(deterministic=True)
        assert list(endpoints(NAMES(answer))) == [(1, "out", 11)], answer
        assert answer.SerializeToString(deterministic=True) == before, "others may send it, too"


@pytest.mark.rule("CM-237")
def test_a_node_without_an_external_address_keeps_the_one_that_it_has() -> None:
    brokers: list[Any] = [{"node_id": number, "host": "in", "port": number} for number in (1, 2, 3, 4)]
    answer = MetadataResponse(brokers=brokers)
    assert list(endpoints(NAMES(answer))) == [(1, "out", 11), (2, "fd00::1", 12), (3, "in", 3), (4, "in", 4)]


@pytest.mark.rule("CM-237")
def test_addresses_for_kafkas_clients_are_renamed_where_there_are_any() -> None:
    brokers: list[Any] = [
        {"node_id": 1, "host": "in", "port": 1, "kafka_address": "in:9"},
        {"node_id": 2, "host": "in", "port": 1, "kafka_address": "in:9"},
        {"node_id": 1, "host": "in", "port": 1},
    ]
    found = NAMES(DescribeClusterResponse(brokers=brokers))
    assert isinstance(found, DescribeClusterResponse)
    assert [each.kafka_address for each in found.brokers] == ["out:19", "in:9", ""]
    assert not found.brokers[2].HasField("kafka_address")


def test_an_answer_without_nodes_is_not_copied() -> None:
    for answer in (CreateTopicsResponse(), MetadataResponse(), ShareStreamResponse(correlation_id=1)):
        assert NAMES(answer) is answer


def hosts_and_ports(kind: Any, above: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield the messages within an answer that have a host and a port."""
    if {"host", "port"} <= set(kind.fields_by_name):
        yield kind
    for field in kind.fields:
        if field.message_type is not None and field.message_type.full_name not in above:
            yield from hosts_and_ports(field.message_type, above | {kind.full_name})


@pytest.mark.rule("CM-237")
def test_each_answer_with_a_host_and_a_port_is_one_that_is_renamed() -> None:
    """A new message that says how to reach a node by other fields would keep its address."""
    seen = 0
    for module in (cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service_methods(service).values():
                answer = method.response_type.DESCRIPTOR
                found = list(hosts_and_ports(answer))
                assert all("node_id" in each.fields_by_name for each in found), answer.name
                assert bool(found) == bool(ways_to_nodes(answer)), answer.name
                seen += bool(found)
    assert seen > 10
