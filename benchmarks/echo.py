"""B4, the echo floor: the cost of two hops over grpc.aio streams with no work in between.

A client sends on a stream to A, which queries B on its own stream (60 bytes there and back) before it answers with
52 KB, or with 20 bytes. The messages are plain bytes without protobuf, one request at a time, between three processes,
with uvloop if it can be imported, as in the services. The result is the denominator for the fetch cycles per second of
B1 and the operations per second of B5.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Final

import grpc
from grpc import aio

from benchmarks.goals import FOREIGN_CPU_MAX
from benchmarks.machine import Meter
from benchmarks.processes import Crew, Process, hear, run_loop, say, worker

REPLY_BYTES: Final = (52_000, 20)
HOP_BYTES: Final = 60
REQUEST_BYTES: Final = 60
_METHOD: Final = "/benchmarks.Echo/Hop"
_WARM_UP: Final = 200
_READY_S: Final = 20.0


def run(reply_bytes: int, seconds: float) -> dict[str, Any]:
    """Run for about `seconds`. Raises BenchmarkError."""
    crew, processes = Crew(), list[Process]()
    try:
        processes.append(second := worker("echo B", "echo", "second", {}, crew))
        address = second.expect("address", _READY_S)["address"]
        processes.append(
            first := worker("echo A", "echo", "first", {"next": address, "reply_bytes": reply_bytes}, crew)
        )
        address = first.expect("address", _READY_S)["address"]
        processes.append(
            client := worker("echo client", "echo", "client", {"address": address, "seconds": seconds}, crew)
        )
        client.expect("ready", _READY_S)
        meter = Meter({"client": client.pid, "A": first.pid, "B": second.pid})
        client.send("go")
        done = client.expect("cycles", seconds + _READY_S)
        usage = meter.read()
    finally:
        for process in reversed(processes):
            process.stop()
    return {
        "benchmark": "B4",
        "reply_bytes": reply_bytes,
        "cycles": done["cycles"],
        "wall_s": round(done["wall_s"], 4),
        "cycles_per_s": round(done["cycles"] / done["wall_s"], 1),
        "cpu_s": usage.cpu_s,
        "foreign_cpu": round(usage.foreign_share, 3),
        "flagged": usage.foreign_share > FOREIGN_CPU_MAX,
    }


# The three roles.


async def _serve(handler: Any) -> None:
    server = aio.server()
    method: Any = grpc.stream_stream_rpc_method_handler(handler)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("benchmarks.Echo", {"Hop": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say(address=f"127.0.0.1:{port}")
    await asyncio.to_thread(sys.stdin.readline)  # until the parent closes the pipe
    await server.stop(0)


async def _second(_: dict[str, Any]) -> None:
    async def echo(_: Any, context: Any) -> None:
        while (message := await context.read()) is not aio.EOF:
            await context.write(message)

    await _serve(echo)


async def _first(settings: dict[str, Any]) -> None:
    reply, hop = bytes(settings["reply_bytes"]), bytes(HOP_BYTES)
    async with aio.insecure_channel(settings["next"]) as channel:
        onward: Any = channel.stream_stream(_METHOD)()

        async def answer(_: Any, context: Any) -> None:
            while await context.read() is not aio.EOF:
                await onward.write(hop)
                await onward.read()
                await context.write(reply)

        await _serve(answer)
        onward.cancel()


async def _client(settings: dict[str, Any]) -> None:
    request = bytes(REQUEST_BYTES)
    async with aio.insecure_channel(settings["address"]) as channel:
        stream: Any = channel.stream_stream(_METHOD)()
        for _ in range(_WARM_UP):
            await stream.write(request)
            await stream.read()
        say(ready=True)
        await asyncio.to_thread(hear, "go")
        cycles, began = 0, time.monotonic()
        until = began + settings["seconds"]
        while (now := time.monotonic()) < until:
            await stream.write(request)
            await stream.read()
            cycles += 1
        say(cycles=cycles, wall_s=now - began)
        stream.cancel()


if __name__ == "__main__":
    run_loop({"second": _second, "first": _first, "client": _client}[sys.argv[1]](json.loads(sys.argv[2])))
