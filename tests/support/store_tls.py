"""A TLS endpoint in front of a store, which has none itself, and the certificates of both ends."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from kip932.store_tls import StoreTls
from share_node.certs import Authority
from tests.support.certificates import files_in, install

_BOUND_S = 60
_HOST = "127.0.0.1"


class SecuredStore:
    """A store's authority and certificate for 127.0.0.1, and those of a client, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.made()
        self.store, self.client = (files_in(folder / name) for name in ("store", "client"))
        for name, files in (("store", self.store), ("client", self.client)):
            (folder / name).mkdir()
            install(files, self.authority.issue(name, ["127.0.0.1"]), self.authority.certificate)

    def tls(self, *, known: bool = False) -> StoreTls:
        """Return a client's files; with its own certificate if `known`."""
        own = (self.client.certificate, self.client.key) if known else (None, None)
        return StoreTls(self.client.authorities, *own)

    @contextmanager
    def in_front_of(self, port: int, *, either: bool = False) -> Iterator[int]:
        """Yield the port of an endpoint, in a thread of its own, that requires client certificates of the authority.

        `either`: it serves callers without TLS, too, as replicas and Sentinels of a store without TLS are.
        """
        ready: list[int] = []
        started, ended = threading.Event(), threading.Event()

        async def serve() -> None:
            files = self.store
            async with AsyncExitStack() as stack:
                tls = behind_tls(port, files.certificate, files.key, files.authorities)
                found = await stack.enter_async_context(tls)
                ready.append(await stack.enter_async_context(with_or_without_tls(port, found)) if either else found)
                started.set()
                await asyncio.to_thread(ended.wait)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        try:
            assert started.wait(_BOUND_S)
            yield ready[0]
        finally:
            ended.set()
            thread.join(_BOUND_S)


#: How a record of a TLS handshake begins; no command of the store's protocol does.
_HANDSHAKE = b"\x16"
_Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def behind_tls(
    at: Path | int, found: Path, key: Path, clients_of: Path | None = None
) -> AbstractAsyncContextManager[int]:
    """Yield the port of a TLS endpoint in front of a unix socket or a port. `clients_of`: the authorities of the
    certificates that clients need; None if they need none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients_of)

    async def opened(first: bytes) -> _Opened:
        del first
        return await (asyncio.open_unix_connection(at) if isinstance(at, Path) else asyncio.open_connection(_HOST, at))

    return _relayed(opened, context)


def with_or_without_tls(plain: int, tls: int) -> AbstractAsyncContextManager[int]:
    """Yield a port that passes a caller with TLS on to one port, and a caller without it to another."""

    async def opened(first: bytes) -> _Opened:
        return await asyncio.open_connection(_HOST, tls if first.startswith(_HANDSHAKE) else plain)

    return _relayed(opened, None)


@asynccontextmanager
async def _relayed(opened: Callable[[bytes], Awaitable[_Opened]], context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Yield a port whose callers are connected to what `opened` returns for the first bytes that they send."""
    works: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(65_536)
            to_reader, to_writer = await opened(first)
        except (OSError, ssl.SSLError):  # the server does not run
            writer.close()
            return
        writers.append(to_writer)
        to_writer.write(first)
        await asyncio.gather(pump(reader, to_writer), pump(to_reader, writer))

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        task = asyncio.get_running_loop().create_task(relay(reader, writer))
        works.add(task)
        task.add_done_callback(works.discard)

    server = await asyncio.start_server(accept, _HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(works):
            task.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for writer in writers:
            if not writer.transport.is_closing():
                writer.transport.abort()
        for _ in range(3):  # so that sockets are closed before the loop ends
            await asyncio.sleep(0)
