"""B1, drain, and B2, the same with larger values: produce everything, open a gate, measure until all is acknowledged.

The server, the producer and every consumer are separate processes. Before the gate opens, the consumers are connected
and are members of their group with a settled assignment, but they do not read. A record counts when the reply that
confirms its acknowledgement has arrived. The systems under test are in `share_group` and `valkey_group`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.goals import FOREIGN_CPU_MAX
from benchmarks.machine import Meter, Usage
from benchmarks.processes import BenchmarkError, Board, Crew, Process

BATCH: Final = 500
SPARE_BATCHES: Final = 8  # for each consumer: two of the largest fetches (CL-136)
_READY_S: Final = 60.0
_PRODUCED_S: Final = 300.0
_POLL_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of partitions and consumers."""

    partitions: int
    consumers: int

    @property
    def name(self) -> str:
        """The name in performance.md, such as 1p4c."""
        return f"{self.partitions}p{self.consumers}c"


SHAPES: Final = {shape.name: shape for shape in (Shape(1, 1), Shape(1, 4), Shape(4, 4))}


@dataclass(frozen=True, slots=True)
class Task:
    """The parameters of one run of `benchmark`. Values have `value_bytes` bytes; `fsync` is everysec or always.

    `records` is how many each group must have consumed when the clock stops; the consumers belong to `groups` in turn.
    """

    shape: Shape
    records: int
    value_bytes: int = 100
    fsync: str = "everysec"
    limit_s: float = 300.0
    benchmark: str = "B1"
    fetch_records: int = BATCH
    batch_records: int = BATCH
    groups: int = 1

    @property
    def acknowledged(self) -> int:
        """The total number of acknowledgements: each group gets every record."""
        return self.produced * self.groups

    @property
    def produced(self) -> int:
        """The number of records produced, including spare ones that keep the pipeline full until the clock stops.

        Without these, fetches that find no records would carry the last acknowledgements, and so wait for
        fetch.max.wait.ms.
        """
        return self.records + SPARE_BATCHES * self.batch_records * self.shape.consumers


class System(Protocol):
    """One system under test, restarted for each run. After `start`, call `close`, which ends all its processes."""

    name: str
    crew: Crew  # every process of the run

    def start(self, task: Task, folder: Path, board: Path) -> None:
        """Start the server, create the topic and start all workers."""
        ...

    @property
    def servers(self) -> dict[str, int]:
        """The server's processes by name."""
        ...

    @property
    def producer(self) -> Process:
        """Sends `ready`, receives `go`, sends `produced` (how many records) and `at` (when the last was confirmed)."""
        ...

    @property
    def consumers(self) -> Sequence[Process]:
        """Send `ready`, receive `hold`, send `held`, receive `go`, post to the board until the end, send `done`."""
        ...

    def settle(self) -> None:
        """Wait until the consumers, which are all ready, have their final assignment."""
        ...

    def settings(self) -> dict[str, Any]:
        """The settings that differ from those of the other systems, for the run's JSON."""
        ...

    def close(self) -> None:
        """End every process."""
        ...


@contextmanager
def prepared(system: System, task: Task) -> Iterator[tuple[Board, Phase]]:
    """Start the system, produce all records, and have the consumers wait for the gate inside the block.

    Ends all processes afterwards. Raises BenchmarkError.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)))
        board = stack.enter_context(Board(folder / "board", task.shape.consumers))
        stack.callback(system.close)
        stack.enter_context(dismissed(system.crew))
        system.start(task, folder, folder / "board")
        for process in (system.producer, *system.consumers):
            process.expect("ready", _READY_S)
        system.settle()
        for consumer in system.consumers:
            consumer.send("hold")
        for consumer in system.consumers:
            consumer.expect("held", _READY_S)
        yield board, _produce(system, task)


@contextmanager
def dismissed(crew: Crew) -> Iterator[None]:
    """Kill the workers when the block fails with BenchmarkError."""
    try:
        yield
    except BenchmarkError:
        crew.dismiss()
        raise


def run(system: System, task: Task) -> dict[str, Any]:
    """Do one run. Returns its JSON object. Raises BenchmarkError when it cannot be counted."""
    with prepared(system, task) as (board, produced):
        consumed = _consume(system, task, board)
        return result(system.name, task, produced, consumed) | {"settings": system.settings()}


@dataclass(frozen=True, slots=True)
class Phase:
    """Producing or consuming: from the gate to the last confirmation that is counted, and the CPU that the processes
    used."""

    records: int
    wall_s: float
    usage: Usage
    cycles: int = 0

    @property
    def per_s(self) -> float:
        """Records per second."""
        return self.records / self.wall_s

    @property
    def cpu_s(self) -> float:
        """CPU time of all processes together."""
        return sum(self.usage.cpu_s.values())


def _produce(system: System, task: Task) -> Phase:
    meter = Meter({**system.servers, "producer": system.producer.pid})
    gate = time.monotonic()
    system.producer.send("go")
    said = system.producer.expect("produced", _PRODUCED_S)
    usage = meter.read()
    if said["produced"] != task.produced:
        raise BenchmarkError(f"{system.name} confirmed {said['produced']} produced records; expected {task.produced}")
    return Phase(task.produced, said["at"] - gate, usage)


def _consume(system: System, task: Task, board: Board) -> Phase:
    pids = {f"consumer-{number}": consumer.pid for number, consumer in enumerate(system.consumers)}
    meter = Meter({**system.servers, "producer": system.producer.pid, **pids})
    gate = time.monotonic()
    for consumer in system.consumers:
        consumer.send("go")
    await_acknowledged(system.crew, board, task.records * task.groups, task.limit_s)
    usage = meter.read()
    slots = board.slots()
    # The clock has stopped. Now check that every record is acknowledged, and only once.
    await_acknowledged(system.crew, board, task.acknowledged, _READY_S)
    board.end()
    for consumer in system.consumers:
        consumer.expect("done", _READY_S)
    acknowledged = sum(records for _, _, records in board.slots())
    if acknowledged != task.acknowledged:
        raise BenchmarkError(
            f"{system.name} {task.shape.name}: {acknowledged} acknowledgements were confirmed in the end; "
            f"expected {task.acknowledged}, each record once"
        )
    wall_s = max(at for at, _, _ in slots) - gate
    return Phase(sum(records for *_, records in slots), wall_s, usage, sum(cycles for _, cycles, _ in slots))


def await_acknowledged(crew: Crew, board: Board, records: int, limit_s: float) -> None:
    """Wait until `records` records are acknowledged, but at most `limit_s`; the caller must check the board.

    Raises BenchmarkError when a process of the crew dies.
    """
    until = time.monotonic() + limit_s
    while sum(found for *_, found in board.slots()) < records and time.monotonic() < until:
        crew.poll()
        time.sleep(_POLL_S)


def result(system: str, task: Task, produced: Phase, consumed: Phase) -> dict[str, Any]:
    """Return the run as one JSON object. A cycle is one poll that returned records."""
    foreign = max(produced.usage.foreign_share, consumed.usage.foreign_share)
    produce_us = produced.cpu_s * 1e6 / produced.records
    consume_us = consumed.cpu_s * 1e6 / consumed.records
    return {
        "benchmark": task.benchmark,
        "system": system,
        "shape": task.shape.name,
        "fsync": task.fsync,
        "records": consumed.records,
        "value_bytes": task.value_bytes,
        "produce_s": round(produced.wall_s, 4),
        "consume_s": round(consumed.wall_s, 4),
        "produce_per_s": round(produced.per_s),
        "consume_per_s": round(consumed.per_s),
        "both_per_s": round(1 / (1 / produced.per_s + 1 / consumed.per_s)),
        "cycles": consumed.cycles,
        "cycles_per_s": round(consumed.cycles / consumed.wall_s, 1),
        "cpu_produce_s": produced.usage.cpu_s,
        "cpu_consume_s": consumed.usage.cpu_s,
        "cpu_us_per_record": round(consume_us, 3),
        "cpu_produce_us_per_record": round(produce_us, 3),
        "cpu_both_us_per_record": round(produce_us + consume_us, 3),
        "foreign_cpu": round(foreign, 3),
        "flagged": foreign > FOREIGN_CPU_MAX,
    }
