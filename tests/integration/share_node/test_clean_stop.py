"""A restart with `appendfsync everysec`: after a clean stop nothing is lost, so no log gets a hole in its offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sharegroups import Admin, NewTopic, Producer
from tests.support.node import QUICK, Cluster


@pytest.fixture(params=[(), ("--processes",)], ids=["one-process", "processes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(QUICK, "--fsync", "everysec", *request.param) as made:
        yield made


def produced(cluster: Cluster) -> int:
    """Produce one more record; returns its offset."""
    offsets: list[int] = []
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.produce(
            "jobs", "x", on_delivery=lambda error, report: offsets.append(-1 if error else report.offset())
        )
    (offset,) = offsets
    return offset


@pytest.mark.rule("CM-104", "CM-70")
def test_a_stop_in_good_order_leaves_no_hole_and_a_killed_store_does(cluster: Cluster) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic("jobs", 1)])
    assert [produced(cluster), produced(cluster)] == [0, 1]
    for expected in (2, 3):  # two stops in a row
        assert cluster.node.stop() == 143
        cluster.start()
        assert produced(cluster) == expected
    assert cluster.node.errors.count("fsync_everysec_used") == 1
    cluster.node.kill()  # it is unknown whether everything was on disk: offsets must not be assigned twice
    cluster.start()
    assert produced(cluster) == 4 + 1_000_000
    assert cluster.node.stop() == 143
    cluster.start()
    assert produced(cluster) == 5 + 1_000_000
