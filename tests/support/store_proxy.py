"""A TCP proxy in the test process: it drops replies, holds traffic in mid-pipeline, cuts and refuses connections."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field


@dataclass(eq=False)
class Fault:
    """One fault, used up by the first chunk from the client that contains `word`."""

    word: bytes
    kind: str  # "lose_reply" | "lose_request" | "hold"
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    resume: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """Listens on its own port for one client; `target` may be changed for new connections.

    The proxies of a client that talks to several servers share one list of faults: each fault strikes at its first
    match on any of them.
    """

    def __init__(self, target: int, faults: list[Fault] | None = None) -> None:
        self.target = target
        self.port = 0
        self.open = True
        self.faults: list[Fault] = [] if faults is None else faults
        self._cuts = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def add(self, word: str, kind: str) -> Fault:
        fault = Fault(word.encode(), kind)
        self.faults.append(fault)
        return fault

    def cut(self) -> None:
        self._cuts += 1
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.open = False
        self.cut()
        for fault in self.faults:
            fault.resume.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.transport.abort()
            return
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cuts = self._cuts
        try:
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        if cuts != self._cuts:
            upstream.transport.abort()
            return
        self._writers.add(upstream)
        deaf = asyncio.Event()
        down = asyncio.create_task(self._down(upstream_reader, writer, upstream, deaf))
        try:
            await self._up(reader, writer, upstream, deaf)
        except (OSError, ConnectionError):
            pass
        finally:
            if not deaf.is_set():
                down.cancel()
            await asyncio.gather(down, return_exceptions=True)
            for each in (writer, upstream):
                each.transport.abort()
                self._writers.discard(each)

    async def _up(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamWriter,
        deaf: asyncio.Event,
    ) -> None:
        while chunk := await reader.read(1 << 20):
            fault = next((f for f in self.faults if f.word in chunk), None)
            if fault is None:
                upstream.write(chunk)
                continue
            self.faults.remove(fault)
            if fault.kind == "lose_request":
                fault.struck.set()
                return
            if fault.kind == "lose_reply":
                deaf.set()
                upstream.write(chunk)
                await upstream.drain()
                fault.struck.set()
                return
            at = chunk.index(fault.word)
            upstream.write(chunk[:at])
            await upstream.drain()
            fault.struck.set()
            await fault.resume.wait()
            upstream.write(chunk[at:])

    async def _down(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamWriter,
        deaf: asyncio.Event,
    ) -> None:
        with contextlib.suppress(OSError, ConnectionError):
            while chunk := await reader.read(1 << 20):
                if deaf.is_set():
                    return  # the server has executed and answered everything, but the reply is lost
                writer.write(chunk)
                await writer.drain()
            writer.transport.abort()
