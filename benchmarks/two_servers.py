"""B15, the same client and two servers: Kafka's own client at a Kafka broker and at a node's Kafka listener.

    python -m benchmarks.two_servers --kafka /path/of/kafka                # starts a broker; about six minutes
    python -m benchmarks.two_servers --broker 127.0.0.1:9092 --broker-pid 4711 --cases 1p1c latency
    python -m benchmarks.two_servers                                       # beside our own client alone

`broker` is confluent_kafka's producer and share consumer at the broker, `listener` the same at our node, `native` our
own client at that node. Both servers and all clients are up for the whole run. In each round every side does each case
in turn, in another order each time; a first round, which does not count, warms them. Drains are those of B1, in batches
of 500, but on a topic and group that stay: all is produced, then the gate opens, and the clock stops when a number of
records is acknowledged. `latency` is from produce() to user code, `first` the time until a new group's only member has
a record, `java` Kafka's own producer-perf-test and share-consumer-perf-test, where --kafka names a folder with its
jars and Java is there, and `memory` what the server has after the others. CPU is the server's, the store included.
JSON lines on standard output, the table on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import kafka_broker, latency, peers
from benchmarks.drain import BATCH, SHAPES, SPARE_BATCHES, Shape, Task, await_acknowledged, dismissed
from benchmarks.goals import FOREIGN_CPU_MAX
from benchmarks.machine import Meter, memory_mib, process_seconds, process_tree
from benchmarks.processes import BenchmarkError, Board, Crew, Process
from benchmarks.session import Session
from benchmarks.share_group import ShareGroup
from benchmarks.two_servers_clients import PACED_BYTES
from benchmarks.two_servers_table import BROKER, LISTENER, NATIVE, table

_READY_S: Final = 120.0
_TURN_S: Final = 120.0
_SETTLE_S: Final = 6.5  # a member has its partitions after a heartbeat of 5 s
_FIRST_RECORDS: Final = 10


@dataclass(frozen=True, slots=True)
class Drain:
    """One drain: `records` are acknowledged when its clock stops, and some more in the end."""

    name: str
    shape: Shape
    value_bytes: int
    records: int

    @property
    def produced(self) -> int:
        """How many are produced; the spare ones keep the pipeline full until the clock stops."""
        return self.records + SPARE_BATCHES * BATCH * self.shape.consumers


DRAINS: Final = {
    drain.name: drain
    for drain in (
        *(Drain(name, shape, 100, 200_000) for name, shape in SHAPES.items()),
        Drain("1KiB", SHAPES["1p1c"], 1024, 60_000),
    )
}
RATES: Final = (1_000, 200)
_PACED: Final = "paced"
_FIRST: Final = "first"
_JAVA: Final = "java"
_MEMORY: Final = "memory"
CASES: Final = (*DRAINS, "latency", _FIRST, _JAVA, _MEMORY)
_JAVA_RECORDS: Final = 150_000
_CONSUMERS: Final = max(shape.consumers for shape in SHAPES.values())


class Server:
    """A server that runs: `address` is where it serves Kafka's clients. `pid` 0: its costs are not measured."""

    def __init__(self, name: str, address: str, pid: int) -> None:
        self.name = name
        self.address = address
        self.pids = process_tree(pid) if pid else {}

    def cpu_s(self) -> float:
        """Return the CPU time of all its processes so far, in seconds."""
        return sum(process_seconds(pid) for pid in self.pids.values())

    def memory_mib(self) -> float | None:
        """Return the memory that all its processes have now; None if another user's, or if its pid was not given."""
        try:
            return round(sum(memory_mib(pid) for pid in self.pids.values()), 1) if self.pids else None
        except PermissionError:
            return None

    def per_record(self, began_s: float, records: int) -> float | None:
        """Return the CPU time of a record since it was `began_s`, in µs; None if it is not measured."""
        return round((self.cpu_s() - began_s) / records * 1e6, 3) if self.pids else None


@dataclass(slots=True)
class Side:
    """A server with a client: its processes, and what they do in a turn."""

    name: str
    server: Server
    crew: Crew
    folder: Path
    admin: Process
    native: bool = False
    joins: int = 0
    java: kafka_broker.Installation | None = None
    producer: Process = field(init=False)
    consumers: list[Process] = field(init=False)
    board: Board = field(init=False)

    def topic(self, case: str) -> str:
        """Return the name of a case's topic and group."""
        return f"{self.name}-{case}"

    def start(self, stack: ExitStack, address: str, python: str) -> None:
        """Start the clients. Raises BenchmarkError."""
        path = self.folder / f"board-{self.name}"
        self.board = stack.enter_context(Board(path, _CONSUMERS))
        topics = [self.topic(name) for name in (*DRAINS, _PACED, _FIRST)]
        client = "native" if self.native else "kafka"
        common = {"address": address, "topics": topics}
        self.producer = start_client(stack, self.crew, python, f"{client}-producer", common)
        self.consumers = []
        for number in range(_CONSUMERS):
            groups = [self.topic(name) for name, drain in DRAINS.items() if number < drain.shape.consumers]
            groups += [self.topic(_PACED)] if number == 0 else []
            more = {"number": number, "consumers": _CONSUMERS, "board": str(path), "paced": [self.topic(_PACED)]}
            words = common | more | {"topics": groups}
            self.consumers.append(start_client(stack, self.crew, python, f"{client}-consumer", words))

    def pids(self) -> dict[str, int]:
        """Return the clients' processes by name."""
        consumers = {f"{self.name} consumer {number}": each.pid for number, each in enumerate(self.consumers)}
        return {f"{self.name} producer": self.producer.pid, **consumers}

    def drain(self, case: Drain) -> dict[str, Any]:
        """Produce, then consume. Returns rates and the server's CPU per record. Raises BenchmarkError."""
        topic = self.topic(case.name)
        began_s, gate = self.server.cpu_s(), time.monotonic()
        partitions = case.shape.partitions
        said = self._produce(f"fill {topic} {partitions} {case.produced} {case.value_bytes}", case.produced)
        produce_us = self.server.per_record(began_s, case.produced)
        before = self._acknowledged()
        takers = self.consumers[: case.shape.consumers]
        began_s, opened = self.server.cpu_s(), time.monotonic()
        for consumer in takers:
            consumer.send(f"take {topic}")
        await_acknowledged(self.crew, self.board, before + case.records, _TURN_S)
        slots = self.board.slots()
        records = sum(found for *_, found in slots) - before
        consume_us = self.server.per_record(began_s, max(1, records))
        wall_s = max(at for at, *_ in slots) - opened
        memory = None if self.native else self.server.memory_mib()
        self._hold(topic, takers, before, case.produced)
        self._empty(topic)
        return {
            "case": case.name, "records": records, "value_bytes": case.value_bytes,
            "produce_per_s": round(case.produced / (said["at"] - gate)), "consume_per_s": round(records / wall_s),
            "produce_us": produce_us, "consume_us": consume_us, "memory_mib": memory,
        }  # fmt: skip

    def pace(self, case: latency.Case) -> dict[str, Any]:
        """Produce at a steady rate while a consumer polls. Raises BenchmarkError."""
        topic, taker = self.topic(_PACED), self.consumers[:1]
        before, began_s = self._acknowledged(), self.server.cpu_s()
        taker[0].send(f"note {topic}")
        said = self._produce(f"pace {topic} {case.count} {case.per_second}", case.count)
        seen = self._hold(topic, taker, before, case.count)
        used_us = self.server.per_record(began_s, case.count)
        self._empty(topic)
        found = latency.counted(case, said["produced"], seen)
        return {"case": f"{case.per_second:g}/s", "server_us": used_us, **found}

    def join(self) -> dict[str, Any]:
        """Return how long a new group waits for its first record, in seconds. Raises BenchmarkError."""
        group = self.topic(f"{_FIRST}-{self.joins}")
        self.joins += 1
        self.consumers[0].send(f"join {self.topic(_FIRST)} {group}")
        return {"case": _FIRST, "first_s": round(self.consumers[0].expect("first_s", _TURN_S)["first_s"], 4)}

    def fill_first(self) -> None:
        """Produce the records that new groups begin with. Raises BenchmarkError."""
        self._produce(f"fill {self.topic(_FIRST)} 1 {_FIRST_RECORDS} 100", _FIRST_RECORDS)

    def run_java(self, records: int) -> dict[str, Any]:
        """Run Java's tools. Raises BenchmarkError."""
        assert self.java is not None
        topic, address = self.topic(_JAVA), self.server.address
        words = kafka_broker.producer_words(address, topic, records, 100)
        began_s = self.server.cpu_s()
        produced = kafka_broker.produced_per_s(self.java.run(*words, limit_s=_TURN_S))
        produce_us = self.server.per_record(began_s, records + records // 2)
        words = kafka_broker.consumer_words(address, topic, topic, records)
        began_s = self.server.cpu_s()
        consumed = kafka_broker.consumed_per_s(self.java.run(*words, limit_s=_TURN_S))
        consume_us = self.server.per_record(began_s, records)
        self._empty(topic)
        return {
            "case": _JAVA, "records": records, "value_bytes": 100,
            "produce_per_s": round(produced), "consume_per_s": round(consumed),
            "produce_us": produce_us, "consume_us": consume_us,
        }  # fmt: skip

    def remember(self) -> dict[str, Any]:
        """Return the memory that the server has when its topics are empty."""
        return {"case": _MEMORY, "memory_mib": self.server.memory_mib()}

    def _acknowledged(self) -> int:
        return sum(found for *_, found in self.board.slots())

    def _produce(self, words: str, records: int) -> dict[str, Any]:
        self.producer.send(words)
        said = self.producer.expect("produced", _TURN_S)
        if said["produced"] != records:
            raise BenchmarkError(f"{self.name} confirmed {said['produced']} produced records; expected {records}")
        return said

    def _hold(self, topic: str, takers: Sequence[Process], before: int, records: int) -> list[list[tuple[int, float]]]:
        """Wait until everything is acknowledged, and once; then stop polling. Returns what each consumer noted."""
        await_acknowledged(self.crew, self.board, before + records, _TURN_S)
        for consumer in takers:
            consumer.send("hold")
        seen = [consumer.expect("held", _TURN_S)["seen"] for consumer in takers]
        if (found := self._acknowledged() - before) != records:
            self.admin.send(f"count {topic}")
            stored = self.admin.expect("stored", _TURN_S)["stored"]
            raise BenchmarkError(
                f"{topic}: {found} acknowledgements were confirmed by the end of the turn, and {stored} records are "
                f"stored; expected {records} of both, each record once"
            )
        return [[(number, us) for number, us in each] for each in seen]

    def _empty(self, topic: str) -> None:
        self.admin.send(f"empty {topic}")
        self.admin.expect("emptied", _TURN_S)


def start_client(stack: ExitStack, crew: Crew, python: str, role: str, settings: dict[str, Any]) -> Process:
    """Start one process of `two_servers_clients`."""
    process = peers.client(python, "two_servers_clients", role, json.dumps(settings), crew)
    stack.callback(process.stop)
    return process


def main(arguments: list[str] | None = None) -> int:
    """Run all rounds. Returns the exit status: 1 when the run could not be counted."""
    options = _parser().parse_args(arguments)
    if lack := peers.missing(options.python, ["confluent_kafka"]):
        print(f"B15 needs {lack}; see --python", file=sys.stderr, flush=True)
        return 1
    session = Session()
    status = 0
    try:
        with sides(options) as found:
            for number in range(options.rounds + 1):
                _round(found, number, options, session)
    except BenchmarkError as error:
        print(error, file=sys.stderr, flush=True)
        status = 1
    if session.runs:
        print("\n" + table(session.runs), file=sys.stderr, flush=True)
    return status


@contextmanager
def sides(options: argparse.Namespace) -> Iterator[list[Side]]:
    """Start both servers and the clients of each side; inside the block they are members of their groups.

    Ends all processes afterwards. Raises BenchmarkError.
    """
    installation = kafka_broker.Installation(options.kafka) if options.kafka else None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b15-", ignore_cleanup_errors=True)))
        node = ShareGroup((sys.executable, "-m", "share_node", "up", "--kafka-port", "0"))
        stack.callback(node.close)
        crew = node.crew
        with dismissed(crew):
            native_address = node.start_node(Task(SHAPES["1p1c"], 0, fsync=options.fsync, benchmark="B15"), folder)
            ours = Server(LISTENER, node.kafka[0], next(iter(node.servers.values())))
            found: list[Side] = []
            for server in filter(None, (_broker(stack, folder, crew, options, installation), ours)):
                wanted = [server.name, *([NATIVE] if server is ours and not options.without_native else [])]
                topics, groups = _names(wanted, options.rounds)
                made = {"address": server.address, "topics": topics, "groups": groups}
                admin = start_client(stack, crew, options.python, "kafka-admin", made)
                admin.expect("made", _READY_S)
                found += [Side(name, server, crew, folder, admin, name == NATIVE, java=installation) for name in wanted]
            for side in found:
                python = sys.executable if side.native else options.python
                side.start(stack, native_address if side.native else side.server.address, python)
            _settle(found, crew)
            yield found


def _broker(
    stack: ExitStack,
    folder: Path,
    crew: Crew,
    options: argparse.Namespace,
    installation: kafka_broker.Installation | None,
) -> Server | None:
    """Return the broker that runs already, or one that is started now, or None when there is neither."""
    if options.broker:
        return Server(BROKER, options.broker, options.broker_pid)
    if installation is None:
        return None
    process, address = installation.start(folder / "broker", crew)
    stack.callback(process.stop, terminate=True)
    return Server(BROKER, address, process.pid)


def _names(wanted: Sequence[str], rounds: int) -> tuple[dict[str, int], list[str]]:
    """Return the topics of these sides with their numbers of partitions, and their groups."""
    topics: dict[str, int] = {}
    groups: list[str] = []
    for name in wanted:
        topics |= {f"{name}-{drain.name}": drain.shape.partitions for drain in DRAINS.values()}
        topics |= dict.fromkeys((f"{name}-{each}" for each in (_PACED, _FIRST, _JAVA)), 1)
        groups += [f"{name}-{_FIRST}-{number}" for number in range(rounds + 1)]
    return topics, [*topics, *groups]


def _settle(found: Sequence[Side], crew: Crew) -> None:
    """Wait until all consumers have joined all their groups, with their final assignment."""
    for side in found:
        for process in (side.producer, *side.consumers):
            process.expect("ready", _READY_S)
    consumers = [consumer for side in found for consumer in side.consumers]
    for consumer in consumers:
        consumer.send("settle")
    crew.rest(_SETTLE_S)
    for consumer in consumers:
        consumer.send("hold")
    for consumer in consumers:
        consumer.expect("held", _READY_S)
    for side in found:
        side.fill_first()


def _round(found: Sequence[Side], number: int, options: argparse.Namespace, session: Session) -> None:
    """Let each side do each case. Round 0 warms: it does not count."""
    first = number % len(found)
    pids = {name: pid for side in found for name, pid in (side.server.pids | side.pids()).items()}
    for case in options.cases:
        for side in (*found[first:], *found[:first]):
            for turn in _turns(side, case, options):
                meter = Meter(pids)
                run = turn()
                foreign = meter.read().foreign_share
                if number:
                    more = {"round": number, "foreign_cpu": round(foreign, 3), "flagged": foreign > FOREIGN_CPU_MAX}
                    session.add({"benchmark": "B15", "system": side.name, **run, **more})


def _turns(side: Side, case: str, options: argparse.Namespace) -> list[Callable[[], dict[str, Any]]]:
    """Return what a side does in a case. Our own client has no part in what concerns the server alone."""
    if case in DRAINS:
        drain = DRAINS[case]
        return [partial(side.drain, replace(drain, records=max(BATCH, int(drain.records * options.scale))))]
    if case == "latency":
        seconds = max(0.1, options.seconds * options.scale)
        return [partial(side.pace, latency.Case(rate, 1, seconds, PACED_BYTES)) for rate in RATES]
    if side.native:
        return []
    if case == _FIRST:
        return [side.join]
    if case == _JAVA:
        return [partial(side.run_java, max(BATCH, int(_JAVA_RECORDS * options.scale)))] if side.java else []
    return [side.remember]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.two_servers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kafka", type=Path, metavar="DIR", help="Kafka's jars: starts a broker; adds Java's tools")
    parser.add_argument("--broker", default="", metavar="HOST:PORT", help="a broker that runs, used instead")
    parser.add_argument("--broker-pid", type=int, default=0, help="its process, if its CPU and memory are to count")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3, help="besides the one that warms")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each rate of the latency")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the work, for a smoke run")
    parser.add_argument("--fsync", choices=("everysec", "always"), default="everysec", help="of our node's store")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with confluent_kafka")
    parser.add_argument("--without-native", action="store_true", help="leave out our own client")
    return parser


if __name__ == "__main__":
    sys.exit(main())
