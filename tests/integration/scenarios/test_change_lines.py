"""Each change by a client appears in the node's log, as a line that names the change and the client."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC, topic_id_text
from sharegroups import Admin, NewTopic, Producer, ShareConsumer, TopicPartition
from sharegroups.admin_values import AlterConfig, ConfigResource
from tests.support.node import BOUND_S, QUICK, Cluster, unique


def _lines(cluster: Cluster, client: str) -> list[tuple[str, str]]:
    found: list[dict[str, Any]] = [json.loads(line) for line in cluster.node.errors.splitlines() if client in line]
    assert all(line["peer"] and line["level"] == "info" for line in found)
    return [(line["event"], f"{line.get('group', '')} {line['changed']}".strip()) for line in found]


@pytest.mark.rule("CM-164")
def test_each_change_of_a_client_leaves_one_line() -> None:
    with Cluster(QUICK, "--log-level", "info") as cluster:
        _play(cluster)


def _play(cluster: Cluster) -> None:
    client, topic, group = unique("admin"), unique("t"), unique("g")
    with Admin(bootstrap_servers=cluster.bootstrap, client_id=client) as admin:
        topic_partition = TopicPartition(topic, 0)
        admin.create_topics([NewTopic(topic, 1), NewTopic("not a name", 1)])
        admin.create_topics([NewTopic(unique("t"), 1)], validate_only=True)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.produce(topic, "v")
        admin.delete_records({topic_partition: 1})
        admin.create_partitions({topic: 2})
        changes = [AlterConfig("retention.ms", "1000")]
        admin.incremental_alter_configs({ConfigResource(RESOURCE_TOPIC, topic): changes})
        locks = [AlterConfig("share.record.lock.duration.ms", "5000")]
        admin.incremental_alter_configs({ConfigResource(RESOURCE_GROUP, group): locks})
        admin.alter_share_group_offsets(group, {topic_partition: 1})
        admin.delete_share_group_offsets(group, [topic])
        admin.delete_share_groups([group])
        admin.delete_topics([topic])
    found = _lines(cluster, client)
    assert [event for event, _ in found] == [
        "topics_created", "records_deleted", "partitions_created", "configs_altered", "configs_altered",
        "offsets_altered", "offsets_deleted", "group_deleted", "topics_deleted",
    ]  # fmt: skip
    texts = [text for _, text in found]
    assert texts[0].startswith(f"{topic} (")
    assert texts[1].endswith(":0 before 1")
    assert texts[2:-1] == [
        f"{topic} to 2",
        f"topic {topic} retention.ms=1000",
        f"group {group} share.record.lock.duration.ms=5000",
        f"{group} {topic}-0 to 1",
        f"{group} {topic}",
        group,
    ]
    assert texts[-1].startswith(f"{topic} (")


@pytest.mark.rule("CM-213")
def test_no_line_of_a_run_has_a_topics_id_without_its_name() -> None:
    """Not shown: lines of dead letters, transactions, retention and failures; a topic that the node does not know."""
    with Cluster(QUICK, "--log-level", "debug") as cluster:
        names = [unique("t"), unique("t")]
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 2) for name in names])
            ids = {topic_id_text(topic.topic_id): name for name, topic in admin.list_topics(names).items()}
            with Producer(bootstrap_servers=cluster.bootstrap) as producer:
                for name in names:
                    for partition in (0, 1):
                        producer.produce(name, "v", partition=partition)
            with ShareConsumer({"bootstrap.servers": cluster.bootstrap, "group.id": unique("read")}) as consumer:
                consumer.subscribe([names[1]])
                deadline = time.monotonic() + BOUND_S
                while not consumer.poll(0.5):
                    assert time.monotonic() < deadline
            admin.alter_share_group_offsets(unique("g"), {TopicPartition(name, 0): 0 for name in names})
            admin.delete_records({TopicPartition(name, 0): 1 for name in names})
            admin.delete_topics([names[0]])
        cluster.node.stop()
        lines = cluster.node.errors.splitlines()
    about = [(line, name) for line in lines for topic_id, name in ids.items() if topic_id in line or name in line]
    assert [line for line, name in about if name not in line] == []
    assert any(json.loads(line)["event"] == "share_partition_dropped" for line, _ in about)
    led = {json.loads(line)["partition"] for line, _ in about if json.loads(line)["event"] == "partition_led"}
    assert led == {f"{name}:{partition}" for name in names for partition in (0, 1)}
