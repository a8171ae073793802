"""A consumer's process is killed: its records go to the others long before its session times out (GC-36 to GC-39)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sharegroups import Admin, AlterConfig, ConfigResource, Producer, ShareConsumer
from sharegroups.admin_values import ShareGroupDescription
from tests.integration.scenarios.clients import World
from tests.support.node import Cluster

#: The session timeout, the maximum that a group may set: without a report the others would wait that long.
SESSION_S = 60
#: The time limit of this file's waits, half of the session timeout.
WITHIN_S = 30


class Group:
    """A group of two members, one of them a separate process, on a topic of `partitions` partitions."""

    def __init__(self, cluster: Cluster, assignor: str, partitions: int) -> None:
        self.world = World(cluster, partitions)
        self.partitions = partitions
        self.bootstrap = cluster.bootstrap
        configs = {
            "sharegroups.assignor": assignor,
            "share.session.timeout.ms": str(SESSION_S * 1_000),
            "share.heartbeat.interval.ms": "1000",
        }
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            group = ConfigResource.group(self.world.group)
            changes = [AlterConfig(name, value) for name, value in configs.items()]
            assert admin.incremental_alter_configs({group: changes}) == {group: None}

    def described(self) -> ShareGroupDescription:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            found = admin.describe_share_groups([self.world.group])[self.world.group]
        assert isinstance(found, ShareGroupDescription)
        return found

    def until_shared(self, consumer: ShareConsumer) -> None:
        """Poll until both members have partitions, and every partition has a member."""
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            consumer.poll(0.2)
            held = [each.assignment.get(self.world.topic, ()) for each in self.described().members]
            if len(held) == 2 and all(held) and len(frozenset[int]().union(*held)) == self.partitions:
                return
        raise AssertionError(f"not shared within {WITHIN_S} s: {self.described()}")

    def produce(self) -> None:
        """Produce one record to each partition."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for partition in range(self.partitions):
                producer.produce(self.world.topic, b"job", partition=partition)


@pytest.mark.rule("GC-36", "GC-39")
@pytest.mark.parametrize(("assignor", "partitions"), [("simple", 4), ("simple", 2), ("simple", 1), ("shared", 2)])
def test_what_a_killed_consumer_had_is_delivered_to_the_others(
    cluster: Cluster, tmp_path: Path, assignor: str, partitions: int
) -> None:
    group = Group(cluster, assignor, partitions)
    words = ["verify-consumer", "--bootstrap-server", cluster.bootstrap, "--topic", group.world.topic]
    said = tmp_path / "said"
    with said.open("wb") as output:
        tool = [sys.executable, "-c", "import sharegroups.cli; sharegroups.cli.run()", *words]
        victim = subprocess.Popen([*tool, "--group-id", group.world.group], stdout=output)
    try:
        with group.world.consumer() as consumer:
            group.until_shared(consumer)
            group.produce()
            until = time.monotonic() + WITHIN_S
            while b"records_consumed" not in said.read_bytes() and time.monotonic() < until:
                if consumer.poll(0.2):
                    group.produce()
            victim.kill()
            killed_s = time.monotonic()
            group.produce()
            left = set(range(partitions))
            while left and time.monotonic() - killed_s < WITHIN_S:
                left -= {message.partition() for message in consumer.poll(0.5)}
            assert not left, f"partitions {left} stood still for {WITHIN_S} s"
            while len(group.described().members) > 1 and time.monotonic() - killed_s < WITHIN_S:
                consumer.poll(0.2)
            assert len(group.described().members) == 1
    finally:
        victim.kill()
        victim.wait()
