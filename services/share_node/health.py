"""`python -m share_node.health`: asks this container's process whether it is ready, for health checks of images.

It reads the same settings from environment and file as the process, and so the same port; it cannot know a port given
as a flag. Kubernetes asks the gRPC health services itself and does not need this.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from kip932.printable import printable
from shard_runtime.config.process_settings import (
    HEALTH_LISTEN_PORT,
    LISTEN_HOST,
    LISTEN_PORT,
    SSL_CERTIFICATE,
    Settings,
    SettingsError,
    load_settings,
)
from shard_runtime.rpc.server import LIVENESS, READINESS, STARTUP

#: A living process answers within a few milliseconds; the caller's own time-out is a few seconds.
ANSWER_WAIT_S: Final = 2.0
SERVICES: Final = (STARTUP, LIVENESS, READINESS)


def address_of(settings: Settings) -> str:
    """Return the address at which the process with these settings serves health without TLS, from the same machine.
    Raises SettingsError when there is none with a fixed port."""
    plain = not settings[SSL_CERTIFICATE] and settings[HEALTH_LISTEN_PORT] < 0
    setting = LISTEN_PORT if plain else HEALTH_LISTEN_PORT
    host, port = settings[LISTEN_HOST], settings[setting]
    if port < 0:
        raise SettingsError(
            f"the process serves TLS, but this check does not speak it; give the process a port for health alone with "
            f"{setting.environment}"
        )
    if port == 0:
        raise SettingsError(
            f"{setting.name} is 0, so its address is not known here; give the process a port with {setting.environment}"
        )
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return f"{host}:{port}"
    if found.is_unspecified:
        host = "127.0.0.1" if found.version == 4 else "::1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def status_of(address: str, service: str, wait_s: float = ANSWER_WAIT_S) -> str:
    """Return `SERVING`, `NOT_SERVING`, or the gRPC status of the failed call, such as `UNAVAILABLE`."""
    # No proxy from the environment: the process is on this machine.
    async with grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=wait_s
            )
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print one line with what was found. Returns 0 when the service (`readiness` unless named) is serving, else 1."""
    service = arguments[0] if arguments else READINESS
    if service not in SERVICES:
        print(f"Error: {service!r} is not a health service; expected one of {', '.join(SERVICES)}", file=sys.stderr)
        return 1
    try:
        address = address_of(load_settings(environ=environ))
    except SettingsError as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
        return 1
    status = asyncio.run(status_of(address, service))
    print(f"{service} of {address}: {status}")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
