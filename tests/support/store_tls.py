"""A TLS endpoint in front of a store, which has none itself, and the certificates of both ends."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from kip932.store_tls import StoreTls
from share_node.certs import Authority
from tests.support.certificates import files_in, install

_BOUND_S = 60


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
    def in_front_of(self, port: int) -> Iterator[int]:
        """Yield the port of an endpoint, in a thread of its own, that requires client certificates of the authority."""
        ready: list[int] = []
        started, ended = threading.Event(), threading.Event()

        async def serve() -> None:
            files = self.store
            async with behind_tls(port, files.certificate, files.key, files.authorities) as found:
                ready.append(found)
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


@asynccontextmanager
async def behind_tls(at: Path | int, found: Path, key: Path, clients_of: Path | None = None) -> AsyncIterator[int]:
    """Yield the port of a TLS endpoint in front of a unix socket or a port. `clients_of`: the authorities of the
    certificates that clients need; None if they need none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients_of)
    pumps: set[asyncio.Task[None]] = set()
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

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = asyncio.open_unix_connection(at) if isinstance(at, Path) else asyncio.open_connection("127.0.0.1", at)
        to_reader, to_writer = await opened
        writers.extend((writer, to_writer))
        for work in (pump(reader, to_writer), pump(to_reader, writer)):
            task = asyncio.get_running_loop().create_task(work)
            pumps.add(task)
            task.add_done_callback(pumps.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(pumps):
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for writer in writers:
            if not writer.transport.is_closing():
                writer.transport.abort()
        for _ in range(3):  # so that sockets are closed before the loop ends
            await asyncio.sleep(0)
