"""Certificates for tests, made for each run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from shard_runtime.rpc.certificates import CertificateFiles
from share_node.certs import Authority


def files_in(folder: Path) -> CertificateFiles:
    """Return the paths of a node's files in a folder."""
    return CertificateFiles(folder / "node.crt", folder / "node.key", folder / "ca.crt")


def install(files: CertificateFiles, pair: tuple[bytes, bytes], authorities: bytes) -> None:
    """Write a certificate, its key and the authorities, in place of those that are there."""
    files.certificate.write_bytes(pair[0])
    files.key.write_bytes(pair[1])
    files.authorities.write_bytes(authorities)


def node_files(folder: Path, authority: Authority | None = None) -> CertificateFiles:
    """Write the files of a node on 127.0.0.1 and return their paths."""
    authority = authority or Authority.made()
    files = files_in(folder)
    install(files, authority.issue("node", ["127.0.0.1", "localhost"]), authority.certificate)
    return files


def odd_pair(
    authority: Authority,
    key: Any,
    names: Sequence[x509.GeneralName] = (),
    common: str = "",
    purpose: Any = None,
    *,
    valid: timedelta = timedelta(days=30),
) -> tuple[bytes, bytes]:
    """Return a certificate of the authority as `sharegroups certs` makes none, and its key: for any key, with these
    alternative names, with no common name if it is "", and valid for so long."""
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(authority._certificate.subject)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + valid)
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if purpose is not None:
        made = made.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    signed: Any = made.sign(authority._key, hashes.SHA256())  # type: ignore[arg-type]  # it is an EC key
    return signed.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
