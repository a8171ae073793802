"""The cluster as Kafka's clients see it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_listener.ports import NO_TOPIC_ID, Broker
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.record_log.cluster_store import NodeRecord
from share_node.node.views import KafkaCluster

TOPIC = bytes(15) + b"\1"


def record(number: int, kafka: str, state: str = "live", rack: str = "") -> NodeRecord:
    return NodeRecord(number, number, f"n{number}", f"h:{number}", frozenset(), rack, state, "", None, kafka)


def cluster(me: NodeRecord, *others: NodeRecord, external: bool = False) -> KafkaCluster:
    """The view of a node that has read these entries; `me` is not among them before its first renewal."""
    registry = SimpleNamespace(
        record=me,
        nodes=lambda: others,
        node=lambda number: next((each for each in others if each.node_id == number), None),
    )
    topic = SimpleNamespace(name="jobs", topic_id=TOPIC)
    image = SimpleNamespace(by_id={TOPIC: topic}, topics={"jobs": topic})
    metadata = SimpleNamespace(cluster_id="c", image=image)
    node: Any = SimpleNamespace(registry=registry, metadata=metadata)
    return KafkaCluster(lambda: cast(ClusterNode, node), external=external)


@pytest.mark.rule("KL-7")
def test_brokers_are_the_live_nodes_with_a_listener() -> None:
    found = cluster(
        record(2, "k2:9092"),
        record(3, "", rack="r"),
        record(4, "[fd00::1]:9", rack="r"),
        record(1, "k1:9092", "leaving"),
    )
    assert list(found.brokers()) == [Broker(2, "k2", 9_092), Broker(4, "fd00::1", 9, "r")]
    assert [found.broker(number) for number in (1, 2, 3, 9)] == [
        Broker(1, "k1", 9_092),
        Broker(2, "k2", 9_092),
        None,
        None,
    ]
    assert (found.cluster_id, found.node_id) == ("c", 2)


@pytest.mark.rule("CM-237")
def test_clients_from_elsewhere_see_the_nodes_with_an_address_for_them() -> None:
    outside = replace(record(2, "k2:9092"), kafka_external_address="out:2")
    found = cluster(outside, record(3, "k3:9092"), external=True)
    assert list(found.brokers()) == [Broker(2, "out", 2)]
    assert (found.broker(2), found.broker(3)) == (Broker(2, "out", 2), None)


@pytest.mark.rule("KL-41")
def test_names_and_ids_of_topics_are_those_of_the_metadata() -> None:
    found = cluster(record(1, "k:1"))
    assert (found.topic_id("jobs"), found.topic_name(TOPIC)) == (TOPIC, "jobs")
    assert (found.topic_id("none"), found.topic_name(NO_TOPIC_ID)) == (NO_TOPIC_ID, "")
