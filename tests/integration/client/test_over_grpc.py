"""The blocking clients and the examples over gRPC on loopback, against the fake cluster of the unit tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip932.api.v1 import common_pb2
from shard_runtime.rpc.server import RpcServer
from sharegroups import Admin, Producer, ShareConsumer, TopicPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumed, produce

ROOT = Path(__file__).parents[3]


class ServedCluster(FakeCluster):
    """The fake cluster with one node that listens on loopback."""

    def __init__(self) -> None:
        self.server = RpcServer("127.0.0.1")
        super().__init__()
        for descriptor, service in self.services(0):
            self.server.add(descriptor, service)

    def serve(self, node: int) -> None:
        """Do nothing: this node is not served in memory."""

    def endpoint(self, node: int) -> common_pb2.NodeEndpoint:
        return common_pb2.NodeEndpoint(node_id=node, host="127.0.0.1", port=self.server.port)

    @property
    def bootstrap(self) -> str:
        return self.server.address


@pytest.fixture
def served() -> Iterator[ServedCluster]:
    ready, stop, made = threading.Event(), threading.Event(), list[ServedCluster]()

    async def serve() -> None:
        cluster = ServedCluster()
        cluster.add_topic("orders", 2)
        await cluster.server.start()
        made.append(cluster)
        ready.set()
        await asyncio.get_running_loop().run_in_executor(None, stop.wait)
        await cluster.server.drain(1)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    yield made[0]
    stop.set()
    thread.join(10)


@pytest.mark.rule("P-1", "P-4", "CM-42")
def test_records_travel_from_producer_to_consumer_and_are_accepted(served: ServedCluster) -> None:
    with Producer(bootstrap_servers=served.bootstrap) as producer:
        for number in range(2000):
            producer.produce("orders", str(number), key=str(number % 7))
        assert producer.flush(30) == 0
    assert len(served.produces) < 200
    seen: list[int] = []
    with ShareConsumer(bootstrap_servers=served.bootstrap, group_id="g") as consumer:
        consumer.subscribe(["orders"])
        while len(seen) < 2000:
            seen += [int(message.value()) for message in consumer.poll(5)]
        assert set(consumer.commit_sync().values()) == {None}
    assert sorted(seen) == list(range(2000))
    for number in (0, 1):
        assert set(served.states("orders", number=number).values()) <= {"acknowledged"}
    assert served.members == {}
    assert served.sessions[0] == {}


@pytest.mark.rule("CL-45")
def test_the_admin_client_answers_over_grpc(served: ServedCluster) -> None:
    produce(served, 7, "orders", 1)
    consumed(served, "orders", 1, 3)
    with Admin(bootstrap_servers=served.bootstrap) as admin:
        assert admin.create_topics(["new"]) == {"new": None}
        assert sorted(admin.list_topics()) == ["new", "orders"]
        assert [group.group_id for group in admin.list_groups()] == ["g"]
        offsets = admin.list_share_group_offsets({"g": None})["g"]
        assert isinstance(offsets, dict)
        entry = offsets[TopicPartition("orders", 1)]
        assert entry is not None
        assert (entry.start_offset, entry.lag, entry.leader_epoch) == (3, 4, 1)


def test_the_examples_run(served: ServedCluster) -> None:
    first = _example("produce_consume.py", served.bootstrap)
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.splitlines()) == 10
    with Producer(bootstrap_servers=served.bootstrap) as producer:
        producer.produce("orders", b"raw")
    raw = _example("raw_stubs.py", served.bootstrap, "orders", "raw")
    assert raw.returncode == 0, raw.stderr
    assert raw.stdout.splitlines()[-1] == "13 records from node 0"
    states = [state for number in (0, 1) for state in served.states("orders", "raw", number).values()]
    assert states == ["acknowledged"] * 13


def _example(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "client" / "examples" / name), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
