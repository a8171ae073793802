"""The certificates of a node: read from files, checked before use, and read again while the node runs (CM-60).

gRPC asks for the current ones at each new connection, so a renewed certificate is used without a restart. A file that
cannot be used changes nothing: the node goes on with what it has, and reports why.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kip932.acls import PRINCIPAL_TYPE
from kip932.certificate_times import outdated
from shard_runtime.rpc.rereading import read_for_ever

log = structlog.get_logger(__name__)

#: A certificate that expires within this many days is logged once for each time it is read.
EXPIRY_WARNING_DAYS: Final = 7
_DAY_S: Final = 86_400
_HOST_NAME_MAX: Final = 253
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
#: The elliptic curves that gRPC's TLS signs with.
_CURVES: Final = ("secp256r1", "secp384r1")
_KINDS: Final = "an RSA key, or one on the curve P-256 or P-384"
#: What `cryptography` raises for contents that it cannot decode.
_UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


class CertificateError(Exception):
    """Certificates that cannot be used: the message names the file, what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of PEM files: this node's certificate, with the intermediate ones after it, its key, and the certificates
    of the authorities by which it checks clients and other nodes."""

    certificate: Path
    key: Path
    authorities: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the files contain, checked. `ends_at`: when this node's certificate expires; `names`: the names and
    addresses that it is for; `principal`: `User:` and its common name, None if it has none; `remarks`: what works less
    well than it seems, such as an authority that has expired beside others."""

    certificate: bytes
    key: bytes
    authorities: bytes
    ends_at: datetime
    names: tuple[str, ...]
    principal: str | None = None
    remarks: tuple[str, ...] = field(default=(), compare=False)


def read_certificates(files: CertificateFiles, now: datetime, hosts: Sequence[str] = ()) -> Certificates:
    """Read the files and check them against each other and the time. `hosts`: the host names and addresses at which the
    node is reached. Raises CertificateError."""
    certificate, key, authorities = (_read(path) for path in (files.certificate, files.key, files.authorities))
    chain = _parse(files.certificate, certificate)
    for each in chain:
        if reason := _outdated(files.certificate, each, now):
            raise CertificateError(reason)
    _check_key(files, chain[0], key)
    purposes = _purposes(files.certificate, chain[0])
    if purposes and not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & purposes:
        raise CertificateError(
            f"the certificate of {chain[0].subject.rfc4514_string()} in {files.certificate} is not for servers; "
            "expected the extended key usage serverAuth, or none"
        )
    trusted = _parse(files.authorities, authorities)
    outdated = tuple(reason for each in trusted if (reason := _outdated(files.authorities, each, now)))
    if len(outdated) == len(trusted):
        raise CertificateError(outdated[0])
    ends_at = min(each.not_valid_after_utc for each in chain)
    names = _names(files.certificate, chain[0])
    others = [host for host in hosts if not any(covers(name, host) for name in names)]
    remarks = [*outdated, *_refused_by_nodes(files, chain, trusted, purposes)]
    if others:
        remarks.append(
            f"the certificate in {files.certificate} is for {', '.join(names) or 'no name'}, and this node is called "
            f"{' and '.join(others)} (advertised.host, internal.advertised.host, external addresses)"
        )
    return Certificates(certificate, key, authorities, ends_at, names, _principal(chain[0]), tuple(remarks))


class NodeCertificates:
    """The certificates that a node uses now. Raises CertificateError when the files cannot be used at the start.

    `hosts`: by which clients and other nodes call this node; a certificate for others is reported. `failures`: how
    often files that had changed could not be used.
    """

    def __init__(
        self,
        files: CertificateFiles,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        hosts: Sequence[str] = (),
    ) -> None:
        self._files = files
        self._hosts = tuple(hosts)
        self._now = now
        self._reason = ""
        self._for_clients: tuple[Certificates, grpc.ChannelCredentials] | None = None
        self.current = read_certificates(files, now(), hosts)
        self.failures = 0
        self._warn()

    @property
    def days_left(self) -> float:
        """Days until this node's certificate expires; negative afterwards."""
        return (self.current.ends_at - self._now()).total_seconds() / _DAY_S

    @property
    def principal(self) -> str | None:
        """This node's principal for other nodes; None if its certificate has no common name."""
        return self.current.principal

    def reload(self, *, report: bool = True) -> bool:
        """Read the files again; return whether they can be used. Otherwise what was in use stays; with `report` this is
        logged, once for each reason."""
        try:
            found = read_certificates(self._files, self._now(), self._hosts)
        except Exception as error:
            if not report:
                return False
            reason = str(error) if isinstance(error, CertificateError) else f"{type(error).__name__}: {error}"
            if reason != self._reason:
                self.failures += 1
                self._reason = reason
                log.error("certificates_unusable", cause=reason, effect="this node keeps those that it has")
            return False
        if self._reason and found == self.current:
            log.info("certificates_usable_again", effect="the files again contain what this node uses")
        self._reason = ""
        if found != self.current:
            self.current = found
            log.info("certificates_reloaded", ends_at=found.ends_at.isoformat(), names=", ".join(found.names))
            self._warn()
        return True

    async def watch(self) -> None:
        """Read the files again for ever, in a thread, since files may be on a slow disk."""
        await read_for_ever(lambda report: asyncio.to_thread(self.reload, report=report))

    def for_server(self, *, client_required: bool) -> grpc.ServerCredentials:
        """Return the credentials of a listener. `client_required`: refuse clients without a certificate of our
        authorities; without it they are not asked for one."""
        used = self.current

        def configuration() -> grpc.ServerCertificateConfiguration:
            roots = used.authorities if client_required else None
            return grpc.ssl_server_certificate_configuration([(used.key, used.certificate)], roots)

        def newer() -> grpc.ServerCertificateConfiguration | None:
            """gRPC calls this on one of its threads for each new connection; None means no change.

            For any other answer gRPC 1.85 frees what it uses for handshakes and makes it again, without regard to other
            threads that begin a handshake: a few hundred connections at once ended the node (CM-197).
            """
            nonlocal used
            now = self.current
            if now is used:
                return None
            used = now
            return configuration()

        return grpc.dynamic_ssl_server_credentials(
            configuration(),
            newer,  # type: ignore[arg-type]  # its types do not know that None means no change, as gRPC documents
            client_required,
        )

    def for_client(self) -> grpc.ChannelCredentials:
        """Return credentials for calls to other nodes; the same object until the files change."""
        now = self.current
        if self._for_clients is None or self._for_clients[0] is not now:
            self._for_clients = now, grpc.ssl_channel_credentials(now.authorities, now.key, now.certificate)
        return self._for_clients[1]

    def for_self(self) -> tuple[grpc.ChannelCredentials, str]:
        """Return credentials for calls to this node's own port, which trust its own certificate alone, and the name
        by which to call it, "" if it has none. A certificate need not be valid for the address that the node listens
        on."""
        now = self.current
        name = next((name for name in now.names if 0 < len(name) <= _HOST_NAME_MAX), "")
        return grpc.ssl_channel_credentials(now.certificate, now.key, now.certificate), name

    def _warn(self) -> None:
        for remark in self.current.remarks:
            log.warning("certificates_questionable", cause=remark, effect="other nodes or clients may be refused")
        if self.days_left < EXPIRY_WARNING_DAYS:
            log.warning(
                "certificate_ends_soon",
                file=str(self._files.certificate),
                ends_at=self.current.ends_at.isoformat(),
                effect="afterwards clients and other nodes refuse this node",
                try_next="renew it; the node reads the new file without a restart",
            )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}") from error


def _parse(path: Path, pem: bytes) -> list[x509.Certificate]:
    if pem.startswith(BOM_UTF8):
        raise CertificateError(f"{path} begins with a byte order mark, which gRPC does not read; save it without one")
    try:
        found = x509.load_pem_x509_certificates(pem)
    except _UNREADABLE as error:
        raise CertificateError(f"{path} has no certificate that can be read; expected certificates in PEM") from error
    if len(found) != pem.count(_BEGIN):
        raise CertificateError(
            f"{path} has {pem.count(_BEGIN)} certificates, of which {len(found)} are whole; expected all of them"
        )
    return found


def _check_key(files: CertificateFiles, own: x509.Certificate, key: bytes) -> None:
    try:
        private = load_pem_private_key(key, None)
    except (TypeError, *_UNREADABLE) as error:
        found = "an encrypted key" if isinstance(error, TypeError) else "no such key"
        raise CertificateError(f"{files.key} has {found}; expected one private key in PEM, not encrypted") from error
    try:
        public = own.public_key()
    except _UNREADABLE as error:
        raise CertificateError(f"{files.certificate} has a key of an unknown kind; expected {_KINDS}") from error
    if not isinstance(public, RSAPublicKey) and not (
        isinstance(public, EllipticCurvePublicKey) and public.curve.name in _CURVES
    ):
        kind = public.curve.name if isinstance(public, EllipticCurvePublicKey) else type(public).__name__
        raise CertificateError(f"{files.certificate} has a key ({kind}) that gRPC cannot serve; expected {_KINDS}")
    if _spki(private.public_key()) != _spki(public):
        raise CertificateError(
            f"the key in {files.key} does not belong to the certificate in {files.certificate} "
            f"({own.subject.rfc4514_string()}); expected the key that the certificate was made for"
        )


def _outdated(path: Path, certificate: x509.Certificate, now: datetime) -> str:
    """Return why a certificate is not valid now; "" if it is."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return outdated(certificate.subject.rfc4514_string(), str(path), begins, ends, now)


def _spki(key: object) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]


def _names(path: Path, certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return tuple(str(each.value) for each in common)
    except _UNREADABLE as error:
        raise CertificateError(f"{path} has extensions that cannot be read: {error}") from error
    hosts = [str(name) for name in names.get_values_for_type(x509.DNSName)]
    return (*hosts, *map(str, names.get_values_for_type(x509.IPAddress)))


def _principal(certificate: x509.Certificate) -> str | None:
    """Return the principal as gRPC reports it to other nodes: by the first common name (CM-60)."""
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return f"{PRINCIPAL_TYPE}:{common[0].value!s}" if common else None


def _purposes(path: Path, certificate: x509.Certificate) -> set[object]:
    """Return the extended key usages; empty if it is for anything."""
    try:
        return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return set()
    except _UNREADABLE as error:
        raise CertificateError(f"{path} has extensions that cannot be read: {error}") from error


def covers(name: str, host: str) -> bool:
    """Return whether a certificate for this name, which may begin with `*.`, is for this host."""
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and name[2:] == host.partition(".")[2])


def _refused_by_nodes(
    files: CertificateFiles, chain: list[x509.Certificate], trusted: list[x509.Certificate], purposes: set[object]
) -> Iterator[str]:
    """Yield why other nodes, which have the same authorities, would refuse this node's calls. A node that is alone
    works without."""
    name = chain[0].subject.rfc4514_string()
    if not any(_issued(chain[-1], authority) for authority in trusted):
        yield f"the certificate of {name} in {files.certificate} was not issued by an authority in {files.authorities}"
    if purposes and not {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & purposes:
        yield f"the certificate of {name} in {files.certificate} is not for clients (extended key usage clientAuth)"


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    if certificate == authority:
        return True
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
