"""TLS of the Kafka listener: with the certificates that the node uses now (KL-26)."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from typing import Final

from shard_runtime.rpc.certificates import Certificates, NodeCertificates

_MEMORY_FILE: Final = "kafka-listener-certificate"


def certificate_of(transport: asyncio.BaseTransport) -> tuple[bytes | None, float | None]:
    """Return the certificate that a client has shown, in DER, and for how long it is still valid, in s; None for both
    without one."""
    connection = transport.get_extra_info("ssl_object")
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    if certificate is None:
        return None, None
    return certificate, ssl.cert_time_to_seconds(connection.getpeercert()["notAfter"]) - time.time()


class ServerContexts:
    """The settings of TLS for new connections. `client_required`: refuse clients without a certificate of our
    authorities; without it they are not asked for one."""

    def __init__(self, certificates: NodeCertificates, *, client_required: bool) -> None:
        self._certificates = certificates
        self._client_required = client_required
        self._made: tuple[Certificates, ssl.SSLContext] | None = None

    def current(self) -> ssl.SSLContext:
        """Return the settings with the present certificates; the same object until those change."""
        now = self._certificates.current
        if self._made is None or self._made[0] is not now:
            self._made = now, server_context(now, client_required=self._client_required)
        return self._made[1]


def server_context(certificates: Certificates, *, client_required: bool) -> ssl.SSLContext:
    """Return a server's settings. A session is not resumed: each connection shows its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    # The library reads files alone. This one is in memory: the key is written nowhere.
    with open(os.memfd_create(_MEMORY_FILE), "wb") as file:
        file.write(certificates.key + b"\n" + certificates.certificate)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    if client_required:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certificates.authorities.decode("ascii", "ignore"))
    return context
