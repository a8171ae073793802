"""What holds for any client of Kafka's when one of two nodes is killed, or stops for a while, under it."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import TopicPartition

from tests.support.confluent_admin import confluent
from tests.support.node import BOUND_S, QUICK, Cluster, unique
from tests.support.ports import free_port

RECORDS: Final = 1_500
PARTITIONS: Final = 6
_AT_ONCE: Final = 10
_DISTURBED_AT: Final = 500
#: How long a node stands still: longer than the lease on its partitions.
_STILL_S: Final = 8


class Producing(Protocol):
    """An idempotent producer. `stored`: the numbers whose records were confirmed; `failed`: errors of others."""

    @property
    def stored(self) -> Collection[int]: ...

    @property
    def failed(self) -> list[Any]: ...

    def send(self, numbers: range) -> None: ...

    def flush(self) -> None: ...


class Consuming(Protocol):
    """Members of one group in threads. `got`: how often each number came."""

    got: Counter[int]

    def stop(self) -> None: ...


class TwoNodes(NamedTuple):
    """Two nodes, the addresses of their listeners, and a topic of six partitions."""

    cluster: Cluster
    servers: str
    topic: str


Disturb = Callable[[TwoNodes], None]


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """Run two nodes with a listener each."""
    topic, ports = unique("jobs"), free_port()
    with Cluster(QUICK, "--leaders", "2", "--kafka-port", str(ports)) as nodes:
        assert [each.rpartition(":")[2] for each in nodes.ready["kafka"]] == [str(ports), str(ports + 1)]
        servers = ",".join(nodes.ready["kafka"])
        client = confluent.AdminClient({"bootstrap.servers": servers, "log_level": 0})
        assert client.create_topics([confluent.NewTopic(topic, PARTITIONS)])[topic].result(BOUND_S) is None
        yield TwoNodes(nodes, servers, topic)


def kill(nodes: TwoNodes) -> None:
    """Kill the second node, which is started again."""
    os.kill(nodes.cluster.ready["pids"]["up-2"], signal.SIGKILL)


def stand_still(nodes: TwoNodes) -> None:
    """Stop the second node until its partitions have other leaders, and let it go on."""
    os.kill(nodes.cluster.ready["pids"]["up-2"], signal.SIGSTOP)
    try:
        time.sleep(_STILL_S)
    finally:
        os.kill(nodes.cluster.ready["pids"]["up-2"], signal.SIGCONT)


def check_disturbed(nodes: TwoNodes, producer: Producing, consumers: Consuming, disturb: Disturb) -> None:
    """Produce and consume while a node is disturbed: each confirmed record is stored once, and comes to a member."""
    try:
        for start in range(0, RECORDS, _AT_ONCE):
            producer.send(range(start, start + _AT_ONCE))
            if start == _DISTURBED_AT:
                disturb(nodes)
            time.sleep(0.01)
        producer.flush()
        deadline = time.monotonic() + 2 * BOUND_S
        while len(consumers.got) < len(producer.stored):
            assert time.monotonic() < deadline, f"{len(producer.stored) - len(consumers.got)} records did not come"
            time.sleep(0.05)
    finally:
        consumers.stop()
    assert (producer.failed, set(producer.stored)) == ([], set(range(RECORDS)))
    assert set(consumers.got) == set(range(RECORDS))
    assert _ends(nodes) == RECORDS, "records are stored twice"


def _ends(nodes: TwoNodes) -> int:
    """Return the sum of the ends of the topic's logs, which have no markers of transactions."""
    client = confluent.AdminClient({"bootstrap.servers": nodes.servers, "log_level": 0})
    latest = confluent.OffsetSpec.latest()
    found = client.list_offsets({TopicPartition(nodes.topic, number): latest for number in range(PARTITIONS)})
    return sum(int(each.result(BOUND_S).offset) for each in found.values())
