"""Clients that make a node hold bytes in memory: unread responses, requests that never end, producers that do not
wait."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from kip932.api.v1 import fetch_pb2, produce_pb2
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.errors import ThrottlingQuotaExceededError
from sharegroups import Admin, NewTopic, Producer
from tests.attack.canary import Canary, song
from tests.attack.http2 import Connection, message
from tests.attack.test_amplification import peak_bytes
from tests.attack.watch import MIB
from tests.chaos.history import now_ms
from tests.integration.scenarios.wire import METHODS
from tests.support.node import QUICK, Cluster

pytestmark = pytest.mark.attack

MEMORY: Final = 64 * MIB
#: The maximum growth of a node's memory: each byte of the budget is in memory up to three times, and the tail cache
#: fills. Without a bound, unread fetches took 664 MiB here, and producers 1.4 GiB.
GROWTH_MAX: Final = 5 * MEMORY
#: The same for producers: a stream's first message is accepted even if there is no room, and the tail cache holds
#: batches.
PRODUCED_GROWTH_MAX: Final = 8 * MEMORY
TOPIC: Final = "attacked"


@pytest.fixture(scope="module")
def attacked() -> Iterator[Cluster]:
    with Cluster({**QUICK, "rpc.memory.bytes": str(MEMORY)}) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            assert not any(admin.create_topics([NewTopic(TOPIC, 1), NewTopic("canary", 1)]).values())
        with Producer({"bootstrap.servers": cluster.bootstrap}) as producer:
            for _ in range(24):
                producer.produce(TOPIC, bytes(MIB // 2))
        yield cluster


@pytest.fixture
def canary(attacked: Cluster, tmp_path: Path) -> Iterator[Canary]:
    with Canary(attacked.bootstrap, "canary", tmp_path) as singing:
        yield singing


@contextlib.contextmanager
def unharmed(cluster: Cluster, canary: Canary, growth_max: int = GROWTH_MAX) -> Iterator[None]:
    """Check that during the block the node's memory stays within its bound and the canary keeps working."""
    before, began_ms = peak_bytes(cluster.node.pid), now_ms()
    yield
    grown = peak_bytes(cluster.node.pid) - before
    assert grown < growth_max, f"the node grew by {grown // MIB} MiB"
    deadline = time.monotonic() + 60
    while not (sung := song(canary.turns(began_ms))).turns:
        assert time.monotonic() < deadline, "the canary fell silent"
        time.sleep(0.05)
    assert sung.failed == 0, sung
    assert sung.p99_ms < 20_000, sung  # a quiet machine: under 1 s
    assert "Traceback" not in cluster.node.errors


def _topic_id(cluster: Cluster) -> bytes:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        return admin.list_topics([TOPIC])[TOPIC].topic_id


@pytest.mark.rule("CM-92")
def test_answers_that_are_not_read_have_a_bound(attacked: Cluster, canary: Canary) -> None:
    request = fetch_pb2.FetchRequest(max_bytes=8 * MIB)
    request.topics.add(topic_id=_topic_id(attacked)).partitions.add(
        partition=0, fetch_offset=0, partition_max_bytes=8 * MIB, current_leader_epoch=-1
    )
    body = message(request.SerializeToString())
    with unharmed(attacked, canary), contextlib.ExitStack() as connections:
        for _ in range(6):
            connection = connections.enter_context(Connection(attacked.bootstrap, window=0))
            for _ in range(40):
                connection.data(connection.call(METHODS["Fetch"].path), body, end=True)
        with grpc.insecure_channel(attacked.bootstrap, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            fetch: Any = channel.unary_unary(
                METHODS["Fetch"].path, fetch_pb2.FetchRequest.SerializeToString, fetch_pb2.FetchResponse.FromString
            )
            request.max_bytes = 1
            deadline = time.monotonic() + 60
            while (answer := fetch(request, timeout=30)).error_code == ThrottlingQuotaExceededError.code:
                assert answer.throttle_time_ms
                assert time.monotonic() < deadline, "a newcomer finds room"
                time.sleep(answer.throttle_time_ms / 1000)
            assert answer.responses[0].partitions[0].records


@pytest.mark.rule("CM-93")
@pytest.mark.parametrize("method", ["Produce", "ProduceStream", "ShareStream"])
def test_requests_that_never_end_have_a_bound(attacked: Cluster, canary: Canary, method: str) -> None:
    with unharmed(attacked, canary), contextlib.ExitStack() as connections:
        opened = [connections.enter_context(Connection(attacked.bootstrap)) for _ in range(8)]
        half = message(bytes(7 * MIB), claimed=8 * MIB)
        for connection in opened:
            for _ in range(20):
                connection.data(connection.call(METHODS[method].path), half, wait_s=0.5)
        deadline = time.monotonic() + 30
        while not any(connection.closed for connection in opened):
            assert time.monotonic() < deadline, "the connection that holds most of the memory must be closed"
            for connection in opened:
                connection.pump(0.01)


@pytest.mark.rule("CM-92")
def test_producers_that_do_not_wait_for_answers_are_slowed_down(attacked: Cluster, canary: Canary) -> None:
    batch = RecordBatch(records=[Record(value=bytes(900_000))]).SerializeToString()
    request = produce_pb2.ProduceStreamRequest(request=produce_pb2.ProduceRequest(acks=-1, timeout_ms=30_000))
    batches = request.request.topic_data.add(topic_id=_topic_id(attacked)).partition_data.add(index=0).batches
    for _ in range(8):
        batches.add(record_batch=batch, record_count=1, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    body = message(request.SerializeToString())
    with unharmed(attacked, canary, PRODUCED_GROWTH_MAX), contextlib.ExitStack() as connections:
        opened = [connections.enter_context(Connection(attacked.bootstrap, window=0)) for _ in range(8)]
        calls = [(one, one.call(METHODS["ProduceStream"].path)) for one in opened]
        for _ in range(20):
            for connection, call in calls:
                connection.data(call, body, wait_s=0.1)
