"""Where the time from sending a job to its start goes: `python -m benchmarks.timeline`.

    python -m benchmarks.timeline                            # 500 jobs at 100 a second
    python -m benchmarks.timeline --jobs 2000 --per-second 50

One node, one producer and one `sharegroups worker` as processes, whose methods are wrapped from outside before they
run, so that without this it costs nothing. Each wrapper notes the moment at which a record's way reaches it, on the
machine's monotonic clock, which is one for all processes. Noting adds about a tenth to the whole. Prints the hops on
standard error, and one JSON object on standard output. A job that overlaps with the next is left out, so
the rate must leave pauses.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.processes import BenchmarkError, Crew, Process
from benchmarks.valkey_group import store_server
from benchmarks.worker_apps.marks import MARK

_ROLES: Final = ("node", "worker", "sender")
_WAIT_S: Final = 60.0
_WARM: Final = 20


class Hop(NamedTuple):
    """A place on the way: the method that is entered there, or has returned where `after`; `kind`: of its message."""

    name: str
    module: str
    method: str
    after: bool = False
    kind: str = ""


#: In the order of the way.
WAY: Final = (
    Hop("produce() is called", "sharegroups.producer", "Producer.produce"),
    Hop("the producer's loop runs", "sharegroups.aio.sender", "Sender.pump"),
    Hop("the request is written", "kip932.rpc.grpc_transport", "_GrpcStream.write", kind="ProduceStreamRequest"),
    Hop("the leader has read it", "shard_runtime.rpc.adapter", "GrpcServerStream.read", True, "ProduceStreamRequest"),
    Hop("it is checked", "partition_leader.topic_log.writer", "GroupCommit.submit"),
    Hop("the flush is sent to the store", "shard_runtime.record_log.redis.resp", "RespConnection.run"),
    Hop("the store has answered", "shard_runtime.record_log.redis.resp", "RespConnection.run", True),
    Hop("memory has it too", "partition_leader.topic_log.topic_log", "TopicLog._committed", True),
    Hop("the parked fetch is woken", "partition_leader.share.partitions", "SharePartitions._drain"),
    Hop("its answer is written", "shard_runtime.rpc.adapter", "GrpcServerStream.write", kind="ShareStreamResponse"),
    Hop("the worker has read it", "kip932.rpc.grpc_transport", "_GrpcStream.read", True, "ShareStreamResponse"),
    Hop("poll() has returned", "sharegroups.worker.runner", "Runner._take"),
    Hop("the handler begins", "benchmarks.worker_apps.share_jobs", "mark"),
)


# What runs in the processes.


class Notes:
    """What one process notes; written when it ends."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []

    def wrap(self, number: int, hop: Hop) -> None:
        """Wrap the hop's method. Raises AttributeError when it is there no more."""
        owner: Any = importlib.import_module(hop.module)
        *path, name = hop.method.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, name, self._wrapped(getattr(owner, name), number, hop))

    def _wrapped(self, method: Callable[..., Any], number: int, hop: Hop) -> Callable[..., Any]:
        note, clock, kind = self._found.append, time.monotonic_ns, hop.kind

        @wraps(method)
        def entered(*given: Any, **named: Any) -> Any:
            if not kind or type(given[1]).__name__ == kind:
                note((clock(), number))
            return method(*given, **named)

        @wraps(method)
        async def awaited(*given: Any, **named: Any) -> Any:
            result = await method(*given, **named)
            if not kind or type(result).__name__ == kind:
                note((clock(), number))
            return result

        @wraps(method)
        def returned(*given: Any, **named: Any) -> Any:
            result = method(*given, **named)
            note((clock(), number))
            return result

        if not hop.after:
            return entered
        return awaited if inspect.iscoroutinefunction(inspect.unwrap(method)) else returned

    def write(self, path: Path) -> None:
        """Write them, a line each."""
        path.write_text("".join(f"{at} {number}\n" for at, number in self._found))


def _run(role: str, folder: str, words: Sequence[str]) -> None:
    """Run a node, a worker or a sender in this process, with its part of the way noted."""
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


# What the parent does.


def measure(folder: Path, jobs: int, per_second: float) -> list[tuple[int, int]]:
    """Send jobs through a node and a worker. Returns all notes as (ns, number of the hop), in order.

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
    return sorted((int(at), int(number)) for at, number in found)


def _until(marks: Path, size: int, crew: Crew) -> None:
    until = time.monotonic() + _WAIT_S * 5
    while not marks.exists() or marks.stat().st_size < size:
        crew.look()
        if time.monotonic() > until:
            raise BenchmarkError("the worker did not do all jobs")
        time.sleep(0.01)


def journeys(notes: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The moments (ns) of each record that passed every hop before the next one was sent."""
    found: list[list[int]] = []
    current: list[int] = []
    for at, number in notes:
        if number == 0:
            current = [at]
        elif current and number == len(current):
            current.append(at)
            if number == len(WAY) - 1:
                found.append(current)
                current = []
    return found


def table(found: Sequence[Sequence[int]]) -> str:
    """Median and nine-tenths of each hop, µs."""
    lines = [f"{'until':34}{'median':>9}{'p90':>9}  µs"]
    for number, hop in enumerate(WAY[1:], 1):
        lines.append(_line(hop.name, [way[number] - way[number - 1] for way in found]))
    lines.append(_line(f"the whole, {len(found)} jobs", [way[-1] - way[0] for way in found]))
    return "\n".join(lines)


def _line(name: str, ns: Sequence[int]) -> str:
    ordered = sorted(ns)
    return f"{name:34}{statistics.median(ordered) / 1e3:>9.0f}{ordered[len(ordered) * 9 // 10] / 1e3:>9.0f}"


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for. Returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--run"]:
        _run(given[1], given[2], given[3:])
        return 0
    options = _parser().parse_args(given)
    with tempfile.TemporaryDirectory(prefix="timeline-", ignore_cleanup_errors=True) as made:
        found = journeys(measure(Path(made), options.jobs, options.per_second))[_WARM:]
    if not found:
        raise BenchmarkError("no job passed all hops before the next was sent; ask for a lower rate")
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
