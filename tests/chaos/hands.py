"""Clients in the test's process that take one step at a time, for experiments with a fixed order of events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kip932.errors import KafkaError
from sharegroups import AcknowledgeType, DeliveryReport, Message, Producer, ShareConsumer
from tests.chaos.deployment import Deployment
from tests.chaos.history import Delivered, HistoryWriter, Produced, SessionEnded, now_ms
from tests.chaos.workers import AckBook, TimedTransport

TAKE_WAIT_S: Final = 30.0
#: Longer than the persister's timeout, so that the leader reports the outcome of an acknowledgement.
REQUEST_TIMEOUT_MS: Final = 8_000


class Hand:
    """A consumer in explicit mode. It records what it receives and every result in its own history."""

    def __init__(self, deployment: Deployment, folder: Path, name: str, group: str, topic: str) -> None:
        self.name = name
        self._topic = topic
        self._history = history = HistoryWriter(folder / f"{name}.jsonl")
        self._transport = TimedTransport(deployment.reach, lambda: history.write([SessionEnded(name, now_ms())]))
        self._next = AcknowledgeType.ACCEPT
        self._book = AckBook(name, self._history, lambda: self._next)
        self._closed = False
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": deployment.outside,
                "group.id": group,
                "client.id": name,
                "share.acknowledgement.mode": "explicit",
                "share.acquire.mode": "batch_optimized",
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "default.api.timeout.ms": 15_000,
            },
            transport=self._transport,
        )
        self._consumer.set_acknowledgement_commit_callback(self._book.settled)
        self._consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> list[Message]:
        """Poll once; return [] if nothing came."""
        messages = list(self._consumer.poll(timeout_s))
        self._history.write([self._delivered(message) for message in messages])
        return messages

    def take(self, count: int, timeout_s: float = TAKE_WAIT_S) -> list[Message]:
        """Take this many records from one poll. Raises AssertionError if they do not arrive together within the
        time."""
        deadline = time.monotonic() + timeout_s
        messages: list[Message] = []
        while not messages and time.monotonic() < deadline:
            messages = self.poll(1.0)
        assert len(messages) == count, f"{self.name} got {len(messages)} records, expected {count}"
        return messages

    def take_and_accept(self, offsets: Iterable[int], timeout_s: float = TAKE_WAIT_S) -> None:
        """Accept records until all these offsets have been accepted. Raises AssertionError if one does not arrive."""
        missing, deadline = set(offsets), time.monotonic() + timeout_s
        while missing:
            assert time.monotonic() < deadline, f"{self.name} still waits for offsets {sorted(missing)}"
            missing -= set(self.accept_some())

    def accept_some(self) -> list[int]:
        """Poll once and accept what arrives; return the offsets whose acceptance was confirmed."""
        messages = self.poll(1.0)
        self.settle(messages, AcknowledgeType.ACCEPT)
        return [] if self.commit() else [message.offset() for message in messages]

    def settle(self, messages: Iterable[Message], type: AcknowledgeType) -> None:
        """Acknowledge records locally; `commit` sends it."""
        self._next = type
        for message in messages:
            self._consumer.acknowledge(message, self._book.note(message))

    def commit(self) -> list[KafkaError]:
        """Send and wait; return the errors, one per failed partition, [] if everything was confirmed."""
        return [error for error in self._consumer.commit_sync().values() if error is not None]

    def close(self) -> None:
        """Leave; a second call is a no-op."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(KafkaError):
                self._consumer.close(5)
            self._history.write(self._transport.unseen(self.name, self._topic))
            self._history.close()

    def _delivered(self, message: Message) -> Delivered:
        sent_ms, at_ms, _ = self._transport.arrival(message)
        value = (message.value() or b"").decode()
        return Delivered(
            self.name, message.topic(), message.partition(), message.offset(), value, message.delivery_count(),
            sent_ms, at_ms,
        )  # fmt: skip


def produce_one(deployment: Deployment, folder: Path, topic: str) -> str:
    """Produce one record with a delivery timeout of a second; return its error's name, "" if it was stored."""
    history, errors = HistoryWriter(folder / f"one-{topic}.jsonl"), list[str]()

    def delivered(error: KafkaError | None, report: DeliveryReport) -> None:
        errors.append(error.name if error is not None else "")
        if error is None:
            value = (report.value() or b"").decode()
            history.write([Produced(report.topic(), report.partition(), report.offset(), value, now_ms())])

    settings = {"bootstrap.servers": deployment.outside, "delivery.timeout.ms": 1_000, "request.timeout.ms": 1_000}
    with Producer(settings, transport=TimedTransport(deployment.reach)) as producer:
        producer.produce(topic, f"{topic}-one-{now_ms()}".encode(), partition=0, on_delivery=delivered)
        left = producer.flush(15)
    history.close()
    assert not left, f"a record of {topic} was not answered"
    return errors[0]


def produce_all(deployment: Deployment, folder: Path, topic: str, partition: int, count: int) -> None:
    """Produce `count` different values and wait. Raises AssertionError if one is not confirmed."""
    history, errors = HistoryWriter(folder / f"produced-{topic}.jsonl"), list[str]()

    def delivered(error: KafkaError | None, report: DeliveryReport) -> None:
        if error is None:
            value = (report.value() or b"").decode()
            history.write([Produced(report.topic(), report.partition(), report.offset(), value, now_ms())])
        else:
            errors.append(str(error))

    settings = {"bootstrap.servers": deployment.outside}
    with Producer(settings, transport=TimedTransport(deployment.reach)) as producer:
        for number in range(count):
            producer.produce(topic, f"{topic}-{number}".encode(), partition=partition, on_delivery=delivered)
        left = producer.flush(15)
    history.close()
    assert not errors, f"{len(errors)} records of {topic} were refused: {errors[:3]}"
    assert not left, f"{left} records of {topic} were not answered"
