"""Workers that end under load, run by tests or by hand: SIGTERM and SIGKILL, both assignors, and fewer workers than
partitions, as many, and more.

A producer sends jobs at a steady rate to all partitions. One worker gets a signal; the load continues, and then all
jobs are awaited. The results: for how long that worker's partitions stood still, how many jobs were never done, how
many began twice, and how many of these had ended before the signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kip932.ids import TopicPartition
from sharegroups import Admin, AlterConfig, ConfigResource, KafkaError, NewTopic, Producer
from sharegroups.admin_values import MemberDescription
from tests.support.node import BOUND_S, Cluster, unique

ROOT = Path(__file__).parents[3]
TOOL = ("-c", "from sharegroups.cli import run; run()", "worker", "tests.integration.worker.yard:worker")
PROGRAM = ("-m", "tests.integration.worker.yard")

Place = tuple[int, int]


class Said(NamedTuple):
    """A line that a worker wrote: the event, its record and the time."""

    worker: int
    what: str
    partition: int
    offset: int
    at_s: float

    @property
    def place(self) -> Place:
        """Return the record's partition and offset."""
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Cell:
    """One run. `rate`: jobs per second; `before_s`, `after_s`: how long the load runs before and after the signal.
    `is_program`: workers are started with `python` instead of `sharegroups worker`."""

    signal: signal.Signals
    assignor: str
    workers: int
    partitions: int = 4
    rate: int = 100
    before_s: float = 2.0
    after_s: float = 12.0
    heartbeat_ms: int = 5_000
    is_program: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """The results. `had`: the partitions of the worker that got the signal. `stood_s`: the longest time after the
    signal in which no job of one of them began. `lost`: jobs that never ended. `twice`: jobs that began more than once;
    `twice_ended`: those that this worker had ended, but whose outcome was not stored yet; `twice_elsewhere`: those that
    this worker had not begun."""

    status: int
    had: tuple[int, ...]
    jobs: int
    stood_s: float
    lost: int
    twice: int
    twice_ended: int
    twice_elsewhere: int


class Yard:
    """A topic, a group, and its workers as processes, each of which writes its events to a file."""

    def __init__(self, cluster: Cluster, folder: Path, cell: Cell) -> None:
        self._cluster, self._folder, self.cell = cluster, folder, cell
        self.topic = self.group = unique("yard")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.admin = Admin(bootstrap_servers=cluster.bootstrap)
        created = self.admin.create_topics([NewTopic(self.topic, cell.partitions)])
        group = ConfigResource.group(self.group)
        configs = {
            "sharegroups.assignor": cell.assignor,
            "share.heartbeat.interval.ms": str(cell.heartbeat_ms),
            "share.auto.offset.reset": "earliest",
        }
        changes = [AlterConfig(name, value) for name, value in configs.items()]
        altered = self.admin.incremental_alter_configs({group: changes})
        assert {*created.values(), *altered.values()} == {None}, (created, altered)

    def start(self) -> None:
        """Start the workers; wait until each has partitions and each partition has a worker."""
        for number in range(self.cell.workers):
            with self._file(number).open("wb") as out, self._file(number, "log").open("wb") as errors:
                self.workers.append(
                    subprocess.Popen(
                        [sys.executable, *(PROGRAM if self.cell.is_program else TOOL)],
                        stdout=out,
                        stderr=errors,
                        cwd=ROOT,
                        env=os.environ
                        | {
                            "YARD_BOOTSTRAP": self._cluster.bootstrap,
                            "YARD_GROUP": self.group,
                            "YARD_TOPIC": self.topic,
                            "YARD_NAME": str(number),
                        },
                    )
                )
        self.until(self._is_shared, "each worker has partitions and each partition a worker")

    def close(self) -> None:
        """End the remaining workers."""
        for process in self.workers:
            if process.poll() is None:
                process.terminate()
        for process in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(BOUND_S)
            process.kill()
            process.wait()
        self.admin.close()

    def had_by(self, number: int) -> tuple[int, ...]:
        """Return the partitions of a worker."""
        found = [each for each in self._members() if each.client_id == str(number)]
        return tuple(found[0].assignment.get(self.topic, ())) if found else ()

    def said(self) -> list[Said]:
        """Return all lines of the workers, ordered by time."""
        lines = [
            Said(number, *json.loads(line))
            for number in range(len(self.workers))
            for line in self._file(number).read_bytes().splitlines()
        ]
        return sorted(lines, key=lambda line: line.at_s)

    def is_drained(self) -> bool:
        """Return whether the group has finished every record."""
        listed = self.admin.list_share_group_offsets({self.group: None})[self.group]
        partitions = [TopicPartition(self.topic, number) for number in range(self.cell.partitions)]
        if isinstance(listed, KafkaError) or set(listed) != set(partitions):
            return False
        return all(entry is not None and entry.lag == 0 for entry in listed.values())

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done` holds; after a bounded time raises AssertionError with `what` and the logs."""
        deadline = time.monotonic() + BOUND_S
        while not done():
            if time.monotonic() > deadline:
                logs = [self._file(number, "log").read_text(errors="replace") for number in range(len(self.workers))]
                raise AssertionError(f"never: {what}\n" + "\n".join(logs))
            time.sleep(0.05)

    def _members(self) -> tuple[MemberDescription, ...]:
        found = self.admin.describe_share_groups([self.group])[self.group]
        return () if isinstance(found, KafkaError) else found.members

    def _is_shared(self) -> bool:
        held = [set(each.assignment.get(self.topic, ())) for each in self._members()]
        return len(held) == self.cell.workers and all(held) and len(set().union(*held)) == self.cell.partitions

    def _file(self, number: int, kind: str = "out") -> Path:
        return self._folder / f"{self.topic}-{number}.{kind}"


class Load:
    """A producer in a thread: jobs at a steady rate, to each partition in turn, until the block ends."""

    def __init__(self, cluster: Cluster, topic: str, cell: Cell) -> None:
        self._bootstrap, self._topic, self._cell = cluster.bootstrap, topic, cell
        self.sent: set[Place] = set()
        self.errors: list[KafkaError] = []
        self._over = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Send jobs during this block; at its end all of them are confirmed."""
        thread = threading.Thread(target=self._run, name="load")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(BOUND_S)
        assert not thread.is_alive()
        assert not self.errors, self.errors

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._over.wait(0.01):
                while sent < (time.monotonic() - began) * self._cell.rate:
                    producer.produce(
                        self._topic, b"job", partition=sent % self._cell.partitions, on_delivery=self._confirmed
                    )
                    sent += 1
                producer.poll(0)

    def _confirmed(self, error: KafkaError | None, report: object) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.sent.add((report.partition(), report.offset()))  # type: ignore[attr-defined]


def play(cluster: Cluster, folder: Path, cell: Cell) -> Seen:
    """Run one cell on a cluster, with its own topic and group."""
    yard = Yard(cluster, folder, cell)
    load = Load(cluster, yard.topic, cell)
    try:
        yard.start()
        with load.running():
            yard.until(lambda: any(line.worker == 0 for line in yard.said()), "the first worker has a job")
            time.sleep(cell.before_s)
            had = yard.had_by(0)
            signalled_s = time.monotonic()
            yard.workers[0].send_signal(cell.signal)
            status = yard.workers[0].wait(BOUND_S)
            time.sleep(max(0.0, signalled_s + cell.after_s - time.monotonic()))
            loaded_s = time.monotonic()
        yard.until(yard.is_drained, "every record is finished")
        said = yard.said()
    finally:
        yard.close()
    stood_s = max(standing_s(said, partition, signalled_s, loaded_s) for partition in had)
    return judged(said, load.sent, had, status, stood_s)


def standing_s(said: list[Said], partition: int, since_s: float, until_s: float) -> float:
    """Return the longest time in s, between the signal and the end of the load, in which no job of the partition
    began."""
    begun = [line.at_s for line in said if line.what == "begun" and line.partition == partition]
    times = [since_s, *(at for at in sorted(begun) if since_s < at < until_s), until_s]
    return max(later - sooner for sooner, later in pairwise(times))


def judged(said: list[Said], sent: set[Place], had: tuple[int, ...], status: int, stood_s: float) -> Seen:
    """Count the jobs that were lost and those that ran twice; worker 0 got the signal."""
    begun = Counter(line.place for line in said if line.what == "begun")
    ended = {line.place for line in said if line.what == "ended"}
    mine = {
        what: {line.place for line in said if line.worker == 0 and line.what == what} for what in ("begun", "ended")
    }
    twice = {place for place, times in begun.items() if times > 1}
    return Seen(
        status,
        had,
        len(sent),
        round(stood_s, 2),
        len(sent - ended),
        len(twice),
        len(twice & mine["ended"]),
        len(twice - mine["begun"]),
    )
