"""A store behind TLS: the certificate is checked, and writes and reads go through (`rediss://`, CM-60)."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio

from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.startup_checks import StoreCheckError, check_store
from shard_runtime.record_log.redis.topology import open_store
from share_node.store.data_directory import DataDirectory
from share_node.store.embedded_store import EmbeddedStore

OPENSSL = shutil.which("openssl")


def certificate(directory: Path, name: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """Make a self-signed certificate for one name, for this run; return it and its key."""
    found, key = directory / "cert.pem", directory / "key.pem"
    command = [str(OPENSSL), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=store"]
    command += ["-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(found)]
    subprocess.run(command, check=True, capture_output=True)
    return found, key


@asynccontextmanager
async def behind_tls(socket: Path, found: Path, key: Path) -> AsyncIterator[int]:
    """Yield the port of a TLS endpoint in front of a unix socket; the embedded store itself has no TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    pumps: set[asyncio.Task[None]] = set()

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
        to_reader, to_writer = await asyncio.open_unix_connection(str(socket))
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


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl: it makes the certificate of this test")
@pytest.mark.rule("CM-60")
@pytest.mark.asyncio
async def test_a_store_behind_tls_is_checked_and_used(tmp_path: Path) -> None:
    found, key = certificate(tmp_path)
    store = EmbeddedStore(DataDirectory(tmp_path / "data"))
    await store.start()
    try:
        async with behind_tls(store.socket_path, found, key) as port:
            trusted = f"rediss://127.0.0.1:{port}?ssl_ca_certs={found}"
            await check_store(open_store(trusted), None, 0)
            cluster = StoreClusterStore(open_store(trusted), StoreSettings())
            assert await cluster.init_cluster("c-1") == "c-1"
            await cluster.close()
            plain = redis.asyncio.Redis(unix_socket_path=str(store.socket_path))
            assert b"c-1" in [await plain.get(name) for name in await plain.keys("*")]
            await plain.aclose()
            with pytest.raises(StoreCheckError, match=r"certificate verify failed"):
                await check_store(open_store(f"rediss://127.0.0.1:{port}"), None, 0, wait_ms=500)
    finally:
        await store.stop()


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl: it makes the certificate of this test")
@pytest.mark.rule("CM-60")
@pytest.mark.asyncio
async def test_a_certificate_must_be_for_the_name_that_was_given_not_for_the_address_found(tmp_path: Path) -> None:
    found, key = certificate(tmp_path, "DNS:localhost")
    store = EmbeddedStore(DataDirectory(tmp_path / "data"))
    await store.start()
    try:
        async with behind_tls(store.socket_path, found, key) as port:
            await check_store(open_store(f"rediss://localhost:{port}?ssl_ca_certs={found}"), None, 0)
            with pytest.raises(StoreCheckError, match=r"not valid for '127\.0\.0\.1'"):
                await check_store(open_store(f"rediss://127.0.0.1:{port}?ssl_ca_certs={found}"), None, 0, wait_ms=500)
        certificate(tmp_path, "DNS:another")
        async with behind_tls(store.socket_path, found, key) as port:
            with pytest.raises(StoreCheckError, match=r"not valid for 'localhost'"):
                await check_store(open_store(f"rediss://localhost:{port}?ssl_ca_certs={found}"), None, 0, wait_ms=500)
    finally:
        await store.stop()
