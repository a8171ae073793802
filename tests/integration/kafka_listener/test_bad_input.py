"""Bad input at a real node, beside a client that must be served throughout."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka.record.util import calc_crc32c
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_listener.messages.apis import APIS, api
from kafka_listener.messages.headers import read_response_head, request_head
from tests.integration.kafka_listener.share_members import address_of, ask, kafka_cluster, member, produce
from tests.integration.kafka_listener.test_share_consumers import requests_of
from tests.support.kafka_client import frame
from tests.support.kafka_made import kafka_batch, values
from tests.support.kafka_values import damaged, full
from tests.support.node import BOUND_S, Cluster, unique
from tests.support.ports import free_port

FUZZED: Final = 2_000
#: How much the node may grow over all of these tests, MB; its budget is more.
GROWTH_MB: Final = 400
PRODUCE, FETCH = api("Produce"), api("Fetch")
#: Where a batch has its length, magic, checksum, attributes, last offset and count.
LENGTH, MAGIC, CRC, ATTRIBUTES, LAST, COUNT = 8, 16, 17, 21, 23, 57
_SIZE: Final = struct.Struct(">i")


class Canary:
    """A client that produces a record and is given it by a share group, again and again. `rounds`: how often;
    `failed`: what went wrong."""

    def __init__(self, address: str, topic: str) -> None:
        self.rounds = 0
        self.failed: list[str] = []
        self._ends = threading.Event()
        self._settings = {"bootstrap.servers": address, "log_level": 0}
        self._topic = topic
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _stored(self, error: object, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def _run(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 0})
        consumer = ShareConsumer({**self._settings, "group.id": unique("canary")})
        consumer.subscribe([self._topic])
        while not self._ends.is_set():
            value = str(self.rounds).encode()
            producer.produce(self._topic, value, on_delivery=self._stored)
            producer.flush(BOUND_S)
            if not self._comes(consumer, value):
                self.failed.append(f"record {self.rounds} did not come")
                break
            self.rounds += 1
        consumer.close()

    @staticmethod
    def _comes(consumer: ShareConsumer, value: bytes) -> bool:
        deadline = time.monotonic() + BOUND_S
        while time.monotonic() < deadline:
            if any(message.value() == value for message in consumer.poll(0.05)):
                return True
        return False

    def is_served(self) -> None:
        """Wait until two more rounds have ended well."""
        least, deadline = self.rounds + 2, time.monotonic() + BOUND_S
        while self.rounds < least:
            assert not self.failed
            assert time.monotonic() < deadline, "the canary is not served"
            time.sleep(0.005)

    def end(self) -> None:
        """End it."""
        self._ends.set()
        self._thread.join(BOUND_S)
        assert not self.failed


class Target:
    """A node with the canary beside it."""

    def __init__(self, cluster: Cluster, metrics_port: int) -> None:
        self.cluster = cluster
        self.metrics_port = metrics_port
        host, _, port = address_of(cluster).rpartition(":")
        self.address = host, int(port)
        self.admin = AdminClient({"bootstrap.servers": address_of(cluster), "log_level": 0})
        self.canary = Canary(address_of(cluster), self.topic())
        self.canary.is_served()
        (self.pid,) = cluster.ready["pids"].values()
        self.before_mb = self.resident_mb()

    def topic(self) -> str:
        """Create a topic of one partition; return its name."""
        name = unique("topic")
        assert self.admin.create_topics([NewTopic(name, 1)])[name].result(BOUND_S) is None
        deadline = time.monotonic() + BOUND_S
        while self.end(name) is None:  # its leader does not know it yet
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return name

    def end(self, topic: str) -> int | None:
        """Return the end of the topic's one partition; None without a leader."""
        request = api("ListOffsets").request
        partition = request.ListOffsetsPartition(partition_index=0, timestamp=-1)
        listed = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic, partitions=[partition])])
        found = ask(self.cluster, "ListOffsets", 7, listed).topics[0].partitions[0]
        return None if found.error_code else int(found.offset)

    def resident_mb(self) -> int:
        """How much memory the node has, MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) // 1024

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(self.address, BOUND_S)

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        """Open a connection, and close it in the end."""
        with self.connect() as connection:
            yield connection

    def send(self, data: bytes, wait_s: float | None = None) -> None:
        """Send bytes over a connection of their own, and end it; or wait for so long for answers before that."""
        with self.connected() as connection, suppress(ConnectionError, TimeoutError):
            connection.sendall(data)
            if wait_s is None:
                connection.shutdown(socket.SHUT_WR)
            else:
                connection.settimeout(wait_s)
            while connection.recv(65_536):
                pass


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    port = free_port()
    with kafka_cluster(**{"metrics.port": str(port)}) as cluster:
        made = Target(cluster, port)
        yield made
        made.canary.end()
        assert made.resident_mb() - made.before_mb < GROWTH_MB
        for sign in ("Traceback", "kafka_request_failed", "call_failed", '"level": "error"'):
            assert sign not in cluster.node.errors


def framed(data: bytes, size: int | None = None) -> bytes:
    return _SIZE.pack(len(data) if size is None else size) + data


def whole() -> list[bytes]:
    """A request of each API in each version, without its size."""
    return [
        request_head(one, version, 1, "fuzz") + b"".join(one.encode_request(version, full(one, "request", version)))
        for one in APIS.values()
        for version in one.versions
    ]


def bad(data: bytes, rng: random.Random) -> bytes:
    """Damage a request in one of the ways that there are, or leave it as it is."""
    kind = rng.random()
    if kind < 0.05:
        return framed(data, rng.choice((-1, 0, 7, len(data) + 1, 2**31 - 1)))
    if kind < 0.1:
        return rng.randbytes(rng.randrange(200))
    if kind < 0.15:  # an unknown key, or version
        return framed(
            struct.pack(">hh", rng.choice((data[1], rng.randrange(-2, 120))), rng.randrange(-2, 30)) + data[4:]
        )
    if kind < 0.2:
        return framed(data)
    head = data[: rng.choice((0, 8, 14))]  # mostly what comes after the header
    return framed(head + damaged(data[len(head) :], rng))


@pytest.mark.rule("KL-1", "KL-12", "KL-33", "KL-36", "KL-9")
def test_damaged_cut_random_and_unknown_requests_harm_no_one(target: Target) -> None:
    rng, requests, sent = random.Random(20261130), whole(), 0
    while sent < FUZZED:
        count = rng.choice((1, 1, 2, 20))
        data = b"".join(bad(rng.choice(requests), rng) for _ in range(count))
        target.send(data, 0.2 if rng.random() < 0.05 else None)
        sent += count
    target.canary.is_served()


def asked(topic: str, *batches: bytes) -> Any:
    partitions = [PRODUCE.request.PartitionProduceData(index=0, records=batch) for batch in batches]
    return PRODUCE.request(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[PRODUCE.request.TopicProduceData(name=topic, partition_data=partitions)],
    )


BATCH: Final = kafka_batch(values(b"one", b"two"))


def changed(place: int, layout: str, value: int) -> bytes:
    held = bytearray(BATCH)
    struct.pack_into(layout, held, place, value)
    if place > CRC:  # nothing but this is wrong then
        struct.pack_into(">I", held, CRC, calc_crc32c(held[ATTRIBUTES:]))
    return bytes(held)


@pytest.mark.rule("KL-49")
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (changed(CRC, ">I", 1), 2),
        (changed(LAST, ">i", 7), 87),
        (changed(COUNT, ">i", 200_000), 87),
        (changed(ATTRIBUTES, ">h", 32), 87),
        (changed(MAGIC, ">b", 1), 43),
        (changed(LENGTH, ">i", len(BATCH)), 2),
        (changed(LENGTH, ">i", -1), 2),
        (BATCH[:-1], 2),
        (b"", 87),
        (BATCH * 2, 87),
    ],
    ids=["checksum", "last offset", "count", "control", "magic", "long", "negative length", "cut", "none", "two"],
)
def test_a_batch_that_is_none_is_refused_and_not_stored(target: Target, records: bytes, code: int) -> None:
    topic = target.topic()
    (answered,) = ask(target.cluster, "Produce", 9, asked(topic, records)).responses
    assert [each.error_code for each in answered.partition_responses] == [code]
    assert target.end(topic) == 0
    (answered,) = ask(target.cluster, "Produce", 9, asked(topic, BATCH)).responses
    assert [each.error_code for each in answered.partition_responses] == [0]
    assert target.end(topic) == 2


@pytest.mark.rule("KL-49", "KL-19")
def test_a_hundred_thousand_tiny_batches_are_refused(target: Target) -> None:
    topic, tiny = target.topic(), kafka_batch(values(b""))
    (answered,) = ask(target.cluster, "Produce", 9, asked(topic, tiny * 100_000)).responses
    assert [each.error_code for each in answered.partition_responses] == [87]
    target.send(frame("Produce", 9, asked(topic, *[tiny] * 60_000)))
    assert target.end(topic) == 0
    target.canary.is_served()


@pytest.mark.rule("KL-3", "KL-8", "KL-14", "KL-2")
def test_clients_that_wait_or_do_not_read_keep_no_one_waiting(target: Target) -> None:
    topic = target.topic()
    large = kafka_batch(values(*[random.Random(1).randbytes(10_000) for _ in range(90)]))
    for _ in range(8):
        ask(target.cluster, "Produce", 9, asked(topic, large))
    partition = FETCH.request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8_000_000)
    fetch = FETCH.request(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=8_000_000,
        session_epoch=-1,
        topics=[FETCH.request.FetchTopic(topic=topic, partitions=[partition])],
    )
    with ExitStack() as open_ones:
        for _ in range(1_000):
            open_ones.enter_context(target.connected())
        for _ in range(50):
            open_ones.enter_context(target.connected()).sendall(_SIZE.pack(8_000_000) + bytes(100_000))
        open_ones.enter_context(target.connected()).sendall(frame("Fetch", 12, fetch) * 64)
        target.canary.is_served()
    target.canary.is_served()


def exchange(connection: socket.socket, name: str, version: int, request: Any) -> Any:
    connection.sendall(frame(name, version, request))
    reader = connection.makefile("rb")
    data = reader.read(_SIZE.unpack(reader.read(_SIZE.size))[0])
    return api(name).decode_response(version, data, read_response_head(api(name), version, data)[1])


@pytest.mark.rule("KL-25")
def test_wrong_passwords_are_refused_again_and_again(target: Target) -> None:
    handshake = api("SaslHandshake").request(mechanism="PLAIN")

    def guess() -> None:
        for number in range(25):
            said = api("SaslAuthenticate").request(auth_bytes=f"\0alice\0guess{number}".encode())
            with target.connected() as connection:
                assert exchange(connection, "SaslHandshake", 1, handshake).error_code == 0
                codes.append(exchange(connection, "SaslAuthenticate", 2, said).error_code)
                assert connection.recv(1) == b""

    codes: list[int] = []
    guessing = [threading.Thread(target=guess) for _ in range(8)]
    for thread in guessing:
        thread.start()
    target.canary.is_served()
    for thread in guessing:
        thread.join(BOUND_S)
    assert codes == [58] * 200


@pytest.mark.rule("KL-16")
def test_a_member_of_a_topic_that_is_deleted_does_not_ask_without_end(target: Target) -> None:
    topic = target.topic()
    produce(target.cluster, topic, ["one"])
    with member(target.cluster, unique("g"), topic) as one:
        assert [each.value for each in one.take(1)] == ["one"]
        target.admin.delete_topics([topic])[topic].result(BOUND_S)
        before = requests_of(target.metrics_port, "ShareFetch")
        began_s = time.monotonic()
        while time.monotonic() - began_s < 2:
            one.consumer.poll(0.2)
        target.canary.is_served()
        asked_for = requests_of(target.metrics_port, "ShareFetch") - before
    assert asked_for / (time.monotonic() - began_s) < 500
