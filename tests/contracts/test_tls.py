"""A store behind TLS: the certificate is checked, and writes and reads go through (`rediss://`, CM-60)."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import redis.asyncio

from kip932.store_settings import StoreAccess
from kip932.store_tls import StoreTls
from shard_runtime.config.process_settings import load_settings
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import ConnectionLostError, Store, StoreSettings
from shard_runtime.record_log.redis.startup_checks import StoreCheckError, check_store
from shard_runtime.record_log.redis.topology import open_store
from share_node.certs import Authority
from share_node.node.process_store import opened_store
from share_node.store.data_directory import DataDirectory
from share_node.store.embedded_store import EmbeddedStore
from tests.support.certificates import files_in, install
from tests.support.store_tls import SecuredStore, behind_tls

OPENSSL = shutil.which("openssl")


def certificate(directory: Path, name: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """Make a self-signed certificate for one name, for this run; return it and its key."""
    found, key = directory / "cert.pem", directory / "key.pem"
    command = [str(OPENSSL), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=store"]
    command += ["-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(found)]
    subprocess.run(command, check=True, capture_output=True)
    return found, key


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
                await check_store(open_store(f"rediss://127.0.0.1:{port}"), None, 0, wait_ms=1_000)
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
                await check_store(open_store(f"rediss://127.0.0.1:{port}?ssl_ca_certs={found}"), None, 0, wait_ms=1_000)
        certificate(tmp_path, "DNS:another")
        async with behind_tls(store.socket_path, found, key) as port:
            with pytest.raises(StoreCheckError, match=r"not valid for 'localhost'"):
                await check_store(open_store(f"rediss://localhost:{port}?ssl_ca_certs={found}"), None, 0, wait_ms=1_000)
    finally:
        await store.stop()


async def _refusal(url: str, tls: StoreTls) -> str:
    with pytest.raises(ConnectionLostError) as refused:
        await _ping(open_store(url, access=StoreAccess(tls=tls)))
    return str(refused.value)


async def _ping(store: Store) -> None:
    connection = await store.connect("")
    await connection.run([("PING",)], 2_000)


@pytest.mark.rule("CM-195")
@pytest.mark.asyncio
async def test_the_files_of_the_settings_are_used_and_read_again_for_each_connection(tmp_path: Path) -> None:
    made = SecuredStore(tmp_path)
    store = EmbeddedStore(DataDirectory(tmp_path / "data"))
    await store.start()
    try:
        async with behind_tls(
            store.socket_path, made.store.certificate, made.store.key, made.store.authorities
        ) as port:
            flags = {
                "store.url": f"rediss://127.0.0.1:{port}",
                "store.ssl.ca.location": str(made.client.authorities),
                "store.ssl.certificate.location": str(made.client.certificate),
                "store.ssl.key.location": str(made.client.key),
            }
            opened = opened_store(load_settings(flags))
            await check_store(opened, None, 0)
            others = Authority.made()
            install(made.client, others.issue("client"), made.authority.certificate)
            with pytest.raises(ConnectionLostError):
                await _ping(opened)
            install(made.client, made.authority.issue("client"), made.authority.certificate)
            await check_store(opened, None, 0)
            assert "it requires a client certificate" in await _refusal(flags["store.url"], made.tls())
            made.client.authorities.unlink()
            with pytest.raises(ConnectionLostError, match=r"ca\.location=.*it cannot be used \(No such file"):
                await _ping(opened)
    finally:
        await store.stop()


@pytest.mark.rule("CM-195")
@pytest.mark.asyncio
async def test_the_systems_authorities_are_used_only_without_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, others = SecuredStore(tmp_path), tmp_path / "others.crt"
    others.write_bytes(Authority.made().certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.store.authorities))  # where OpenSSL finds the system's
    store = EmbeddedStore(DataDirectory(tmp_path / "data"))
    await store.start()
    try:
        async with behind_tls(store.socket_path, made.store.certificate, made.store.key) as port:
            url = f"rediss://127.0.0.1:{port}"
            await check_store(open_store(url), None, 0)
            said = await _refusal(url, StoreTls(others))
            assert f"not issued by an authority in store.ssl.ca.location={others}" in said
            assert f"not issued by an authority in ssl_ca_certs={others}" in await _refusal(
                f"{url}?ssl_ca_certs={others}", StoreTls()
            )
    finally:
        await store.stop()


@pytest.mark.rule("CM-195")
@pytest.mark.asyncio
async def test_a_failed_connection_says_what_it_may_mean(tmp_path: Path) -> None:
    made, others = SecuredStore(tmp_path), Authority.made()
    (tmp_path / "odd").mkdir()
    odd = files_in(tmp_path / "odd")
    store = EmbeddedStore(DataDirectory(tmp_path / "data"))
    await store.start()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"-ERR Protocol error: unauthenticated multibulk length\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    try:
        said = await _refusal(f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}", made.tls())
        assert "nothing there speaks TLS; if the store has none, its URL is redis://" in said
        async with behind_tls(store.socket_path, made.store.certificate, made.store.key) as port:
            said = await _refusal(f"redis://127.0.0.1:{port}", StoreTls())
            assert "if the store serves TLS, its URL must begin with rediss://" in said
            said = await _refusal(f"rediss://127.0.0.1:{port}", StoreTls())
            assert "not issued by an authority in store.ssl.ca.location" in said
        for pair, words in (
            (
                made.authority.issue("store", ["another.example"]),
                "for other names and addresses than the one",
            ),
            (others.issue("store", ["127.0.0.1"]), "not issued by an authority in store.ssl.ca.location"),
            (made.authority.issue("store", ["127.0.0.1"], days=-1), "its certificate has expired"),
        ):
            install(odd, pair, b"")
            async with behind_tls(store.socket_path, odd.certificate, odd.key) as port:
                assert words in await _refusal(f"rediss://127.0.0.1:{port}", made.tls())
    finally:
        server.close()
        await store.stop()


@pytest.mark.rule("CM-231")
@pytest.mark.asyncio
async def test_a_start_advises_what_helps_against_a_certificate_and_not_to_start_another_store(tmp_path: Path) -> None:
    made = SecuredStore(tmp_path)
    store = EmbeddedStore(DataDirectory(tmp_path / "data"))
    await store.start()
    try:
        async with behind_tls(store.socket_path, made.store.certificate, made.store.key) as port:
            with pytest.raises(StoreCheckError) as refused:
                await check_store(open_store(f"rediss://127.0.0.1:{port}"), None, 0, wait_ms=500)
        with pytest.raises(StoreCheckError, match=r"no connection within 100 ms: .* Start one"):
            await check_store(open_store(f"rediss://127.0.0.1:{port}"), None, 0, wait_ms=100)
    finally:
        await store.stop()
    said = str(refused.value)
    assert "store.ssl.ca.location, which is not set, so that those of the system count" in said
    assert "name that in store.ssl.ca.location" in said
    assert "Start one" not in said


@pytest.mark.rule("CM-195")
def test_files_that_cannot_be_used_and_what_is_given_twice_are_refused_at_the_start(tmp_path: Path) -> None:
    made = SecuredStore(tmp_path)
    node, missing = made.tls(known=True), tmp_path / "missing.crt"
    for url, tls, said in (
        ("redis://h:1", node, "connections to it would not be encrypted; expected rediss://"),
        (f"rediss://h:1?ssl_ca_certs={missing}", node, "it has the option ssl_ca_certs"),
        ("rediss://h:1", StoreTls(missing), f"store.ssl.ca.location={missing}: it cannot be used"),
        ("rediss://h:1", StoreTls(made.store.key), "expected the certificates of its authorities in PEM"),
        ("rediss://h:1", StoreTls(None, node.certificate), "belong together; set both or neither"),
        ("rediss://h:1", StoreTls(None, node.certificate, made.store.key), "cannot be used together"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            open_store(url, access=StoreAccess(tls=tls))
