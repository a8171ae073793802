"""Certificates are checked before they are used, and bad files change nothing (CM-60)."""

from __future__ import annotations

import asyncio
import base64
from codecs import BOM_UTF8
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID
from structlog.testing import capture_logs

from shard_runtime.rpc import certificates
from shard_runtime.rpc.certificates import (
    CertificateError,
    CertificateFiles,
    NodeCertificates,
    read_certificates,
)
from shard_runtime.rpc.rereading import read_for_ever
from share_node.certs import Authority
from tests.support.certificates import files_in, install, node_files, odd_pair


def _torn(pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the certificate with alternative names that end behind its end: valid PEM and DER around them."""
    der = x509.load_pem_x509_certificate(pair[0]).public_bytes(Encoding.DER)
    assert der.count(b"some.name.example") == 1
    at = der.index(b"some.name.example") - 1
    torn = der[:at] + bytes([der[at] + 40]) + der[at + 1 :]
    text = base64.encodebytes(torn).decode()
    return f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n".encode(), pair[1]


AUTHORITY = Authority.made()
NODE = AUTHORITY.issue("node", ["127.0.0.1", "node.example", "::1"])
OTHER = AUTHORITY.issue("other", ["127.0.0.1"])
EXPIRED = AUTHORITY.issue("node", ["127.0.0.1"], days=-1)
OLD_AUTHORITY = Authority.made(days=-1)
ED25519 = odd_pair(AUTHORITY, ed25519.Ed25519PrivateKey.generate(), common="node")
P521 = odd_pair(AUTHORITY, ec.generate_private_key(ec.SECP521R1()), common="node")
P256 = ec.generate_private_key(ec.SECP256R1())
TORN = _torn(odd_pair(AUTHORITY, P256, [x509.DNSName("some.name.example")]))
HALF = AUTHORITY.certificate + Authority.made().certificate[:200]


def _encrypted(key: bytes) -> bytes:
    encryption = BestAvailableEncryption(b"secret")
    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.rule("CM-60")
def test_good_files_are_read_with_their_end_and_names(tmp_path: Path) -> None:
    install(files_in(tmp_path), NODE, AUTHORITY.certificate)
    found = read_certificates(files_in(tmp_path), _now())
    assert (found.certificate, found.key, found.authorities) == (*NODE, AUTHORITY.certificate)
    assert found.names == ("node.example", "127.0.0.1", "::1")
    assert timedelta(days=364) < found.ends_at - _now() < timedelta(days=366)


Spoil = Callable[[CertificateFiles], object]


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda files: files.key.unlink(), "node.key cannot be read: No such file or directory"),
        (lambda files: files.certificate.write_bytes(b"garbage"), "node.crt has no certificate that can be read"),
        (lambda files: files.certificate.write_bytes(b""), "node.crt has no certificate that can be read"),
        (lambda files: files.authorities.write_bytes(NODE[1]), "ca.crt has no certificate that can be read"),
        (lambda files: files.key.write_bytes(b"garbage"), "node.key has no such key; expected one private key in PEM"),
        (lambda files: files.key.write_bytes(_encrypted(NODE[1])), "node.key has an encrypted key; expected"),
        (lambda files: files.key.write_bytes(OTHER[1]), "does not belong to the certificate in"),
        (lambda files: install(files, EXPIRED, AUTHORITY.certificate), "the certificate of CN=node in"),
        (lambda files: files.authorities.write_bytes(OLD_AUTHORITY.certificate), "ca.crt expired at"),
        (
            lambda files: install(files, ED25519, AUTHORITY.certificate),
            "(Ed25519PublicKey) that gRPC cannot serve; exp",
        ),
        (
            lambda files: install(files, P521, AUTHORITY.certificate),
            "a key (secp521r1) that gRPC cannot serve; expected",
        ),
        (lambda files: files.certificate.write_bytes(BOM_UTF8 + NODE[0]), "node.crt begins with a byte order mark"),
        (lambda files: files.authorities.write_bytes(HALF), "ca.crt has 2 certificates, of which 1 are whole"),
        (lambda files: files.certificate.write_bytes(NODE[0] + EXPIRED[0]), "node.crt expired at"),
        (lambda files: install(files, TORN, AUTHORITY.certificate), "node.crt has extensions that cannot be read"),
        (lambda files: install(files, AUTHORITY.issue("alice"), AUTHORITY.certificate), "CN=alice in"),
    ],
    ids=[
        "no key",
        "garbage",
        "empty",
        "a key as authority",
        "garbage as key",
        "encrypted key",
        "another's key",
        "expired",
        "expired authority",
        "a key of a kind that gRPC does not serve",
        "a curve that gRPC does not serve",
        "a byte order mark",
        "half a file",
        "expired intermediate",
        "torn extension",
        "a client's certificate",
    ],
)
def test_files_that_cannot_be_used_are_named_with_what_was_found(tmp_path: Path, spoil: Spoil, said: str) -> None:
    files = node_files(tmp_path, AUTHORITY)
    install(files, NODE, AUTHORITY.certificate)
    spoil(files)
    with pytest.raises(CertificateError) as error:
        read_certificates(files, _now())
    assert said in str(error.value)


@pytest.mark.rule("CM-60")
def test_a_certificate_that_is_not_valid_yet_hints_at_the_clock(tmp_path: Path) -> None:
    files = node_files(tmp_path)
    with pytest.raises(CertificateError, match=r"is valid only from .* check this machine's clock"):
        read_certificates(files, _now() - timedelta(days=1))


@pytest.mark.rule("CM-60")
def test_a_renewed_certificate_is_used_and_a_bad_one_is_not_and_each_reason_is_said_once(tmp_path: Path) -> None:
    files = node_files(tmp_path, AUTHORITY)
    kept = NodeCertificates(files)
    install(files, OTHER, AUTHORITY.certificate)
    with capture_logs() as said:
        kept.reload()
        kept.reload()
    assert kept.current.certificate == OTHER[0]
    assert [line["event"] for line in said] == ["certificates_reloaded"]

    install(files, EXPIRED, AUTHORITY.certificate)
    with capture_logs() as said:
        kept.reload()
        kept.reload()
    assert [(line["event"], line["log_level"]) for line in said] == [("certificates_unusable", "error")]
    assert "expired at" in said[0]["cause"]
    assert (kept.current.certificate, kept.failures) == (OTHER[0], 1)

    files.key.unlink()
    with capture_logs() as said:
        kept.reload()
    assert "cannot be read" in said[0]["cause"]
    assert kept.failures == 2

    install(files, OTHER, AUTHORITY.certificate)
    with capture_logs() as said:
        kept.reload()
        kept.reload()
    assert [line["event"] for line in said] == ["certificates_usable_again"]

    install(files, NODE, AUTHORITY.certificate)
    kept.reload()
    assert kept.current.certificate == NODE[0]
    install(files, EXPIRED, AUTHORITY.certificate)
    with capture_logs() as said:
        kept.reload()
    assert [line["event"] for line in said] == ["certificates_unusable"], "after a good one, the reason is news again"


@pytest.mark.rule("CM-60")
def test_an_end_that_is_near_is_said_and_measured(tmp_path: Path) -> None:
    files = node_files(tmp_path, AUTHORITY)
    with capture_logs() as said:
        assert 364 < NodeCertificates(files).days_left < 366
    assert said == []
    install(files, AUTHORITY.issue("node", ["127.0.0.1"], days=3), AUTHORITY.certificate)
    with capture_logs() as said:
        found = NodeCertificates(files)
    assert 2 < found.days_left < 4
    assert [line["event"] for line in said] == ["certificate_ends_soon"]
    late = NodeCertificates(files, lambda: _now() + timedelta(days=2))
    late._now = lambda: _now() + timedelta(days=5)
    assert late.days_left < 0


@pytest.mark.rule("CM-60")
def test_an_old_authority_left_beside_a_valid_one_is_named_and_stops_nothing(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    install(files, NODE, OLD_AUTHORITY.certificate + AUTHORITY.certificate)
    with capture_logs() as said:
        kept = NodeCertificates(files)
        kept.reload()
    ((event, cause),) = [(line["event"], line["cause"]) for line in said]
    assert event == "certificates_questionable"
    assert "ca.crt expired at" in cause
    renewed = AUTHORITY.issue("node", ["127.0.0.1"])
    install(files, renewed, OLD_AUTHORITY.certificate + AUTHORITY.certificate)
    kept.reload()
    assert kept.current.certificate == renewed[0]
    assert kept.failures == 0


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("pair", "authorities", "remark"),
    [
        (
            odd_pair(AUTHORITY, P256, common="web", purpose=ExtendedKeyUsageOID.SERVER_AUTH),
            AUTHORITY,
            "not for clients",
        ),
        (NODE, Authority.made(), "was not issued by an authority in"),
        (odd_pair(AUTHORITY, P256, common="web"), AUTHORITY, ""),
    ],
    ids=["for servers alone", "of another authority", "for anything"],
)
def test_what_other_nodes_would_refuse_is_said(
    tmp_path: Path, pair: tuple[bytes, bytes], authorities: Authority, remark: str
) -> None:
    files = files_in(tmp_path)
    install(files, pair, authorities.certificate)
    with capture_logs() as said:
        NodeCertificates(files)
    assert [line["event"] for line in said] == (["certificates_questionable"] if remark else [])
    assert all(remark in line["cause"] for line in said)


@pytest.mark.rule("CM-60")
@pytest.mark.asyncio
async def test_the_watch_survives_anything_and_files_that_are_being_replaced_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = partial(read_for_ever, first_s=0.01, every_s=0.01, retry_s=0.01, retry_max_s=0.01, patience_s=0.005)
    monkeypatch.setattr(certificates, "read_for_ever", quick)
    files = node_files(tmp_path, AUTHORITY)
    kept, reads = NodeCertificates(files), 0
    real = certificates.read_certificates

    def odd(given: CertificateFiles, now: datetime, hosts: tuple[str, ...]) -> Any:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise CertificateError("the key is not there yet")
        if reads in {3, 4}:
            raise RuntimeError("a fault of the library")
        return real(given, now, hosts)

    monkeypatch.setattr(certificates, "read_certificates", odd)
    install(files, OTHER, AUTHORITY.certificate)
    with capture_logs() as said:
        watching = asyncio.ensure_future(kept.watch())
        while reads < 6:  # noqa: ASYNC110 - it is counted in a thread
            await asyncio.sleep(0.01)
        watching.cancel()
    assert [line["event"] for line in said][:2] == ["certificates_reloaded", "certificates_unusable"]
    assert "RuntimeError: a fault of the library" in said[1]["cause"]
    assert (kept.current.certificate, kept.failures) == (OTHER[0], 1)


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("hosts", "others"),
    [
        (["127.0.0.1", "Node.example"], ""),
        (["pod-1.nodes.svc"], ""),
        (["127.0.0.1", "elsewhere.example"], "this node is called elsewhere.example"),
        (["a.pod-1.nodes.svc"], "this node is called a.pod-1.nodes.svc"),
    ],
)
def test_a_certificate_for_other_names_than_those_the_node_is_called_by_is_reported(
    tmp_path: Path, hosts: list[str], others: str
) -> None:
    files = files_in(tmp_path)
    install(files, AUTHORITY.issue("node", ["127.0.0.1", "node.example", "*.nodes.svc"]), AUTHORITY.certificate)
    with capture_logs() as said:
        NodeCertificates(files, hosts=hosts)
    assert [line["event"] for line in said] == (["certificates_questionable"] if others else [])
    assert all(others in line["cause"] for line in said)


@pytest.mark.parametrize("client_required", [True, False])
@pytest.mark.rule("CM-197")
def test_grpc_gets_a_certificate_once_and_then_only_renewed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client_required: bool
) -> None:
    made: list[tuple[Any, Callable[[], Any]]] = []
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda first, newer, _: made.append((first, newer)))
    monkeypatch.setattr(grpc, "ssl_server_certificate_configuration", lambda pairs, roots: (pairs, roots))
    nodes = NodeCertificates(node_files(tmp_path, AUTHORITY))
    for _ in range(2):  # the listeners for clients and for nodes
        nodes.for_server(client_required=client_required)

    def newest() -> tuple[Any, Any]:
        roots = nodes.current.authorities if client_required else None
        return [(nodes.current.key, nodes.current.certificate)], roots

    for first, newer in made:
        assert first == newest()
        assert [newer(), newer()] == [None, None]
    install(files_in(tmp_path), NODE, AUTHORITY.certificate)
    nodes.reload()
    for _, newer in made:
        assert [newer(), newer()] == [newest(), None]
