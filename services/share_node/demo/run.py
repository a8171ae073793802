"""Runs the demo on a cluster: produce, let workers work, kill one, wait until every record is accounted for.

The workers are processes of their own. Records that they reject go as dead letters into a topic of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple

from kip932.log_lines import FORM_VARIABLE
from share_node.demo.jobs import Job, Tally, direct_count, has_more_records
from share_node.demo.ledger import Ledger, Place, Report
from share_node.demo.orders import Orders
from sharegroups import (
    Admin,
    AlterConfig,
    ConfigResource,
    DeliveryReport,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
    UnknownTopicOrPartitionError,
)

#: Fewer than there are workers: members of a share group share a partition, so others continue with a killed one's
#: records.
PARTITIONS: Final = 2
#: The first worker with this many reports is killed in the middle of its jobs: it still holds more records.
KILL_AFTER: Final = 13
STALLED_AFTER_S: Final = 120.0
#: Log lines of a worker that the demo shows, the first of each kind.
_LOGGED: Final = (", failed: ", ", was rejected: ")
_DISMISS_WAIT_S: Final = 30.0
#: How many of each worker's log lines are kept, for the error message if it ends during its start.
_LOG_LINES_KEPT: Final = 20


class DemoError(Exception):
    """The demo could not run to its end; the message says why."""


class Progress(NamedTuple):
    """The demo's progress."""

    produced: int
    finished: int
    sent_all: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The demo's result."""

    ledger: Ledger
    direct: Tally
    direct_accepted: int
    direct_rejected: int
    seconds: float
    killed_worker: int
    discrepancies: list[str]
    #: A worker's log line about a failed job, and one about a rejected one, if there were any.
    logged: list[str] = field(default_factory=list)
    #: Why the group has no topic for dead letters; "" when it has one.
    no_letters: str = ""


class WorkerProcess:
    """One worker process, started, killed and dismissed by the demo; each result line that it prints becomes a Report,
    each line of its log is passed on."""

    def __init__(
        self,
        orders: Orders,
        command: list[str],
        on_report: Callable[[Report], None],
        on_log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.number = int(orders.number)
        self._topic = orders.topic
        self._on_report = on_report
        self._on_log = on_log
        self._last: deque[str] = deque(maxlen=_LOG_LINES_KEPT)
        # A session of its own: so Ctrl-C at the terminal only reaches the demo, which dismisses its workers. When the
        # demo is killed, their standard input closes.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | orders.environment() | {FORM_VARIABLE: "console"},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        pipes: Mapping[Callable[[str], None], IO[str]] = {
            self._take_result: self.process.stdout, self._take_log_line: self.process.stderr
        }  # fmt: skip
        self._listeners = [
            threading.Thread(target=_read_lines, args=(pipe, hear), daemon=True) for hear, pipe in pipes.items()
        ]
        for listener in self._listeners:
            listener.start()

    def _take_result(self, line: str) -> None:
        try:
            fields = json.loads(line)
        except ValueError:
            return  # the line a SIGKILL cut short
        place = Place(self._topic, fields["partition"], fields["offset"])
        self._on_report(Report(place, self.number, fields["count"], fields["outcome"], Tally(fields["tally"])))

    def _take_log_line(self, line: str) -> None:
        self._last.append(line.rstrip())
        self._on_log(line.rstrip())

    @property
    def last_words(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._last)

    def kill(self) -> None:
        """Send SIGKILL: the worker does not leave its group."""
        self.process.kill()

    def dismiss(self) -> None:
        """Ask the worker to leave in good order; kill it after a bounded wait."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(_DISMISS_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for listener in self._listeners:
            listener.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def _read_lines(pipe: IO[str], hear: Callable[[str], None]) -> None:
    for line in pipe:
        hear(line)


def _start_worker(orders: Orders, on_report: Callable[[Report], None], on_log: Callable[[str], None]) -> WorkerProcess:
    """Start a worker with these orders."""
    return WorkerProcess(orders, [sys.executable, "-m", "share_node.demo.worker"], on_report, on_log)


class Demo:
    """One run, on a topic and a group of its own."""

    def __init__(
        self, bootstrap: str, job: Job, workers: int, input_path: str | None, command_config: Path | None = None
    ) -> None:
        #: True when a worker will be killed: only if one is sure to report enough records, however the workers share
        #: them.
        self.kills = workers > 1 and has_more_records(job, (KILL_AFTER - 1) * workers)
        self._job = job
        self._workers_wanted = workers
        name = f"demo-{secrets.token_hex(4)}"
        self.topic, self.group, self.letters = name, name, _letters_topic(name)
        config = str(command_config.absolute()) if command_config is not None else ""
        self._orders = Orders(bootstrap, name, name, "0", input_path or "", config)
        #: The settings of its clients.
        self.client = self._orders.client
        self._ledger = Ledger()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._failures: list[str] = []
        self._sent_all = False
        self._victim: WorkerProcess | None = None
        self._workers: list[WorkerProcess] = []
        self._logged: dict[str, str] = {}
        self._no_letters: KafkaError | None = None

    def run(self, on_progress: Callable[[Progress], None]) -> Outcome:
        """Run to the end. Raises DemoError when a produce fails, or after STALLED_AFTER_S seconds without progress."""
        with Admin(self.client) as admin:
            for error in admin.create_topics([NewTopic(self.topic, PARTITIONS)]).values():
                if error is not None:
                    raise DemoError(f"topic {self.topic} could not be created: {error}")
            _start_at_the_first_record(admin, self.group)
            self._no_letters = _set_up_letters(admin, self.group, self.letters)
            self._workers = [
                _start_worker(self._orders._replace(number=str(n)), self._take_report, self._take_log)
                for n in range(1, self._workers_wanted + 1)
            ]
            try:
                self._wait_for_members(admin)
                started = time.monotonic()
                threading.Thread(target=self._produce, daemon=True).start()
                self._wait(on_progress)
                self._wait_for_no_lag(admin)
                seconds = time.monotonic() - started
                if self._no_letters is None:
                    self._ledger.letters = _count_letters(admin, self.letters)
            finally:
                for worker in self._workers:
                    worker.dismiss()
        direct, accepted, rejected = direct_count(self._job)
        found = self._ledger.discrepancies(direct, accepted, rejected)
        killed = self._victim.number if self._victim is not None else 0
        no_letters = "" if self._no_letters is None else str(self._no_letters)
        logged = [self._logged[sort] for sort in _LOGGED if sort in self._logged]
        return Outcome(self._ledger, direct, accepted, rejected, seconds, killed, found, logged, no_letters)

    def clear_away(self, wait_ms: int = 60_000) -> str:
        """Delete the topics, waiting for at most `wait_ms`. Returns what is left in the cluster, as text for a person.

        The group stays. A topic that does not exist was deleted by an earlier attempt.
        """
        with Admin({**self.client, "default.api.timeout.ms": wait_ms}) as admin:
            try:
                errors = admin.delete_topics([self.topic, self.letters])
            except KafkaError as failure:
                errors = {self.topic: failure, self.letters: failure}
        gone = {None, UnknownTopicOrPartitionError}
        stay = {topic: error for topic, error in errors.items() if (error and type(error)) not in gone}
        lines = [f"topic {topic} stays: {error}" for topic, error in stay.items()]
        lines += [f"topic {topic} is deleted" for topic in errors if topic not in stay]
        return "; ".join([*lines, f"group {self.group} stays"])

    def _produce(self) -> None:
        try:
            with Producer(self.client) as producer:
                for key, value in self._job.records():
                    producer.produce(self.topic, value=value, key=key.encode(), on_delivery=self._take_delivery)
                    producer.poll(0)
                producer.flush()
        except Exception as error:
            self._fail(f"producing stopped: {error}")
        with self._changed:
            self._sent_all = True
            self._changed.notify_all()

    def _take_delivery(self, error: KafkaError | None, report: DeliveryReport) -> None:
        if error is not None:
            self._fail(f"a record could not be produced: {error}")
            return
        with self._changed:
            self._ledger.produced.add(Place(self.topic, report.partition(), report.offset()))
            self._changed.notify_all()

    def _take_report(self, report: Report) -> None:
        with self._changed:
            self._ledger.add(report)
            busy = self._ledger.by_worker[report.worker] >= KILL_AFTER
            if busy and self._victim is None and self.kills:
                self._victim = self._workers[report.worker - 1]
                self._victim.kill()
            self._changed.notify_all()

    def _take_log(self, line: str) -> None:
        for sort in _LOGGED:
            if sort in line:
                with self._changed:
                    self._logged.setdefault(sort, line)

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._failures.append(reason)
            self._changed.notify_all()

    def _wait_for_members(self, admin: Admin) -> None:
        """Wait until every worker has joined, so that the demo does not depend on which process starts first."""
        deadline = time.monotonic() + STALLED_AFTER_S
        while time.monotonic() < deadline:
            group = admin.describe_share_groups([self.group])[self.group]
            if not isinstance(group, KafkaError) and len(group.members) == self._workers_wanted:
                return
            for worker in self._workers:
                if worker.process.poll() is not None:
                    status = worker.process.returncode
                    raise DemoError(
                        f"worker {worker.number} ended with status {status} at its start:\n{worker.last_words}"
                    )
            time.sleep(0.05)
        raise DemoError(f"the workers did not join group {self.group} within {STALLED_AFTER_S:.0f} s")

    def _wait(self, on_progress: Callable[[Progress], None]) -> None:
        """Wait until every produced record has a final result."""
        last, moved = -1, time.monotonic()
        while True:
            with self._changed:
                self._changed.wait(0.2)
                finished = len(self._ledger.final)
                progress = Progress(len(self._ledger.produced), finished, self._sent_all)
                done = self._sent_all and not self._ledger.unfinished
                failures = list(self._failures)
            if failures:
                raise DemoError(failures[0])
            on_progress(progress)
            if done:
                return
            if finished != last:
                last, moved = finished, time.monotonic()
            elif time.monotonic() - moved > STALLED_AFTER_S:
                raise DemoError(
                    f"nothing was finished for {STALLED_AFTER_S:.0f} s: {progress.produced} produced, "
                    f"{finished} finished"
                )

    def _wait_for_no_lag(self, admin: Admin) -> None:
        """Wait until the group's lag is 0: then the last acknowledgements are in the store."""
        deadline = time.monotonic() + STALLED_AFTER_S
        while time.monotonic() < deadline:
            offsets = admin.list_share_group_offsets({self.group: None})[self.group]
            if isinstance(offsets, KafkaError):
                raise DemoError(f"the offsets of group {self.group} cannot be read: {offsets}")
            if offsets and all(entry is not None and entry.lag == 0 for entry in offsets.values()):
                return
            time.sleep(0.1)
        raise DemoError(f"group {self.group} still has lag after {STALLED_AFTER_S:.0f} s although every result is in")


def _letters_topic(topic: str) -> str:
    """Return the name of the dead-letter topic that belongs to a topic of the demo."""
    return f"dlq.{topic}"


def _start_at_the_first_record(admin: Admin, group: str) -> None:
    """Have the group begin with the earliest record, whatever the cluster's default is: else the records that are sent
    before its first fetch would never come. Raises DemoError when the cluster refuses."""
    resource = ConfigResource.group(group)
    error = admin.incremental_alter_configs({resource: [AlterConfig("share.auto.offset.reset", "earliest")]})[resource]
    if error is not None:
        raise DemoError(f"group {group} cannot be made to begin with the earliest record: {error}")


def _set_up_letters(admin: Admin, group: str, topic: str) -> KafkaError | None:
    """Give the group a dead-letter topic. Returns the error when the cluster refuses; in that case the group has
    none."""
    made = NewTopic(topic, 1, config={"errors.deadletterqueue.group.enable": "true"})
    error = admin.create_topics([made])[topic]
    if error is not None:
        return error
    changes = [AlterConfig("errors.deadletterqueue.topic.name", topic)]
    resource = ConfigResource.group(group)
    error = admin.incremental_alter_configs({resource: changes})[resource]
    if error is not None:
        admin.delete_topics([topic])
    return error


def _count_letters(admin: Admin, topic: str) -> int:
    """Return how many dead letters were written to the topic. Raises KafkaError."""
    here = TopicPartition(topic, 0)
    found = admin.list_offsets([here])[here]
    if isinstance(found, KafkaError):
        raise found
    return found
