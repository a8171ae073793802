"""How an attack, the canary or a test connects to a node: in the clear, or with TLS and a certificate.

Every attack opens its connections, channels and clients here, so that one and the same attack runs against a cluster
with TLS and against one without.
"""

from __future__ import annotations

import functools
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from kip932.rpc.grpc_transport import GrpcTransport

_CONNECT_S: Final = 2.0
#: Longer than a handshake takes beside an attack: to be kept waiting is what the canary and the watch judge.
_HANDSHAKE_S: Final = 20.0
_FILES: Final = ("ssl.ca.location", "ssl.key.location", "ssl.certificate.location")


def tcp(address: str) -> socket.socket:
    """Open a TCP connection to `host:port`, without TLS. Raises OSError."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_CONNECT_S)


@dataclass(frozen=True, slots=True)
class Dial:
    """Connects as one principal. `security`: the client's settings for TLS, by name; none for plaintext."""

    security: Mapping[str, str] = field(default_factory=dict)

    def settings(self, bootstrap: str) -> dict[str, str]:
        """Return the settings of a client of this suite."""
        return {"bootstrap.servers": bootstrap, **self.security}

    def connect(self, address: str) -> socket.socket:
        """Open a connection to `host:port` over which HTTP/2 can be sent. Raises OSError."""
        connection = tcp(address)
        if not self.security:
            return connection
        try:
            connection.settimeout(_HANDSHAKE_S)
            host = address.rpartition(":")[0]
            return _context(*self._paths).wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise

    def channel(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
        """Return a new channel, to be closed by the caller."""
        credentials = self.credentials
        if credentials is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, credentials, options)

    def transport(self) -> GrpcTransport:
        """Return a new transport; it belongs to the event loop in which it is first used."""
        credentials = self.credentials
        return GrpcTransport(None if credentials is None else lambda: credentials)

    @property
    def credentials(self) -> grpc.ChannelCredentials | None:
        """gRPC's credentials; None without TLS."""
        return _credentials(*self._paths) if self.security else None

    def context(self) -> ssl.SSLContext:
        """Return Python's context for connections as this principal."""
        return _context(*self._paths)

    @property
    def _paths(self) -> tuple[str, ...]:
        return tuple(self.security.get(name, "") for name in _FILES)


PLAIN: Final = Dial()


@functools.cache
def _context(authorities: str, key: str, certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


@functools.cache
def _credentials(*paths: str) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(*(Path(path).read_bytes() if path else None for path in paths))
