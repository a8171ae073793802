"""Shows where the time between sending a job and its start goes: `python -m benchmarks.timeline`.

    python -m benchmarks.timeline                            # 500 jobs at 100 a second
    python -m benchmarks.timeline --jobs 2000 --per-second 1000

Runs one node, one producer and one `sharegroups worker` as processes. Some of their methods are wrapped from outside
before they run, so this costs nothing in normal use. Each wrapper notes when a record reaches it, on the machine's
monotonic clock, which all processes share. Noting adds about a tenth to the total. Prints the hops on standard error,
and one JSON object on standard output.

Records pass each hop in order, so counting identifies them: a record has reached a hop once it and all those
sent before it have passed. For a hop that does not say how many pass, the nearest call between two hops that do is
used.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import inspect
import json
import os
import runpy
import statistics
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.processes import BenchmarkError, Crew, Process
from benchmarks.valkey_group import store_server
from benchmarks.worker_apps.marks import MARK

_WAIT_S: Final = 60.0
_WARM: Final = 20


class Hop(NamedTuple):
    """A step on the way: a method that is entered or, with `after`, has returned. `kind`: the type of its message.

    `records`: computes how many records pass with a call, from its last argument or, with `after`, from its result;
    None if the hop does not say. For such a hop, the last call before the next hop is used if `late`, otherwise
    the first call after the previous hop.
    """

    name: str
    module: str
    method: str
    after: bool = False
    kind: str = ""
    records: Callable[[Any], int] | None = None
    late: bool = False


def _one(_: object) -> int:
    return 1


def _produced(message: Any) -> int:
    """Return the number of records of a ProduceStreamRequest."""
    parts = [part for topic in message.request.topic_data for part in topic.partition_data]
    return sum(batch.record_count for part in parts for batch in part.batches)


def _committed(draft: Any) -> int:
    """Return the number of records of a topic log's flush."""
    return sum(batch.record_count for batch in draft.batches)


def _acquired(message: Any) -> int:
    """Return the number of records of a ShareStreamResponse."""
    parts = [part for topic in message.fetch.responses for part in topic.partitions]
    return sum(taken.last_offset + 1 - taken.first_offset for part in parts for taken in part.acquired_records)


_REQUEST: Final = "ProduceStreamRequest"
_ANSWER: Final = "ShareStreamResponse"
#: The hops, in the order in which a record reaches them.
WAY: Final = (
    Hop("produce() is called", "sharegroups.producer", "Producer.produce", records=_one),
    Hop("the producer's loop runs", "sharegroups.producing.sender", "Sender.pump"),
    Hop("the request is written", "kip932.rpc.grpc_transport", "_GrpcStream.write", False, _REQUEST, _produced),
    Hop("the leader has read it", "shard_runtime.rpc.adapter", "GrpcServerStream.read", True, _REQUEST, _produced),
    Hop("it is checked", "partition_leader.topic_log.writer", "GroupCommit.submit"),
    Hop("the flush is sent to the store", "shard_runtime.record_log.redis.resp", "RespConnection.run", late=True),
    Hop("the store has answered", "shard_runtime.record_log.redis.resp", "RespConnection.run", True, late=True),
    Hop("memory has it too", "partition_leader.topic_log.topic_log", "TopicLog._committed", records=_committed),
    Hop("a waiting fetch is woken", "partition_leader.share_partition.partitions", "SharePartitions._drain", late=True),
    Hop("its answer is written", "shard_runtime.rpc.adapter", "GrpcServerStream.write", False, _ANSWER, _acquired),
    Hop("the worker has read it", "kip932.rpc.grpc_transport", "_GrpcStream.read", True, _ANSWER, _acquired),
    Hop("poll() has returned", "sharegroups.worker.runner", "Runner._take", records=len),
    Hop("the handler begins", "benchmarks.worker_apps.share_jobs", "mark", records=_one),
)


# The code that runs in the processes.


class Note(NamedTuple):
    """A call: its time, ns; the number of its hop; how many records passed, 0 if unknown; the id of its object."""

    at: int
    number: int
    records: int = 0
    whose: int = 0


class Notes:
    """Collects the notes of one process, which are written when it ends."""

    def __init__(self) -> None:
        self._found: list[Note] = []

    def wrap(self, number: int, hop: Hop) -> None:
        """Wrap the hop's method. Raises AttributeError if it no longer exists."""
        owner: Any = importlib.import_module(hop.module)
        *path, name = hop.method.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, name, self._wrapped(getattr(owner, name), number, hop))

    def _wrapped(self, method: Callable[..., Any], number: int, hop: Hop) -> Callable[..., Any]:
        found, clock, kind, records = self._found.append, time.monotonic_ns, hop.kind, hop.records

        def note(whose: object, value: object) -> None:
            if not kind or type(value).__name__ == kind:
                found(Note(clock(), number, records(value) if records is not None else 0, id(whose)))

        @wraps(method)
        def entered(*given: Any, **named: Any) -> Any:
            note(given[0] if given else None, given[-1] if given else None)
            return method(*given, **named)

        @wraps(method)
        async def awaited(*given: Any, **named: Any) -> Any:
            result = await method(*given, **named)
            note(given[0], result)
            return result

        @wraps(method)
        def returned(*given: Any, **named: Any) -> Any:
            result = method(*given, **named)
            note(given[0], result)
            return result

        if not hop.after:
            return entered
        return awaited if inspect.iscoroutinefunction(inspect.unwrap(method)) else returned

    def write(self, path: Path) -> None:
        """Write the notes, one per line."""
        path.write_text("".join(f"{at} {number} {records} {whose}\n" for at, number, records, whose in self._found))


def _run(role: str, folder: str, words: Sequence[str]) -> None:
    """Run a node, a worker or a sender in this process, and note its hops."""
    if role == "node":
        importlib.import_module("share_node.grpc_library")  # before anything imports gRPC
    notes = Notes()
    parts = {"node": range(3, 10), "worker": range(10, 13), "sender": range(3)}
    for number in parts[role]:
        notes.wrap(number, WAY[number])
    atexit.register(notes.write, Path(folder) / f"{role}.notes")
    sys.argv = [role, *words]
    if role == "node":
        runpy.run_module("share_node", run_name="__main__", alter_sys=True)
    elif role == "worker":
        importlib.import_module("sharegroups.cli").run()
    else:
        importlib.import_module("benchmarks.workers")._send(int(words[0]), float(words[1]), words[2])


# The code of the parent.


def measure(folder: Path, jobs: int, per_second: float) -> list[Note]:
    """Send jobs through a node and a worker, after `_WARM` others. Returns all notes in order.

    Raises BenchmarkError.
    """
    me, crew = [sys.executable, "-m", "benchmarks.timeline", "--run"], Crew()
    with ExitStack() as stack:
        server, port = store_server("valkey", "everysec", folder, crew)
        stack.callback(server.stop, terminate=True)
        words = ["up", "--store", f"redis://127.0.0.1:{port}/0", "--init", "--data", str(folder / "node")]
        words += ["--port", "0", "--output", "json", "--log-level", "warning"]
        node = Process("node", [*me, "node", str(folder), *words], crew, is_server=True)
        stack.callback(node.stop, terminate=True)
        bootstrap = str(node.expect("bootstrap", _WAIT_S)["bootstrap"])
        admin = importlib.import_module("sharegroups").Admin(bootstrap_servers=bootstrap)
        with admin:
            assert admin.create_topics(["noop"]) == {"noop": None}
        marks = folder / "marks"
        os.environ |= {"BENCH_MARKS": str(marks), "BENCH_BOOTSTRAP": bootstrap}
        words = ["worker", "benchmarks.worker_apps.share_jobs:noop", "--quiet"]
        worker = Process("worker", [*me, "worker", str(folder), *words], crew)
        stack.callback(worker.stop, terminate=True)
        for count, rate in ((_WARM, 20.0), (jobs, per_second)):
            before = marks.stat().st_size if marks.exists() else 0
            sender = Process("sender", [*me, "sender", str(folder), str(count), str(rate), bootstrap], crew)
            _until(marks, before + count * MARK.size, crew)
            sender.stop()
    found = [line.split() for path in folder.glob("*.notes") for line in path.read_text().splitlines()]
    return sorted(Note(*map(int, line)) for line in found)


def _until(marks: Path, size: int, crew: Crew) -> None:
    until = time.monotonic() + _WAIT_S * 5
    while not marks.exists() or marks.stat().st_size < size:
        crew.poll()
        if time.monotonic() > until:
            raise BenchmarkError("the worker did not do all jobs")
        time.sleep(0.01)


def journeys(notes: Sequence[Note]) -> list[list[int]]:
    """Return the times (ns) at which each record of the last sender reached each hop.

    The other processes' notes start with the first sender, so only their last records are used.
    """
    by_hop: list[list[Note]] = [[] for _ in WAY]
    for note in notes:
        by_hop[note.number].append(note)
    sent = len(by_hop[0])
    passed: dict[int, list[int]] = {}
    for number, hop in enumerate(WAY):
        if hop.records is not None:
            each = [note.at for note in by_hop[number] for _ in range(note.records)]
            passed[number] = each[-sent:]
    whole = min(map(len, passed.values()))
    return [_journey(record, passed, by_hop) for record in range(whole)]


def _journey(record: int, passed: Mapping[int, Sequence[int]], by_hop: Sequence[Sequence[Note]]) -> list[int]:
    way = [passed[number][record] if number in passed else 0 for number in range(len(WAY))]
    whose = None
    for number in reversed(range(len(WAY))):
        if number not in passed and WAY[number].late:
            found = _last(by_hop[number], way[number + 1], whose)
            whose = found.whose if found is not None and WAY[number].after else None
            way[number] = way[number + 1] if found is None else found.at
    for number in range(1, len(WAY)):
        if number not in passed and not WAY[number].late:
            way[number] = min(_first(by_hop[number], way[number - 1]), way[number + 1])
        way[number] = max(way[number], way[number - 1])
    return way


def _last(notes: Sequence[Note], until: int, whose: int | None) -> Note | None:
    """Return the last note up to `until`, or None; with `whose`, only of that connection."""
    for index in range(bisect_right(notes, until, key=_at) - 1, -1, -1):
        if whose is None or notes[index].whose == whose:
            return notes[index]
    return None


def _first(notes: Sequence[Note], since: int) -> int:
    index = bisect_left(notes, since, key=_at)
    return notes[index].at if index < len(notes) else since


def _at(note: Note) -> int:
    return note.at


def table(found: Sequence[Sequence[int]]) -> str:
    """Return the median and the 90th percentile of each hop, µs."""
    lines = [f"{'until':34}{'median':>9}{'p90':>9}  µs"]
    for number, hop in enumerate(WAY[1:], 1):
        lines.append(_line(hop.name, [way[number] - way[number - 1] for way in found]))
    lines.append(_line(f"the whole, {len(found)} jobs", [way[-1] - way[0] for way in found]))
    return "\n".join(lines)


def _line(name: str, ns: Sequence[int]) -> str:
    ordered = sorted(ns)
    return f"{name:34}{statistics.median(ordered) / 1e3:>9.0f}{ordered[len(ordered) * 9 // 10] / 1e3:>9.0f}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print. Returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--run"]:
        _run(given[1], given[2], given[3:])
        return 0
    options = _parser().parse_args(given)
    with tempfile.TemporaryDirectory(prefix="timeline-", ignore_cleanup_errors=True) as made:
        found = journeys(measure(Path(made), options.jobs, options.per_second))[_WARM:]
    if not found:
        raise BenchmarkError("no job passed all hops")
    hops: Mapping[str, float] = {
        hop.name: statistics.median([way[number] - way[number - 1] for way in found]) / 1e3
        for number, hop in enumerate(WAY)
        if number
    }
    print(json.dumps({"benchmark": "timeline", "jobs": len(found), "per_second": options.per_second, "us": hops}))
    print(table(found), file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timeline", description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--per-second", type=float, default=100.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
