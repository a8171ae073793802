"""The load of an experiment: a topic with a producer, consumers and an observer, on any deployment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kip932.errors import KafkaError
from kip932.ids import RESOURCE_GROUP
from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic
from tests.chaos.deployment import Deployment, WorkerProcess
from tests.chaos.history import Acknowledged, Configured, Delivered, Ended, Event, HistoryWriter, now_ms, parse_line
from tests.chaos.observer import OBSERVE_S, Observer
from tests.chaos.workers import TimedTransport, WorkerOptions

BEGIN_WAIT_S: Final = 40.0
DRAIN_WAIT_S: Final = 40.0
LEAVE_WAIT_S: Final = 15.0
KILLED: Final = -1
LOCK_MS: Final = "share.record.lock.duration.ms"
DELIVERY_LIMIT: Final = "share.delivery.count.limit"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The amount of load. `rate`: records per second, 0 for no producer; `lock_ms`: the group's lock duration, 0 for
    the cluster's default; the others as in WorkerOptions."""

    partitions: int = 6
    consumers: int = 3
    rate: int = 120
    records: int = 0
    accept_only: bool = False
    observe_s: float = OBSERVE_S
    lock_ms: int = 0
    hold_ms: int = 0
    value_bytes: int = 0
    security: Mapping[str, str] = field(default_factory=dict)


class Tail:
    """Reads what was appended to the histories in a folder since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[Event]:
        """Yield new events from complete lines; an incomplete line is left for the next call."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as history:
                history.seek(self._read.get(path, 0))
                whole = history.read().rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + (len(whole) + 1 if whole else 0)
            for line in whole.decode().splitlines():
                if (event := parse_line(line)) is not None:
                    yield event


def record_settings(admin: Admin, group: str, folder: Path) -> None:
    """Write the group's settings into the history. Raises AssertionError if the cluster does not return them."""
    resource = ConfigResource(RESOURCE_GROUP, group)
    found = admin.describe_configs([resource])[resource]
    assert not isinstance(found, KafkaError), f"settings of {group}: {found}"
    lock_ms, limit = (int(str(found[name].value)) for name in (LOCK_MS, DELIVERY_LIMIT))
    history = HistoryWriter(folder / "settings.jsonl")
    history.write([Configured(group, lock_ms, limit, now_ms())])
    history.close()


def wait_for(happened: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait until something has happened. Raises AssertionError with `what` if it does not."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"no {what} within {timeout_s:.0f} s"
        time.sleep(0.05)


class Load:
    """Starts workers, watches them and ends them; every history is in `folder`."""

    def __init__(self, deployment: Deployment, folder: Path, seed: int, topic: str, options: LoadOptions) -> None:
        self.topic = topic
        self.group = f"{topic}-crew"
        self.options = options
        self.workers: dict[str, WorkerProcess] = {}
        self._deployment = deployment
        self._folder = folder
        self._seed = seed
        self._ended = HistoryWriter(folder / "ended.jsonl")
        self._observer: Observer | None = None

    def begin(self) -> None:
        """Create the topic and start all workers; wait until every consumer has received records and got an
        acknowledgement confirmed."""
        self.create_topic(self.topic, self.options.partitions)
        if self.options.lock_ms:
            self._set_locks()
        with self._admin() as admin:
            record_settings(admin, self.group, self._folder)
        names = self.consumers()
        for name in names:
            self.start_worker(name, "consumer")
        if self.options.rate:
            self.start_worker("producer", "producer")
        self._observer = Observer(
            self._deployment.outside,
            self._folder / "observer.jsonl",
            self.group,
            self.options.partitions,
            reach=self._deployment.reach,
            every_s=self.options.observe_s,
            security=self.options.security,
        )
        if self.options.rate:
            self.wait_working(names)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic. Raises AssertionError if that fails."""
        with self._admin() as admin:
            errors = admin.create_topics([NewTopic(name, partitions)])
        assert not any(errors.values()), f"topic {name} was not made: {errors}"

    def _set_locks(self) -> None:
        group = ConfigResource(RESOURCE_GROUP, self.group)
        with self._admin() as admin:
            change = AlterConfig(LOCK_MS, str(self.options.lock_ms))
            errors = admin.incremental_alter_configs({group: [change]})
        assert not any(errors.values()), f"lock duration of {self.group} was not set: {errors}"

    def _admin(self) -> Admin:
        return Admin(
            {"bootstrap.servers": self._deployment.outside, "default.api.timeout.ms": 20_000, **self.options.security},
            transport=TimedTransport(self._deployment.reach, security=self.options.security),
        )

    def consumers(self) -> list[str]:
        """Return the consumers that it started with."""
        return [f"consumer{number}" for number in range(self.options.consumers)]

    def wait_working(self, names: list[str]) -> None:
        """Wait until each of these has received a record fetched from now on, and had an acknowledgement confirmed."""
        tail, since_ms = Tail(self._folder), now_ms()
        missing = {(name, kind) for name in names for kind in (Delivered, Acknowledged)}

        def all_worked() -> bool:
            for event in tail.new():
                if (isinstance(event, Delivered) and event.fetched_ms >= since_ms) or (
                    isinstance(event, Acknowledged) and not event.error and event.sent_ms >= since_ms
                ):
                    missing.discard((event.worker, type(event)))
            return not missing

        wait_for(all_worked, f"work of {', '.join(names)}", BEGIN_WAIT_S)

    def start_worker(self, name: str, kind: str) -> WorkerProcess:
        """Start one more worker; a name is used only once."""
        options = self.options
        of_worker = WorkerOptions(
            self._deployment.bootstrap, self.topic, self.group, options.partitions, name, self._seed, options.rate,
            str(self._folder / f"{name}.jsonl"), options.records, options.accept_only, options.hold_ms,
            options.value_bytes, options.security,
        )  # fmt: skip
        self.workers[name] = self._deployment.worker(name, kind, of_worker)
        return self.workers[name]

    def dismiss(self, *names: str) -> None:
        """Ask workers to leave cleanly; kill those that do not, which the history records."""
        leaving = [self.workers.pop(name) for name in names]
        for worker in leaving:
            worker.leave()
        for worker in leaving:
            status = worker.wait(LEAVE_WAIT_S)
            if status is None:
                worker.kill()
                worker.wait(LEAVE_WAIT_S)
            self._ended.write([Ended(worker.name, KILLED if status is None else status, now_ms())])

    def kill_worker(self, name: str) -> None:
        """SIGKILL a worker. The history records when it was seen dead, and that it need not end cleanly."""
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait(LEAVE_WAIT_S)
        self._ended.write([Ended(worker.name, KILLED, now_ms(), killed=True)])

    def drained(self, timeout_s: float) -> bool:
        """Return whether within the time every partition had lag 0 at the same observation."""
        assert self._observer is not None
        return self._observer.wait_drained(timeout_s)

    def finish(self) -> None:
        """Stop the producer, drain, stop the rest. The checkers find in the history what failed."""
        assert self._observer is not None
        self.dismiss(*(name for name in self.workers if name.startswith("producer")))
        self.drained(DRAIN_WAIT_S)
        self._observer.close()
        self._observer = None
        self.dismiss(*self.workers)

    def close(self) -> None:
        """End all workers that are still running, on every path."""
        if self._observer is not None:
            self._observer.close()
            self._observer = None
        for worker in self.workers.values():
            worker.kill()
            worker.wait(LEAVE_WAIT_S)
        self.workers.clear()
        self._ended.close()
