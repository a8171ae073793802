"""Certificates for tests, made for each run."""

from __future__ import annotations

from pathlib import Path

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
