"""Kafka's Java clients at two nodes, one of which is killed, or stands still for a while."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.integration.kafka_listener.java.kafka_java import JavaProcess, KafkaJava, Member, Sender
from tests.integration.kafka_listener.two_nodes import Disturb, check_disturbed, kill, stand_still, two_nodes
from tests.support.node import BOUND_S, unique


class Sent:
    """A KafkaProducer, which is idempotent by default. It asks again after five seconds without an answer."""

    def __init__(self, process: JavaProcess, servers: str, topic: str) -> None:
        self._sender = Sender(process, "p", servers, **{"request.timeout.ms": "5000"})
        self._topic = topic

    @property
    def stored(self) -> set[int]:
        """The numbers that are confirmed."""
        return {int(value or "-1") for value in self._sender.stored}

    @property
    def failed(self) -> list[str]:
        """The errors of others."""
        return list(self._sender.failed.values())

    def send(self, numbers: range) -> None:
        """Send records with these values."""
        self._sender.send(self._topic, map(str, numbers))

    def flush(self) -> None:
        """Wait until each is confirmed or failed."""
        self._sender.flush()


class Consumers:
    """Members of a group, each in a process of its own, that count what they are given."""

    def __init__(self, processes: list[JavaProcess], servers: str, topic: str) -> None:
        self.got: Counter[int] = Counter()
        self.refused: list[str] = []
        group = unique("group")
        self._stopping = threading.Event()
        self._members = [Member(each, "m", servers, group, [topic]) for each in processes]
        self._threads = [threading.Thread(target=self._consume, args=[member]) for member in self._members]
        for thread in self._threads:
            thread.start()

    def _consume(self, member: Member) -> None:
        while not self._stopping.is_set():
            self.got.update(int(each.value or "-1") for each in member.poll(200))
        member.close()

    def stop(self) -> None:
        """End them."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * BOUND_S)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.mark.rule("KL-7", "KL-42")
@pytest.mark.parametrize("disturb", [kill, stand_still])
def test_javas_clients_find_leaders_and_coordinators_again(java: KafkaJava, disturb: Disturb) -> None:
    with two_nodes() as nodes, ExitStack() as running:
        first, *others = (running.enter_context(JavaProcess(java)) for _ in range(3))
        consumers = Consumers(others, nodes.servers, nodes.topic)
        check_disturbed(nodes, Sent(first, nodes.servers, nodes.topic), consumers, disturb)
