"""Creates the transport for the security settings: plaintext, TLS or mutual TLS, with or without a token (CM-60)."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from kip932.rpc import grpc_transport
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.loopback import is_loopback
from kip932.rpc.transport import CLIENT_ID_KEY
from sharegroups.config import Config
from sharegroups.errors import ConfigError
from sharegroups.forks import check_grpc

if TYPE_CHECKING:
    import grpc


def transport_for(config: Config) -> GrpcTransport:
    """Return a new transport.

    Raises ConfigError when a file cannot be read or settings contradict each other, and IllegalStateError in a process
    where gRPC cannot work (CL-149, CL-150).
    """
    check_grpc(grpc_transport.used_in)
    token = config["sasl.oauthbearer.token"]
    metadata = [("authorization", f"Bearer {token}")] if token else []
    if client_id := config["client.id"]:
        metadata.append((CLIENT_ID_KEY, client_id.encode("ascii", "replace").decode()))
    fixed = tuple(metadata)
    credentials = _Credentials(config) if config["security.protocol"] == "SSL" else None
    refusal = None
    if token and credentials is None and not config["sasl.oauthbearer.allow.plaintext"]:
        refusal = _no_token_in_plaintext
        for address in config.bootstrap:
            if why := refusal(address):
                raise ConfigError(why)
    return GrpcTransport(credentials, (lambda: fixed) if fixed else None, refusal)


def _no_token_in_plaintext(address: str) -> str:
    """Return why the bearer token is not sent to this address without TLS; "" for an address of this machine."""
    if is_loopback(address.rpartition(":")[0]):
        return ""
    return (
        f"sasl.oauthbearer.token would go to {address} without TLS, where anyone on the way can read and use it; set "
        "security.protocol=SSL, or, where the network is trusted, sasl.oauthbearer.allow.plaintext=true"
    )


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
