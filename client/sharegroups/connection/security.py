"""Creates the transport for the security settings: plaintext, TLS or mutual TLS, with or without a token (CM-60)."""

from __future__ import annotations

import base64
import contextlib
import logging
import math
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kip932.certificate_times import certificate_times, outdated
from kip932.rpc import grpc_transport
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.loopback import is_loopback
from kip932.rpc.transport import CLIENT_ID_KEY
from kip932.secret_files import readable_by_all
from sharegroups.config import Config
from sharegroups.connection.token_function import TokenFunction
from sharegroups.errors import ConfigError
from sharegroups.forks import check_grpc

if TYPE_CHECKING:
    import grpc


log = logging.getLogger(__name__)

_TOKENS: Final = ("sasl.oauthbearer.token", "sasl.oauthbearer.token.location")
_PASSWORDS: Final = ("sasl.password", "sasl.password.location")
_SECRET_FILES: Final = ("ssl.key.location", "sasl.oauthbearer.token.location", "sasl.password.location")
#: The number of files that are remembered as checked for readers.
_WARNED_MAX: Final = 100
#: The minimum time between two checks of a file for a change, in seconds.
_CHECK_S: Final = 1.0


def transport_for(config: Config) -> GrpcTransport:
    """Return a new transport.

    Raises ConfigError when a file cannot be read or settings contradict each other, and IllegalStateError in a process
    where gRPC cannot work (CL-149, CL-150).
    """
    check_grpc(grpc_transport.used_in)
    for name in _SECRET_FILES:
        if config[name]:
            _warn_if_readable(name, config[name])
    authorization = _Authorization(config)
    named: tuple[tuple[str, str], ...] = ()
    if client_id := config["client.id"]:
        named = ((CLIENT_ID_KEY, client_id.encode("ascii", "replace").decode()),)
    credentials = _Credentials(config) if config["security.protocol"] == "SSL" else None
    shown = credentials.shown if credentials is not None else str
    refusal = plaintext_refusal(config, authorization.setting) if authorization.setting else None
    if refusal is not None:
        for address in config.bootstrap:
            if why := refusal(address):
                raise ConfigError(why)
    if authorization.function is not None:
        tokens = TokenFunction(authorization.function, authorization.made)
        return GrpcTransport(credentials, lambda: (*tokens(), *named), refusal, tokens, shown=shown)
    if authorization.setting:
        renewal = authorization if config.renews_credentials else None
        return GrpcTransport(credentials, lambda: (*authorization(), *named), refusal, renewal, shown=shown)
    return GrpcTransport(credentials, (lambda: named) if named else None, refusal, shown=shown)


@lru_cache(_WARNED_MAX)
def _warn_if_readable(setting: str, path: str) -> None:
    """Log once for each file that every user of the machine can read the secret in it (CM-204)."""
    if cause := readable_by_all(path):
        log.warning(
            "%s: %s. Anyone who reads it can do what this client may do; try: chmod o= %s", setting, cause, path
        )


def plaintext_refusal(config: Config, secret: str) -> Callable[[str], str] | None:
    """Return a function that says why a secret of this name is not sent to an address without TLS; None if it may be
    sent everywhere."""
    if config["security.protocol"] == "SSL" or config["sasl.oauthbearer.allow.plaintext"]:
        return None
    return partial(_no_plaintext, secret)


def _no_plaintext(secret: str, address: str) -> str:
    """Return why a secret is not sent to this address without TLS; "" for an address of this machine."""
    if is_loopback(address.rpartition(":")[0]):
        return ""
    return (
        f"{secret} would go to {address} without TLS, where anyone on the way can read and use it; set "
        "security.protocol=SSL, or, where the network is trusted, sasl.oauthbearer.allow.plaintext=true"
    )


class _Authorization:
    """Returns the metadata that says who this client is: its token, or its name and password (CL-158). A file is read
    again when it has changed, checked at most once in `_CHECK_S`, and when a node has refused what was sent; while it
    cannot be read, the last content is sent. Raises ConfigError at first.

    `setting`: where the secret comes from; "" without one. `function`: what returns it, for a TokenFunction to call.
    """

    def __init__(self, config: Config) -> None:
        given = [name for name in (*_TOKENS, *_PASSWORDS) if config[name]]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} are both set; a client shows one of them")
        self.setting = given[0] if given else ""
        self._name = config["sasl.username"]
        if bool(self._name) != (self.setting in _PASSWORDS):
            raise ConfigError("sasl.username belongs together with sasl.password or sasl.password.location")
        value = config[self.setting] if given else ""
        self.function: Callable[[], Any] | None = value if callable(value) else None
        self._path = Path(value) if self.setting.endswith(".location") else None
        self._checked_s, self._stamp = time.monotonic(), self._stat()
        self._metadata: tuple[tuple[str, str], ...] = ()
        if self.function is None:
            self._metadata = self.made(value if self._path is None else self._read(self._path))

    def __call__(self) -> tuple[tuple[str, str], ...]:
        now_s = time.monotonic()
        if self._path is not None and now_s - self._checked_s >= _CHECK_S:
            self._checked_s, stamp = now_s, self._stat()
            if stamp != self._stamp:
                with contextlib.suppress(ConfigError):
                    self._metadata = self.made(self._read(self._path))
                    self._stamp = stamp
        return self._metadata

    async def prepare(self, address: str) -> None:
        """Do nothing: a file is read when a call's metadata are made."""

    def refused(self) -> bool:
        """Note that a node has refused the newest content. Returns whether the file has another one by now."""
        before, self._checked_s = self._metadata, -math.inf
        return self() != before

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return found and (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self, path: Path) -> str:
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.setting} is {str(path)!r}, which cannot be read: {error}") from error
        if not text or "\n" in text:
            raise ConfigError(f"{self.setting} is {str(path)!r}, which does not have one line of text")
        return text

    def made(self, secret: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata for a token or password. Raises ConfigError for what none can have."""
        if not self.setting:
            return ()
        if self.setting in _PASSWORDS:
            pair = base64.b64encode(f"{self._name}:{secret}".encode()).decode()
            return (("authorization", f"Basic {pair}"),)
        if not secret.isascii() or not secret.isprintable():
            raise ConfigError(f"{self.setting} has characters that no token has; expected letters, digits and ._~+/-=")
        return (("authorization", f"Bearer {secret}"),)


class _Credentials:
    """Returns the credentials for a new channel, from the files as they are then; while one of them cannot be read or
    used, the last ones. So renewed certificates are used from the next connection on. Raises ConfigError at first."""

    def __init__(self, config: Config) -> None:
        self._config = config
        if bool(config["ssl.certificate.location"]) != bool(config["ssl.key.location"]):
            raise ConfigError("ssl.certificate.location and ssl.key.location belong together; set both or neither")
        self._files: tuple[bytes | None, ...] = ()
        self._read_files()

    def __call__(self) -> grpc.ChannelCredentials:
        with contextlib.suppress(ConfigError):
            self._read_files()
        return self._last

    def shown(self) -> str:
        """Return what is known about the client certificate that nodes are shown, which one of them may have
        refused."""
        path, pem = self._config["ssl.certificate.location"], self._files[-1]
        if pem is None:
            return "perhaps it requires a client certificate, and ssl.certificate.location is not set"
        found = certificate_times(pem)
        subject = f"CN={found.common_name}" if found is not None else "an unknown subject"
        why = found and outdated(subject, path, found.begins, found.ends, datetime.now(UTC))
        return why or (
            f"perhaps it did not accept the certificate of {subject} in {path} (ssl.certificate.location); expected "
            "one of an authority in the node's ssl.ca.location"
        )

    def _read_files(self) -> None:
        import grpc  # noqa: PLC0415 - first imported by grpc_transport, which chooses how

        names = ("ssl.ca.location", "ssl.key.location", "ssl.certificate.location")
        files = tuple(_read(self._config, name) for name in names)
        if files != self._files:
            _check(self._config)
            self._files = files
            self._last = grpc.ssl_channel_credentials(*files)


def _check(config: Config) -> None:
    """Raise ConfigError for files that TLS cannot use, which gRPC would say only of each connection, in few words."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authorities, certificate, key = (config[f"ssl.{name}.location"] for name in ("ca", "certificate", "key"))
    try:
        if authorities:
            context.load_verify_locations(authorities)
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl.ca.location is {authorities!r}, which has no certificate in PEM: {error}") from error
    try:
        if certificate:
            context.load_cert_chain(certificate, key, lambda: "")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"ssl.certificate.location is {certificate!r} and ssl.key.location {key!r}, which cannot be used together "
            f"({error}); expected a certificate and its private key in PEM, not encrypted"
        ) from error


def _read(config: Config, name: str) -> bytes | None:
    path = config[name]
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} is {path!r}, which cannot be read: {error.strerror}") from error
