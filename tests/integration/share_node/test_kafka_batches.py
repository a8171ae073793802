"""Batches of Kafka's format in what surrounds a node: the scaler, retention, `state check`, backup and restore."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip932.compression.kinds import Compression
from kip932.ids import OFFSET_EARLIEST, TopicPartition
from sharegroups import Admin, NewTopic
from tests.integration.kafka_producing import produce_to
from tests.support.kafka_made import Made, kafka_batch
from tests.support.node import QUICK, TERMINATED, Cluster, StartedProcess, unique, up_words

from .test_backup import command
from .test_scaler import Asked, consume, started

BOUND_S = 60
SETTINGS = {
    **QUICK,
    "group.share.auto.offset.reset": "earliest",
    "sharegroups.retention.consumed.interval.ms": "100",
    "group.share.session.timeout.ms": "3000",
    "group.share.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def asked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    process, found = started(tmp_path_factory.mktemp("scaler"), cluster.bootstrap)
    yield found
    found.channel.close()
    assert process.stop() == TERMINATED


def filled(bootstrap: str, **configs: str) -> tuple[str, list[Made]]:
    """Create a topic with a batch of each compression, two records each; return its name and the records."""
    topic = unique("orders")
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, 1, configs)]) == {topic: None}
    made: list[Made] = []
    for kind in Compression:
        records: list[Made] = [(kind.label.encode(), b"v" * 300, [("n", None)], 1_000 * kind + n) for n in range(2)]
        made += records
        produce_to(bootstrap, topic, kafka_batch(records, kind))
    return topic, made


def read(bootstrap: str, topic: str) -> list[Made]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.read_records(TopicPartition(topic, 0), 0)
    assert found.unreadable == ()
    return [(one.key, one.value, list(one.headers), one.timestamp_ms) for one in found.records]


@pytest.mark.rule("CM-225")
def test_the_scaler_sees_their_lag_and_their_age(cluster: Cluster, asked: Asked) -> None:
    topic, made = filled(cluster.bootstrap)
    group = unique("workers")
    trigger = {"group": group, "topics": topic, "lagTarget": "5", "ageTargetSeconds": "1"}
    assert asked.active(**trigger)
    assert asked.value("lag", **trigger) == len(made)
    assert asked.value("age-seconds", **trigger) > 1_000_000_000, "since the first seconds of 1970"
    consume(cluster, topic, group, len(made))
    assert asked.value("lag", **trigger) == 0
    assert asked.value("age-seconds", **trigger) == 0


@pytest.mark.rule("CM-220", "CM-160")
def test_retention_deletes_them_once_they_are_consumed(cluster: Cluster) -> None:
    topic, made = filled(cluster.bootstrap, **{"sharegroups.retention": "consumed"})
    consume(cluster, topic, unique("workers"), len(made))
    partition = TopicPartition(topic, 0)
    until = time.monotonic() + BOUND_S
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        while admin.list_offsets({partition: OFFSET_EARLIEST})[partition] != len(made):
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.rule("CM-220", "CM-140")
def test_a_backup_and_a_restarted_node_have_them_byte_for_byte(tmp_path: Path) -> None:
    with Cluster(SETTINGS) as cluster:
        topic, made = filled(cluster.bootstrap)
        assert cluster.node.stop() == TERMINATED
        cluster.start()
        assert read(cluster.bootstrap, topic) == made
        found = command(tmp_path, "backup", str(tmp_path / "b"), "--store", cluster.store_url)
        assert (found["topics"], found["damaged"], found["left_out"]) == (1, 0, [])
        check = StartedProcess(["share_node", "state", "check", "--store", cluster.store_url], tmp_path)
        assert check.ended() == 0, check.errors
        assert " 0 findings" in check.errors
    data = tmp_path / "data"
    command(tmp_path, "restore", str(tmp_path / "b"), "--data", str(data))
    node = StartedProcess(up_words(data, SETTINGS), tmp_path)
    try:
        bootstrap = json.loads(node.first_line())["bootstrap"]
        assert read(bootstrap, topic) == made
    finally:
        assert node.stop() == TERMINATED
