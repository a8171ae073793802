"""Attacks that make a node hold bytes in memory: unread responses, requests that never end, producers that do not
wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kip932.api.v1.fetch_pb2 import FetchRequest
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceStreamRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from sharegroups import Admin, Producer, TopicPartition
from tests.attack.definition import Attack, Target
from tests.attack.http2 import Connection, message

MIB: Final = 1024 * 1024
FETCH: Final = "/kip932.api.v1.PartitionLeaderService/Fetch"
PRODUCE: Final = "/kip932.api.v1.PartitionLeaderService/Produce"
PRODUCE_STREAM: Final = "/kip932.api.v1.PartitionLeaderService/ProduceStream"
_CONNECTIONS: Final = 8
_CALLS: Final = 20


def _until(
    seconds: float, work: Callable[[list[Connection]], Iterator[int]], target: Target, window: int = 65_535
) -> tuple[int, int]:
    """Repeat `work` on some connections to a leader until the time is up; return how many steps were done, and how many
    of the connections the node had closed by then."""
    deadline, count = time.monotonic() + seconds, 0
    with ExitStack() as stack:
        opened = [stack.enter_context(Connection(target.leader(), window, target.dial)) for _ in range(_CONNECTIONS)]
        for done in work(opened):
            count += done
            if time.monotonic() > deadline:
                break
        while time.monotonic() < deadline:
            for connection in opened:
                connection.pump(0.01)
        return count, sum(connection.closed for connection in opened)


def _filled(target: Target) -> dict[int, int]:
    """Append 8 MiB to each of the topic's partitions; return the offsets at which they start. Earlier records may have
    been deleted; the response to a fetch of those would be too small for the attack."""
    bootstrap = target.dial.settings(target.coordinator())
    places = [TopicPartition(target.topic, partition) for partition in range(4)]
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for place in places * 8:
            producer.produce(place.topic, bytes(MIB - 1024), partition=place.partition)
        producer.flush()
        ends = admin.list_offsets(places)
    return {place.partition: end - 8 for place, end in ends.items() if isinstance(end, int)}


def _unread(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    request = FetchRequest(max_bytes=8 * MIB)
    for partition, offset in _filled(target).items():
        request.topics.add(topic_id=target.topic_id).partitions.add(
            partition=partition, fetch_offset=offset, partition_max_bytes=8 * MIB, current_leader_epoch=-1
        )
    body = message(request.SerializeToString())

    def fetch(opened: list[Connection]) -> Iterator[int]:
        for _ in range(_CALLS):
            for connection in opened:
                connection.data(connection.call(FETCH), body, end=True, wait_s=0.1)
                yield 1

    fetches, cut = _until(seconds, fetch, target, window=0)
    return f"{fetches} fetches whose answers were not read; {cut} of {_CONNECTIONS} connections cut"


def _half_sent(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    half = message(bytes(7 * MIB), claimed=8 * MIB)

    def send(opened: list[Connection]) -> Iterator[int]:
        for _ in range(_CALLS):
            for connection in opened:
                connection.data(connection.call(rng.choice((PRODUCE, PRODUCE_STREAM))), half, wait_s=0.1)
                yield 1

    calls, cut = _until(seconds, send, target)
    return f"{calls} requests that never end; {cut} of {_CONNECTIONS} connections cut"


def _hasty(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    batch = RecordBatch(records=[Record(value=bytes(400_000))]).SerializeToString()
    request = ProduceStreamRequest(request=ProduceRequest(acks=-1, timeout_ms=30_000))
    data = request.request.topic_data.add(topic_id=target.topic_id)
    for partition in range(4):
        data.partition_data.add(index=partition).batches.add(record_batch=batch, record_count=1)
    body = message(request.SerializeToString())

    def produce(opened: list[Connection]) -> Iterator[int]:
        calls = [(connection, connection.call(PRODUCE_STREAM)) for connection in opened]
        while True:
            for connection, call in calls:
                connection.data(call, body, wait_s=0.05)
                yield 1

    requests, cut = _until(seconds, produce, target, window=0)
    return f"{requests} produce requests without reading an answer; {cut} of {_CONNECTIONS} connections cut"


MEMORY_ATTACKS: Final = (
    Attack("unread-fetches", "Fetches whose answers are not read", _unread),
    Attack("half-sent-requests", "Requests of which only the first 7 of 8 MiB are sent", _half_sent),
    Attack("hasty-producers", "Producers that do not wait for an answer", _hasty),
)
