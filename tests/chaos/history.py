"""What happened, as the outside saw it: one JSON line per event, appended by every process of an experiment.

Times are milliseconds of the boot clock, which all processes of one machine share. A line is written *after* the fact
it tells, so a process killed in between leaves the fact untold; the checkers treat an untold confirmation as unknown.
When a record was asked for and when it came is taken at the wire, so that a record which waited in a client's buffer is
not mistaken for one that was acquired late.
Histories are kept and can be judged again: `python -m tests.chaos.checker HISTORY…`.
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
    """Milliseconds of the boot clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@dataclass(frozen=True, slots=True)
class Produced:
    """A produce that was answered NONE: `value` lies at (topic, partition, offset)."""

    topic: str
    partition: int
    offset: int
    value: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record handed to a worker: asked for by a fetch sent at `fetched_ms`, answered at `at_ms`."""

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
    """The answer to an acknowledgement: `error` is "" for NONE, Kafka's name of the error, or UNKNOWN."""

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
    """An observation of a share-partition from outside: its start offset and lag, asked for at `asked_ms`."""

    topic: str
    partition: int
    start_offset: int
    lag: int
    at_ms: int
    asked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that failed for good, after the client's own retries: a produce, a poll, a close."""

    worker: str
    call: str
    error: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker that has ended; `status` is its exit status, −1 when it had to be killed because it stayed.

    `killed`: it was killed on purpose. The fault tells when that was asked for, this when it was seen dead: on a busy
    machine it worked on in between.
    """

    worker: str
    status: int
    at_ms: int
    killed: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Something done to the system."""

    name: str
    target: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A leader let a share-partition's object go, as its log tells an operator; `reason` is a `DropReason`."""

    node: str
    topic: str
    partition: int
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Unseen:
    """A record that came to a worker's client, asked for by a fetch sent at `fetched_ms`, and was never handed out."""

    worker: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    fetched_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A worker's client began a share session anew, closed one, or saw its stream end: the leader may give back what
    the worker held."""

    worker: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Configured:
    """What holds for a group, as the cluster says it: how long a lock lasts, and how often a record is delivered."""

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
    """Appends events to one file of its own; a batch is one write, so a kill leaves whole lines but for the last."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, events: Iterable[Event]) -> None:
        """Append events; after `close` they are left out."""
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
    """Every whole event of some files, in order of time."""
    events = [event for path in paths for event in _read(path)]
    return sorted(events, key=lambda event: event.at_ms)


def parse_line(line: str) -> Event | None:
    """The event of one line; None for a line that a SIGKILL cut short."""
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
