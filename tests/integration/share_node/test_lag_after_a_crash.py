"""After a crash of a store with `appendfsync everysec` the end offset of a log jumps (CM-47); no group's lag includes
the jump."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sharegroups import Admin, NewTopic, Producer, TopicPartition
from tests.integration.share_node.test_scaler import Asked, consume, started
from tests.support.node import QUICK, TERMINATED, Cluster

PARTITION = TopicPartition("jobs", 0)
JUMP = 1_000_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster({**QUICK, "group.share.auto.offset.reset": "earliest"}, "--fsync", "everysec") as made:
        yield made


@contextmanager
def scaler(folder: Path, cluster: Cluster) -> Iterator[Asked]:
    process, asked = started(folder, cluster.bootstrap)
    try:
        yield asked
    finally:
        asked.channel.close()
        assert process.stop() == TERMINATED


def produce(cluster: Cluster, records: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(records):
            producer.produce("jobs", "x")


def lags(cluster: Cluster, folder: Path) -> tuple[int, float, float]:
    """Return the working group's lag as the admin client and as the scaler report it, and the scaler's lag for a group
    that never existed."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin, scaler(folder, cluster) as asked:
        found = admin.list_share_group_offsets({"workers": None})["workers"]
        assert isinstance(found, dict)
        offset = found[PARTITION]
        assert offset is not None
        assert offset.lag is not None
        trigger = {"topics": "jobs", "lagTarget": "1"}
        worked, new = (asked.value("lag", group=group, **trigger) for group in ("workers", "new"))
        assert asked.active(group="workers", **trigger) == (worked > 0)
        return offset.lag, worked, new


@pytest.mark.rule("CM-105")
def test_a_lag_counts_records_and_not_what_a_crash_left_out(cluster: Cluster, tmp_path: Path) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic("jobs", 1)])
    produce(cluster, 3)
    consume(cluster, "jobs", "workers", 3)
    cluster.node.kill()
    cluster.start()
    assert lags(cluster, tmp_path) == (0, 0, 3)
    produce(cluster, 2)  # after the hole in the offsets, which is now inside the log
    assert lags(cluster, tmp_path) == (2, 2, 5)
    assert cluster.node.stop() == TERMINATED
    cluster.start()  # the current leader did not make the hole
    assert lags(cluster, tmp_path) == (2, 2, 5)
    cluster.node.kill()
    cluster.start()
    assert lags(cluster, tmp_path) == (2, 2, 5)
    consume(cluster, "jobs", "workers", 2)
    assert lags(cluster, tmp_path) == (0, 0, 5)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        ends = admin.list_offsets([PARTITION])
    assert ends == {PARTITION: 2 * JUMP + 5}
