"""B10 and B3: Kafka's side of the drain, with confluent_kafka's share consumer and producer from the extra `bench`.

B10 is a running broker, 4.1 or newer, given as HOST:PORT; each run creates its own topic and group there. B3 is the
mock broker inside the client library, a sanity check of the consumer. The mock has four partitions, of which the first
ones are used, keeps 5 MB of each, and gives a group no records from before its first member joined. Acknowledgement is
implicit, as on our side. The broker's CPU time is only measured if its process id is given.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.drain import BATCH, Task
from benchmarks.machine import process_tree
from benchmarks.peers import client
from benchmarks.processes import Board, Crew, Process, hear, say

#: Selects the mock broker, in place of an address.
MOCK: Final = "mock"
_START_S: Final = 60.0
_FLUSH_S: Final = 120.0
_QUIET_S: Final = 0.7  # longer than a fetch waits


class Kafka:
    """A broker, real or mock, as one side of a drain. `python`: an interpreter with confluent_kafka."""

    def __init__(self, address: str, python: str = sys.executable, pid: int = 0) -> None:
        self.name = "kafka-mock" if address == MOCK else "kafka"
        self.crew = Crew()
        self._address, self._python, self._pid = address, python, pid
        self._broker: Process | None = None
        self._workers: list[Process] = []
        self._producer: Process | None = None
        self._consumers: list[Process] = []

    def start(self, task: Task, folder: Path, board: Path) -> None:
        """See drain.System."""
        address = self.start_broker()
        name = f"bench-{time.time_ns()}"
        shape = task.shape
        common = {"address": address, "name": name, "partitions": shape.partitions}
        self.make_topic(address, name, shape.partitions)
        produce = {"records": task.produced, "value_bytes": task.value_bytes, "batch_records": task.batch_records}
        self._producer = self._worker("producer", common | produce)
        for number in range(shape.consumers):
            consume = {"number": number, "consumers": shape.consumers, "board": str(board)}
            self._consumers.append(self._worker("consumer", common | consume | {"fetch_records": task.fetch_records}))

    def start_broker(self) -> str:
        """Return the address of the broker, after starting it if it is the mock. Raises BenchmarkError."""
        if self._address != MOCK:
            return self._address
        self._broker = self._worker(MOCK, {})
        self._pid = self._broker.pid
        return str(self._broker.expect("address", _START_S)["address"])

    def make_topic(self, address: str, name: str, partitions: int) -> None:
        """Create a topic, and let the group of the same name start at the earliest record. Raises BenchmarkError."""
        settings = {"address": address, "name": name, "partitions": partitions, "mock": self._address == MOCK}
        self._worker("setup", settings).expect("made", _START_S)

    def _worker(self, role: str, settings: dict[str, Any]) -> Process:
        process = client(self._python, "kafka_side", role, json.dumps(settings), self.crew)
        self._workers.append(process)
        return process

    @property
    def servers(self) -> dict[str, int]:
        """See drain.System; empty unless the broker's process id is known."""
        return process_tree(self._pid) if self._pid else {}

    @property
    def producer(self) -> Process:
        """See drain.System."""
        assert self._producer is not None
        return self._producer

    @property
    def consumers(self) -> Sequence[Process]:
        """See drain.System."""
        return self._consumers

    def settle(self) -> None:
        """See drain.System. The consumers keep polling meanwhile, which is how they get their assignment."""
        time.sleep(_SETTLE_S)
        self.crew.check()

    def settings(self) -> dict[str, Any]:
        """See drain.System."""
        return {"broker": self._address, "client": "confluent_kafka", "acks": "all", "transport": "TCP"}

    def close(self) -> None:
        """See drain.System; the mock is ended last."""
        for process in reversed(self._workers):
            process.stop()


#: How long until a group's members have their partitions, in seconds: one heartbeat interval of 5 s, and a margin.
_SETTLE_S: Final = 6.0


# The workers.


def _mock(settings: dict[str, Any]) -> None:
    from confluent_kafka import Producer  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - of an extra

    broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "127.0.0.1:1", "log_level": 3})
    nodes = broker.list_topics(timeout=10).brokers.values()
    say(address=",".join(f"{node.host}:{node.port}" for node in nodes))
    sys.stdin.readline()


def _setup(settings: dict[str, Any]) -> None:
    from confluent_kafka import Producer  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415
    from confluent_kafka import admin as tools  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    common = {"bootstrap.servers": settings["address"]}
    if settings["mock"]:  # it creates a topic on first use, and has no group configs
        Producer(common).list_topics(settings["name"], 10)
    else:
        admin = tools.AdminClient(common)
        for made in admin.create_topics([tools.NewTopic(settings["name"], settings["partitions"], 1)]).values():
            made.result(30)
        earliest = tools.ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=tools.AlterConfigOpType.SET
        )
        group = tools.ConfigResource(tools.ResourceType.GROUP, settings["name"], incremental_configs=[earliest])
        for changed in admin.incremental_alter_configs([group]).values():
            changed.result(30)
    say(made=True)


def _produce(settings: dict[str, Any]) -> None:
    from confluent_kafka import KafkaException, Producer  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    confirmed = 0

    def stored(error: Any, _: Any) -> None:
        nonlocal confirmed
        if error is not None:
            raise KafkaException(error)
        confirmed += 1

    batch = settings["batch_records"]
    producer = Producer({
        "bootstrap.servers": settings["address"], "acks": "all", "batch.num.messages": batch, "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000,
    })  # fmt: skip
    producer.list_topics(settings["name"], 30)
    value, partitions = b"v" * settings["value_bytes"], settings["partitions"]
    say(ready=True)
    hear("go")
    for first in range(0, settings["records"], BATCH):
        for _ in range(min(BATCH, settings["records"] - first)):
            producer.produce(settings["name"], value, partition=first // BATCH % partitions, on_delivery=stored)
        producer.poll(0)
    producer.flush(_FLUSH_S)
    say(produced=confirmed, at=time.monotonic())
    sys.stdin.readline()


def _consume(settings: dict[str, Any]) -> None:
    from confluent_kafka import ShareConsumer  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    number = settings["number"]
    records = cycles = value_bytes = 0
    wanted: dict[str, Any] = {"bootstrap.servers": settings["address"], "group.id": settings["name"]}
    consumer = ShareConsumer(wanted | {"max.poll.records": settings["fetch_records"], "log_level": 3})
    with Board(Path(settings["board"]), settings["consumers"]) as board:

        def committed(offsets: Any, error: Any) -> None:
            nonlocal records
            if error is not None:
                raise RuntimeError(f"an acknowledgement was refused: {error}")
            records += sum(len(found) for found in offsets.values())
            board.post(number, records, time.monotonic(), cycles)

        consumer.set_acknowledgement_commit_callback(committed)
        consumer.subscribe([settings["name"]])
        consumer.poll(5.0)
        say(ready=True)
        held = threading.Thread(target=hear, args=("hold",), daemon=True)
        held.start()
        while held.is_alive():
            consumer.poll(0.2)
        time.sleep(_QUIET_S)  # let waiting fetches end: they would acquire records before the gate opens
        say(held=True)
        hear("go")
        while not board.is_over:
            messages = [message for message in consumer.poll(0.05) if message.error() is None]
            value_bytes += sum(len(message.value()) for message in messages)
            cycles += bool(messages)
    with suppress(Exception):  # the run is over, and its records are counted
        consumer.close()
    say(done=True, value_bytes=value_bytes)


if __name__ == "__main__":
    _ROLES: Final = {MOCK: _mock, "setup": _setup, "producer": _produce, "consumer": _consume}
    _ROLES[sys.argv[1]](json.loads(sys.argv[2]))
