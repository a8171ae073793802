"""TCP links that can be cut, refused, delayed, and made to lose a reply; they run in a thread of their own.

A cut link keeps what it holds: TCP would send it again, so it arrives after `heal` unless an end has given up. Both
ends keep their connections meanwhile and notice nothing, not even that the other has closed (half-open). The link
cannot hold back the handshake of a new connection: this machine completes it, and nothing follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self, TypeVar

from tests.chaos.drivers.stores import Address

T = TypeVar("T")

_CHUNK: Final = 65_536
_CHUNKS_MAX: Final = 64
_CALL_S: Final = 10.0
_BACKLOG: Final = 512
_ABORT: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing sends RST


class Switchboard:
    """The thread for all links of a deployment. A context manager: leaving it closes every link."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            self._do(link.close)
        self._wait(_end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    def link(self, listen: Address, target: Address) -> Link:
        """Return a new link that connects `listen` to `target`. Raises OSError if the port is taken."""
        link = Link(listen, target, self._do)
        self._links.append(link)
        self._do(link.open)
        return link

    def _do(self, step: Callable[[], T]) -> T:
        """Run a step in the thread and wait until it is done."""

        async def run() -> T:
            return step()

        return self._wait(run())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)


class _Way:
    """One direction of a link."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = 0.0


class _LostReply:
    """A fault for the next request that contains `word`: the request is delivered, but its reply is not."""

    def __init__(self, word: bytes) -> None:
        self.word = word
        self.struck = threading.Event()


class Link:
    """One listening port and its target; created by a Switchboard. Fault methods may be called from any other
    thread."""

    def __init__(self, listen: Address, target: Address, do: Callable[[Callable[[], None]], None]) -> None:
        self.listen = listen
        self.target = target
        self.there, self.back = _Way(), _Way()
        self.orders: list[_LostReply] = []
        self._do = do
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._listening = False
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setblocking(False)
        try:
            self._listener.bind(listen)
        except OSError:
            self._listener.close()
            raise

    # ---- faults

    def hold(self, *, there: bool, back: bool) -> None:
        """Let nothing pass in these directions until `heal`."""

        def shut() -> None:
            for way in [way for way, chosen in ((self.there, there), (self.back, back)) if chosen]:
                way.open.clear()

        self._do(shut)

    def refuse(self) -> None:
        """Reset open connections and refuse new ones until `heal`."""
        self._do(self._refuse)

    def delay(self, delay_ms: int) -> None:
        """Delay what goes to the target from now on, in milliseconds; until `heal` or 0."""
        self.there.delay_s = delay_ms / 1000

    def lose_reply(self, word: bytes) -> threading.Event:
        """Deliver the next request that contains `word`, and reset the connection instead of sending its reply.

        Returns an event that is set when that has happened.
        """
        order = _LostReply(word)
        self._do(lambda: self.orders.append(order))
        return order.struck

    def heal(self) -> None:
        """Let everything pass again, including held data; no further reply is lost."""
        self.delay(0)
        self._do(self._heal)

    # ---- in the thread

    def open(self) -> None:
        """Listen."""
        self._listener.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        self._listening = True

    def close(self) -> None:
        """Reset every connection and release the port."""
        self._refuse()
        self._listener.close()

    def _refuse(self) -> None:
        if self._listening:
            self._listening = False
            asyncio.get_running_loop().remove_reader(self._listener)
            # No longer listening, but still bound: no other process can take the port, and connects to it are refused.
            self._listener.shutdown(socket.SHUT_RD)
        for task, connection in list(self._connections.items()):
            task.cancel()
            connection.reset()

    def _heal(self) -> None:
        self.orders.clear()
        for way in (self.there, self.back):
            way.open.set()
        if not self._listening:
            self.open()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the client may have given up
            client, _ = self._listener.accept()
            connection = _Connection(self, client)
            task = asyncio.get_running_loop().create_task(connection.serve())
            self._connections[task] = connection
            task.add_done_callback(lambda done: self._connections.pop(done, None))


class _Connection:
    """A client's connection and the matching one to the target."""

    def __init__(self, link: Link, client: socket.socket) -> None:
        self._link = link
        self._client = _prepared(client)
        self._server = _prepared(socket.socket())
        self._lost: _LostReply | None = None

    def reset(self) -> None:
        """Reset both connections."""
        loop = asyncio.get_running_loop()
        for each in (self._client, self._server):
            if each.fileno() >= 0:
                loop.remove_reader(each)
                loop.remove_writer(each)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                each.close()

    async def serve(self) -> None:
        """Run until both have closed, or one is reset."""
        try:
            await self._passable()  # a handshake needs both directions
            await asyncio.get_running_loop().sock_connect(self._server, self._link.target)
            await self._carry()
        except OSError:
            await self._passable()  # the other end learns of a reset only through an open link
        finally:
            self.reset()

    async def _passable(self) -> None:
        ways = (self._link.there.open, self._link.back.open)
        while not all(way.is_set() for way in ways):
            for way in ways:
                await way.wait()

    async def _carry(self) -> None:
        there: _Queue = asyncio.Queue(_CHUNKS_MAX)
        back: _Queue = asyncio.Queue(_CHUNKS_MAX)
        steps = (
            self._read(self._client, there, self._link.there, self._request),
            self._write(self._server, there, self._link.there, lambda: None),
            self._read(self._server, back, self._link.back, lambda chunk: None),
            self._write(self._client, back, self._link.back, self._reply),
        )
        tasks = [asyncio.get_running_loop().create_task(step) for step in steps]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _request(self, chunk: bytes) -> None:
        orders = self._link.orders
        if self._lost is None and chunk and (order := next((o for o in orders if o.word in chunk), None)) is not None:
            orders.remove(order)
            self._lost = order

    def _reply(self) -> None:
        if self._lost is not None:
            self._lost.struck.set()
            raise ConnectionResetError("the request was carried out, and no answer comes back")

    @staticmethod
    async def _read(source: socket.socket, queue: _Queue, way: _Way, note: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        chunk = b"begin"
        while chunk:
            chunk = await loop.sock_recv(source, _CHUNK)
            note(chunk)
            await queue.put((loop.time() + way.delay_s, chunk))

    @staticmethod
    async def _write(sink: socket.socket, queue: _Queue, way: _Way, check: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, chunk = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await way.open.wait()
            check()
            if not chunk:
                sink.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(sink, chunk)


_Queue = asyncio.Queue[tuple[float, bytes]]
"""When each chunk is due, and the chunk; an empty one is the end."""


def _prepared(each: socket.socket) -> socket.socket:
    each.setblocking(False)
    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return each


async def _end_tasks() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
