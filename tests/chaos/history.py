"""Events that an outside observer saw: one JSON line each, appended by every process of an experiment.

Times are milliseconds of the boot clock, which all processes on a machine share. A line is written *after* the event,
so a process killed in between leaves the event unrecorded; the checkers treat an unrecorded confirmation as unknown.
The times of a record's fetch and arrival are taken in the transport, so that a record that waited in a client's buffer
is not mistaken for one that was acquired late. Histories are kept and can be judged again: `python -m
tests.chaos.checker HISTORY…`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args


def now_ms() -> int:
    """Return the milliseconds of the boot clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@dataclass(frozen=True, slots=True)
class Produced:
    """A produce that got NONE: `value` is stored at (topic, partition, offset)."""

    topic: str
    partition: int
    offset: int
    value: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record handed to a worker: its fetch was sent at `fetched_ms`, and the response arrived at `at_ms`."""

    worker: str
    topic: str
    partition: int
    offset: int
    value: str
    delivery_count: int
    fetched_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The result of an acknowledgement: `error` is "" for NONE, Kafka's name of the error, or UNKNOWN."""

    worker: str
    topic: str
    partition: int
    offset: int
    type: str
    delivery_count: int
    error: str
    sent_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Observed:
    """An observation of a share-partition from outside: its start offset and lag, requested at `asked_ms`."""

    topic: str
    partition: int
    start_offset: int
    lag: int
    at_ms: int
    asked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that failed for good, after the client's own retries: a produce, a poll or a close."""

    worker: str
    call: str
    error: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker that has ended; `status` is its exit status, −1 if it had to be killed because it did not leave.

    `killed`: it was killed on purpose. The fault has the time of the kill, this event the time when the worker was seen
    dead: on a busy machine it may have continued to work in between.
    """

    worker: str
    status: int
    at_ms: int
    killed: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault caused in the system."""

    name: str
    target: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A leader dropped a share-partition's object, as its log reports to an operator; `reason` is a `DropReason`."""

    node: str
    topic: str
    partition: int
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Unseen:
    """A record that reached a worker's client, fetched by a request sent at `fetched_ms`, but was never handed to the
    worker."""

    worker: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    fetched_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A worker's client opened or closed a share session, or saw its stream end: the leader may release the worker's
    records."""

    worker: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Configured:
    """A group's settings as the cluster reports them: the lock duration and the delivery limit."""

    group: str
    lock_ms: int
    delivery_limit: int
    at_ms: int


Event = (
    Produced | Delivered | Acknowledged | Observed | Failed | Ended | Fault | Dropped | Unseen | SessionEnded
    | Configured
)  # fmt: skip
_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


class HistoryWriter:
    """Appends events to its own file; each batch is one write, so a kill can truncate only the last line."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, events: Iterable[Event]) -> None:
        """Append events; do nothing after `close`."""
        if self._fd < 0:
            return
        lines = [json.dumps({"event": type(event).__name__, **asdict(event)}) for event in events]
        if lines:
            os.write(self._fd, ("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def read_history(paths: Iterable[Path]) -> list[Event]:
    """Return every complete event in some files, in chronological order."""
    events = [event for path in paths for event in _read(path)]
    return sorted(events, key=lambda event: event.at_ms)


def parse_line(line: str) -> Event | None:
    """Return the event in one line; None for a line that a SIGKILL truncated."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    event: Event = _TYPES[fields.pop("event")](**fields)
    return event


def _read(path: Path) -> Iterator[Event]:
    for line in path.read_text().splitlines():
        if (event := parse_line(line)) is not None:
            yield event
