"""One experiment: a cluster, a producer and four consumers run, faults happen, all records are consumed, and the
history is judged.

The history stays in the experiment's folder, and a failure gives its path; `python -m tests.chaos.checker
FOLDER/*.jsonl` judges it again.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sharegroups import Admin, NewTopic
from tests.chaos.checker import judge
from tests.chaos.history import Acknowledged, Ended, Event, Fault, HistoryWriter, Produced, now_ms, read_history
from tests.chaos.load import record_settings
from tests.chaos.observer import Observer
from tests.chaos.processes import ClusterProcesses
from tests.chaos.recovery_table import Recovery
from tests.chaos.workers import WorkerOptions

TOPIC: Final = "work"
GROUP: Final = "crew"
PARTITIONS: Final = 4
CONSUMERS: Final = 4
RATE: Final = 150
DRAIN_S: Final = 20.0

#: Short locks and sessions, so that the effects of a fault are over within an experiment.
SETTINGS: Final = {
    "group.share.auto.offset.reset": "earliest",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.session.timeout.ms": "5000",
    "share.coordinator.state.topic.num.partitions": "8",
    "drain.grace.ms": "2000",
}


class Experiment:
    """A running cluster with its workers. A context manager: cause faults inside, then call `finish`."""

    def __init__(self, folder: Path, seed: int, second: str = "", up_options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.seed = seed
        self.rng = random.Random(seed)
        self.passed = False
        self.cluster = ClusterProcesses(folder, SETTINGS, up_options)
        self._second = second
        self._faults = HistoryWriter(folder / "faults.jsonl")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._observer: Observer | None = None

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
            if self._second:
                self.cluster.start_second(self._second)
            with Admin({"bootstrap.servers": self.cluster.bootstrap}) as admin:
                errors = admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
                record_settings(admin, GROUP, self.folder)
            assert not any(errors.values()), errors
            names = ["producer", *(f"consumer{number}" for number in range(CONSUMERS))]
            self._workers = [self._work(name) for name in names]
            self._observer = Observer(self.cluster.bootstrap, self.folder / "observer.jsonl", GROUP, PARTITIONS)
            self._until(lambda: _has(self.folder, Acknowledged), "first acknowledged record", 15.0)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    # ---- faults

    def pass_time(self, least_s: float, most_s: float) -> None:
        """Wait for a random time."""
        time.sleep(self.rng.uniform(least_s, most_s))

    def kill(self, target: str) -> None:
        """SIGKILL one process."""
        self._record("SIGKILL", target)
        self.cluster.kill(target)

    def kill_everything(self) -> None:
        """SIGKILL everything but the workers at the same time, and start it again on the same data."""
        self._record("SIGKILL", "everything")
        self.cluster.kill_everything()
        self.cluster.start()
        self._record("ready again", "everything")

    def restart_everything(self) -> None:
        """Stop everything but the workers cleanly, and start it again on the same data."""
        self._record("SIGTERM", "everything")
        self.cluster.stop()
        self.cluster.start()
        self._record("ready again", "everything")

    def kill_worker(self, number: int) -> None:
        """SIGKILL a consumer and start another in its place."""
        worker = self._workers[1 + number]
        self._record("SIGKILL", f"consumer{number}")
        worker.kill()
        worker.wait()
        self._faults.write([Ended(f"consumer{number}", worker.returncode, now_ms(), killed=True)])
        if worker.stdin is not None:
            worker.stdin.close()
        self._workers[1 + number] = self._work(f"consumer{number + CONSUMERS}")

    def pause(self, target: str, least_s: float, most_s: float) -> None:
        """SIGSTOP one process for a while."""
        self._record("SIGSTOP", target)
        go_on = self.cluster.pause(target)
        self.pass_time(least_s, most_s)
        go_on()
        self._record("SIGCONT", target)

    def _record(self, name: str, target: str) -> None:
        self._faults.write([Fault(name, target, now_ms())])

    # ---- the end

    def finish(self) -> list[Recovery]:
        """Stop the producer, drain, stop the rest, judge. Raises AssertionError with the violations and the folder."""
        producer, *consumers = self._workers
        assert self._observer is not None
        _dismiss([producer], 12.0)
        drained = self._observer.wait_drained(DRAIN_S)
        self._observer.close()
        self._observer = None
        _dismiss(consumers, 10.0)
        statuses = [worker.returncode for worker in self._workers]
        self.cluster.stop()
        events = self.history()
        where = f"seed {self.seed}; histories and logs: {self.folder}"
        assert not any(statuses), f"workers ended with {statuses}; {where}"
        assert drained, f"INV-19: not drained within {DRAIN_S:.0f} s; {where}\n" + "\n".join(judge(events)[:20])
        violations = judge(events)
        assert not violations, "\n".join([*violations[:20], f"{len(violations)} violations; {where}"])
        assert any(isinstance(event, Produced) for event in events), where
        return recoveries(events)

    def history(self) -> list[Event]:
        """Return all events recorded so far."""
        return read_history(sorted(self.folder.glob("*.jsonl")))

    def noise(self) -> list[str]:
        """Return the lines of the services' logs that no fault explains."""
        return [
            line
            for log in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.err")])
            for line in log.read_text(errors="replace").splitlines()
            if "Traceback" in line or "never retrieved" in line or '"exception"' in line or "never awaited" in line
        ]

    def _end(self) -> None:
        if self._observer is not None:
            self._observer.close()
            self._observer = None
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
            if worker.stdin is not None:
                worker.stdin.close()
        self.cluster.stop()
        self._faults.close()

    def _work(self, name: str) -> subprocess.Popen[bytes]:
        history = str(self.folder / f"{name}.jsonl")
        options = WorkerOptions(self.cluster.bootstrap, TOPIC, GROUP, PARTITIONS, name, self.seed, RATE, history)
        kind = name.rstrip("0123456789")
        with (self.folder / f"{name}.err").open("a") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.workers", kind, options.as_json()],
                stdin=subprocess.PIPE,
                stderr=errors,
            )

    def _until(self, happened: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not happened():
            assert time.monotonic() < deadline, f"no {what} within {timeout_s:.0f} s; see {self.folder}"
            time.sleep(0.1)


def recoveries(events: Sequence[Event]) -> list[Recovery]:
    """Return how long it took after each fault until acknowledgements were confirmed again."""
    confirmed = [event for event in events if isinstance(event, Acknowledged) and not event.error]
    found = []
    for fault in (event for event in events if isinstance(event, Fault)):
        waits: dict[int, int] = {}
        for ack in confirmed:
            if ack.sent_ms >= fault.at_ms:
                waits.setdefault(ack.partition, ack.at_ms - fault.at_ms)
        if len(waits) == PARTITIONS:
            found.append(Recovery(fault.name, fault.target, min(waits.values()), max(waits.values())))
    return found


def _has(folder: Path, kind: type[Event]) -> bool:
    return any(isinstance(event, kind) for event in read_history(sorted(folder.glob("consumer*.jsonl"))))


def _dismiss(workers: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
    """Ask workers to leave cleanly; kill those that do not, which shows in their exit status."""
    for worker in workers:
        if worker.stdin is not None:
            with contextlib.suppress(OSError):
                worker.stdin.close()
    deadline = time.monotonic() + timeout_s
    for worker in workers:
        try:
            worker.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
