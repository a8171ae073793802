"""Measures how much of a job's delivery time gRPC and the store alone account for: `python -m benchmarks.bare_way`.

    python -m benchmarks.bare_way --jobs 500 --rounds 3

A sender writes a job to a gRPC stream. A server stores it (`MULTI`, `XADD`, `EXEC`) and, once the store has answered,
writes it to the stream of a worker, which notes its arrival: two gRPC hops and one round trip to the store. Any server
that stores a record and delivers it over gRPC needs these; batches, checks, locks, sessions, protobuf and threads come
on top. So this is a lower bound for B12's time to start (`python -m benchmarks.workers --only noop`, run in the same
hour).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from share_node import grpc_library  # noqa: F401 - gRPC's I/O as the services have it, so before gRPC is loaded

# isort: split
import grpc
from grpc import aio

from benchmarks.machine import Meter
from benchmarks.processes import Crew, Process, hear, run_loop, say, worker
from benchmarks.valkey_group import store_server

JOB_BYTES: Final = 100
_PUT: Final = "/benchmarks.Bare/Put"
_TAKE: Final = "/benchmarks.Bare/Take"
_WARM: Final = 50
_READY_S: Final = 20.0
_OK: Final = b"+OK\r\n+QUEUED\r\n*1\r\n"


def run(store: int, jobs: int, per_second: float) -> dict[str, Any]:
    """Run once on the store at this port, and return how long jobs were in flight. Raises BenchmarkError."""
    crew, processes = Crew(), list[Process]()
    try:
        processes.append(server := worker("bare server", "bare_way", "server", {"store": store}, crew))
        address = server.expect("address", _READY_S)["address"]
        settings = {"address": address, "jobs": jobs, "per_second": per_second}
        processes.append(taker := worker("bare worker", "bare_way", "taker", settings, crew))
        taker.expect("ready", _READY_S)
        processes.append(sender := worker("bare sender", "bare_way", "sender", settings, crew))
        sender.expect("ready", _READY_S)
        meter = Meter({"sender": sender.pid, "server": server.pid, "worker": taker.pid})
        sender.send("go")
        ms = sorted(taker.expect("ms", jobs / per_second + _READY_S)["ms"])
        usage = meter.read()
    finally:
        for process in reversed(processes):
            process.stop()
    return {
        "benchmark": "the bare way", "jobs": jobs, "per_second": per_second, "p50_ms": round(statistics.median(ms), 3),
        "p99_ms": round(ms[int(len(ms) * 0.99)], 3), "foreign_cpu": round(usage.foreign_share, 3),
    }  # fmt: skip


# The three roles.


class _Store:
    """A connection that appends jobs to a stream, one at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> _Store:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def append(self, job: bytes) -> None:
        words = (b"XADD", b"bare", b"*", b"r", job)
        command = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self._writer.write(b"*1\r\n$5\r\nMULTI\r\n" + command + b"*1\r\n$4\r\nEXEC\r\n")
        await self._reader.readuntil(_OK)
        await self._reader.readline()  # the length of the id
        await self._reader.readline()


async def _server(settings: dict[str, Any]) -> None:
    store = await _Store.open(settings["store"])
    takers: list[Any] = []

    async def put(_: Any, context: Any) -> None:
        while (job := await context.read()) is not aio.EOF:
            await store.append(job)
            await takers[0].write(job)

    async def take(_: Any, context: Any) -> None:
        takers.append(context)
        await context.read()  # until the worker ends

    server = aio.server()
    methods: Any = {
        "Put": grpc.stream_stream_rpc_method_handler(put),
        "Take": grpc.stream_stream_rpc_method_handler(take),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("benchmarks.Bare", methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say(address=f"127.0.0.1:{port}")
    await asyncio.to_thread(sys.stdin.readline)  # until the parent closes the pipe
    await server.stop(0)


async def _taker(settings: dict[str, Any]) -> None:
    ms: list[float] = []
    async with aio.insecure_channel(settings["address"]) as channel:
        stream: Any = channel.stream_stream(_TAKE)()
        await stream.wait_for_connection()
        say(ready=True)
        for _ in range(settings["jobs"] + _WARM):
            job = await stream.read()
            ms.append((time.monotonic_ns() - int.from_bytes(job[:8], "big")) / 1e6)
        say(ms=ms[_WARM:])
        await asyncio.to_thread(sys.stdin.readline)
        stream.cancel()


async def _sender(settings: dict[str, Any]) -> None:
    async with aio.insecure_channel(settings["address"]) as channel:
        stream: Any = channel.stream_stream(_PUT)()
        await stream.wait_for_connection()
        say(ready=True)
        await asyncio.to_thread(hear, "go")
        began = time.monotonic()
        for number in range(settings["jobs"] + _WARM):
            await asyncio.sleep(max(0.0, began + number / settings["per_second"] - time.monotonic()))
            await stream.write(time.monotonic_ns().to_bytes(8, "big") + bytes(JOB_BYTES - 8))
        await asyncio.to_thread(sys.stdin.readline)
        stream.cancel()


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare_way", description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--per-second", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bare-way-", ignore_cleanup_errors=True))
        store, port = store_server("store", "everysec", Path(folder), Crew())
        stack.callback(store.stop, terminate=True)
        for number in range(options.rounds):
            print(json.dumps(run(port, options.jobs, options.per_second) | {"round": number + 1}), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] in (["server"], ["taker"], ["sender"]):
        run_loop({"server": _server, "taker": _taker, "sender": _sender}[sys.argv[1]](json.loads(sys.argv[2])))
    else:
        sys.exit(main())
