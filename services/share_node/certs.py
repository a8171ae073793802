"""`sharegroups certs`: makes an authority, and certificates of it, for development on one machine or in a test cluster.

Production has an authority of its own (cert-manager, a company's CA), which also renews certificates.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kip932.acls import PRINCIPAL_TYPE
from kip932.printable import printable
from shard_runtime.config.process_settings import SSL_CA, SSL_CERTIFICATE, SSL_CLIENT_AUTH, SSL_KEY

CA: Final = "ca"
NODE: Final = "node"
_AUTHORITY: Final = "sharegroups development CA"
_DAYS: Final = 365
#: A clock that is a little behind must not refuse a new certificate.
_EARLIER: Final = timedelta(minutes=5)
_NAME_MAX: Final = 64


class Authority:
    """A certificate authority: its certificate and key in PEM."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate = certificate
        self.key = key
        self._certificate = x509.load_pem_x509_certificate(certificate)
        self._key = load_pem_private_key(key, None)

    @property
    def ends_at(self) -> datetime:
        """When its certificate expires."""
        return self._certificate.not_valid_after_utc

    @classmethod
    def made(cls, *, days: int = _DAYS) -> Authority:
        """Make a new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(_AUTHORITY)
        builder = _builder(name, name, key, days).add_extension(x509.BasicConstraints(True, 0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), _pem(key))

    def issue(self, name: str, hosts: Sequence[str] = (), *, days: int = _DAYS) -> tuple[bytes, bytes]:
        """Return a new certificate of this authority and its key, both in PEM. `hosts`: the names and addresses of a
        server; without them it is a client's. `days`: may be negative, for one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        # A node is a client of other nodes, too.
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False
            )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._certificate.public_key())  # type: ignore[arg-type]  # it is an EC key
        builder = builder.add_extension(issuer, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())  # type: ignore[arg-type]  # it is an EC key
        return signed.public_bytes(Encoding.PEM), _pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    ends = datetime.now(UTC) + timedelta(days=days)
    begins = min(datetime.now(UTC), ends) - _EARLIER
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_pair(folder: Path, name: str, pair: tuple[bytes, bytes]) -> None:
    """Write `name.key`, which only its owner may read, and then `name.crt`."""
    (folder / f"{name}.key").unlink(missing_ok=True)  # of a run that was interrupted before it wrote the certificate
    _write(folder / f"{name}.key", pair[1], 0o600)
    _write(folder / f"{name}.crt", pair[0], 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def _authority_in(folder: Path) -> Authority:
    """Return the authority in a folder; make one where there is none."""
    certificate, key = folder / f"{CA}.crt", folder / f"{CA}.key"
    if certificate.exists() or key.exists():
        try:
            found = Authority(certificate.read_bytes(), key.read_bytes())
        except PermissionError as error:
            raise click.ClickException(printable(_unreadable(folder, Path(error.filename or key)))) from error
        except (OSError, ValueError, TypeError) as error:
            raise click.ClickException(
                f"the authority in {folder} cannot be used: {printable(str(error))}; expected {CA}.crt and {CA}.key "
                "in PEM, as this command makes them. Restore them from a copy, or try another folder: clients and "
                "nodes with certificates of this authority accept none of a new one."
            ) from error
        if found.ends_at < datetime.now(UTC):
            raise click.ClickException(
                f"the authority in {folder} expired at {found.ends_at:%Y-%m-%d}, so that no node and no client would "
                "accept a new certificate of it. Try another folder."
            )
        return found
    made = Authority.made()
    folder.mkdir(parents=True, exist_ok=True)
    _write_pair(folder, CA, (made.certificate, made.key))
    return made


def _unreadable(folder: Path, file: Path) -> str:
    """Return what is to be done about a file of the authority that this process may not read."""
    try:
        owner = f"it belongs to {file.owner()}, and"
    except (OSError, KeyError):
        owner = "its owner is unknown here;"
    return (
        f"the authority in {folder} cannot be read: {file}: permission denied; {owner} this is user id {os.geteuid()}. "
        "Run this as its owner, or have the owner make it readable; nothing was changed."
    )


def _made(folder: Path, name: str, authority: Authority, hosts: Sequence[str], settings: tuple[str, str]) -> Path:
    """Make a certificate and the file with its settings, unless they are there; return that file's path."""
    if not all((folder / f"{name}.{end}").exists() for end in ("crt", "key")):
        (folder / f"{name}.crt").unlink(missing_ok=True)  # useless without its key
        _write_pair(folder, name, authority.issue(name, hosts))
    file = folder / settings[0]
    if not file.exists():
        _write(file, settings[1].encode(), 0o644)
    return file


def _files_in(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()


def _report_kept(folder: Path, before: frozenset[str], names: Sequence[str]) -> None:
    """Print which certificates were there already, until when each is valid, and what is wrong with it; and which were
    made again since half of them was missing."""
    authority = x509.load_pem_x509_certificate((folder / f"{CA}.crt").read_bytes())
    for name in names:
        file = f"{name}.crt"
        if len(absent := {file, f"{name}.key"} - before) == 1:
            missing = printable(absent.pop())
            click.echo(
                f"made again: {printable(name)}.crt and {printable(name)}.key, since {missing} was missing", err=True
            )
        if not {file, f"{name}.key"} <= before:
            continue
        renew = f"to renew it, remove {file} and {name}.key first"
        try:
            found = x509.load_pem_x509_certificate((folder / file).read_bytes())
        except ValueError:
            click.echo(f"kept: {printable(file)}, which is not a certificate in PEM; {printable(renew)}", err=True)
            continue
        end = found.not_valid_after_utc
        state = f"expired on {end:%Y-%m-%d}" if end < datetime.now(UTC) else f"valid until {end:%Y-%m-%d}"
        if found.issuer != authority.subject or not _is_issued(found, authority):
            state = f"of another authority than {CA}.crt, so no node accepts it"
        click.echo(f"kept: {printable(file)}, {state}; {printable(renew)}", err=True)


def _is_issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _hosts_of(path: Path) -> set[str]:
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return set()
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def _node_settings(folder: Path) -> str:
    settings = {
        SSL_CERTIFICATE: f"{folder / NODE}.crt",
        SSL_KEY: f"{folder / NODE}.key",
        SSL_CA: f"{folder / CA}.crt",
        SSL_CLIENT_AUTH: "required",
    }
    return "".join(f"{setting.name} = {json.dumps(value, ensure_ascii=False)}\n" for setting, value in settings.items())


def _client_settings(folder: Path, name: str) -> str:
    lines = {
        "security.protocol": "SSL",
        "ssl.ca.location": f"{folder / CA}.crt",
        "ssl.certificate.location": f"{folder / name}.crt",
        "ssl.key.location": f"{folder / name}.key",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _check_client(name: str) -> None:
    kind, colon, rest = name.partition(":")
    if colon and kind.lower() == PRINCIPAL_TYPE.lower():
        meant = f" Did you mean --client {shlex.quote(printable(rest))}?" if rest else ""
        raise click.ClickException(
            f"{printable(name)!r} is a principal; expected the name alone, since {PRINCIPAL_TYPE}: is put before it."
            f"{meant}"
        )
    if not name or len(name.encode()) > _NAME_MAX or "/" in name or name in {CA, NODE} or name != printable(name):
        raise click.ClickException(
            f"{printable(name)!r} cannot be a client's name; expected 1 to {_NAME_MAX} printable bytes without "
            f"'/', and neither {CA!r} nor {NODE!r}"
        )


def _check_host(host: str) -> None:
    expected = "Expected a name in ASCII, such as node.example, or an address"
    if not host:
        raise click.ClickException(f"'' cannot be the host of a certificate. {expected}")
    try:
        _host(host)
    except ValueError as error:
        raise click.ClickException(
            f"{printable(host)!r} cannot be the host of a certificate: {error} {expected}"
        ) from error


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--client", "clients", multiple=True, required=True, metavar="NAME",
              help="A client, who is then User:NAME; may be repeated.")  # fmt: skip
@click.option("--host", "hosts", multiple=True, default=("localhost", "127.0.0.1", "::1"), show_default=True,
              help="Name or address by which the nodes are called; may be repeated.")  # fmt: skip
def certs(folder: Path, clients: tuple[str, ...], hosts: tuple[str, ...]) -> None:
    """Make an authority in FOLDER, and certificates of it for the nodes and for clients, valid for a year.

    For development: anyone who can read FOLDER can make more of them. It also writes the settings to use them:
    node.toml for `sharegroups up --config`, and NAME.properties for a client, or for --command-config. What FOLDER
    has already is kept, and named on standard error, so run it again to add clients. Exit status: 0, or 1 when
    something could not be made.
    """
    for name in clients:
        _check_client(name)
    for host in hosts:
        _check_host(host)
    at = folder.absolute()
    try:
        before = _files_in(at)
        authority = _authority_in(at)
        node = _made(at, NODE, authority, hosts, (f"{NODE}.toml", _node_settings(at)))
        given = click.get_current_context().get_parameter_source("hosts") is not ParameterSource.DEFAULT
        if given and (missing := sorted(set(hosts) - _hosts_of(at / f"{NODE}.crt"))):
            click.echo(
                f"{printable(str(at))}/{NODE}.crt is kept, but is not for {', '.join(missing)}; remove it to have it "
                "made again",
                err=True,
            )
        click.echo(f"nodes: sharegroups up --config {shlex.quote(str(node))}")
        for name in clients:
            file = _made(at, name, authority, (), (f"{name}.properties", _client_settings(at, name)))
            click.echo(f"User:{name}: sharegroups topics list --command-config {shlex.quote(str(file))}")
        _report_kept(at, before, [NODE, *dict.fromkeys(clients)])
    except OSError as error:
        raise click.ClickException(f"not all certificates could be made in {at}: {printable(str(error))}") from error
