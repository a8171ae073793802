"""`sharegroups scaler`: the external scaler as a process, with the settings, health services and draining that roles
have, too."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

from kip932.keda import external_scaler_pb2
from kip932.log_lines import JSON
from shard_runtime.config.process_settings import (
    ALLOW_PLAINTEXT,
    CONNECTION_AGE_MS,
    DRAIN_GRACE_MS,
    LISTEN_HOST,
    LISTEN_PORT,
    LOG_FORMAT,
    LOG_LEVEL,
    SSL_CLIENT_AUTH,
    SSL_KEY,
    Settings,
    load_settings,
)
from shard_runtime.logs import configure_logs
from shard_runtime.rpc.server import ListenError, RpcOptions, RpcServer, add_whole
from shard_runtime.rpc.table import Port
from share_node.node.internal import node_certificates, warn_of_readable_secrets
from share_node.node.serve import START_ERRORS, StopSignal, ready_line, run
from share_node.scaler.backlog import BacklogReader
from share_node.scaler.service import ExternalScaler
from sharegroups.aio.admin import Admin
from sharegroups.cli.output import lines_of, pairs
from sharegroups.config import ADMIN, Config
from sharegroups.connection.security import transport_for
from sharegroups.errors import ConfigError

_NAME = "scaler"
_SERVICE = external_scaler_pb2.DESCRIPTOR.services_by_name["ExternalScaler"]
#: KEDA's requests have a few words of metadata.
_MESSAGE_MAX_BYTES = 1 << 16
_CALLS_MAX = 100


async def serve_scaler(settings: Settings, client: Mapping[str, str], stop: asyncio.Event) -> None:
    """Serve until `stop` is set; `client`: how to reach the cluster. Raises one of START_ERRORS or ConfigError."""
    options = RpcOptions(
        message_max_bytes=_MESSAGE_MAX_BYTES,
        request_max_bytes=_MESSAGE_MAX_BYTES,
        concurrent_calls_max=_CALLS_MAX,
        connection_age_ms=settings[CONNECTION_AGE_MS],
        allow_plaintext=settings[ALLOW_PLAINTEXT],
    )
    failures: list[str] = []

    def failed(why: str) -> None:
        failures.append(why)
        stop.set()

    warn_of_readable_secrets(settings, SSL_KEY)
    certificates = node_certificates(settings)
    renewals: asyncio.Future[None] | None = None
    server = RpcServer(
        settings[LISTEN_HOST],
        settings[LISTEN_PORT],
        options,
        certificates,
        client_required=settings[SSL_CLIENT_AUTH] == "required",
        failed=failed,
    )
    given = {"client.id": "scaler", **client}
    transport = transport_for(Config(ADMIN, given))
    try:
        async with Admin(given, transport=transport) as admin:
            service = ExternalScaler(BacklogReader(admin, transport), lambda: time.time_ns() // 1_000_000)
            add_whole(server, Port.SCALER, _SERVICE, service)
            await server.start()
            if certificates is not None:
                renewals = asyncio.ensure_future(certificates.watch())
            # Ready even while the cluster is not: KEDA then gets UNAVAILABLE, and keeps the current workers.
            await server.ready(True)
            click.echo(ready_line(server.address, _NAME if settings[LOG_FORMAT] == JSON else ""))
            await stop.wait()
            await server.drain(settings[DRAIN_GRACE_MS] / 1000)
            if failures:
                raise ListenError(failures[0])
    finally:
        if renewals is not None:
            renewals.cancel()
        await transport.close()


@click.command()
@click.option("--bootstrap-server", "bootstrap", default="127.0.0.1:7932", envvar="SHAREGROUPS_BOOTSTRAP",
              show_default=True, show_envvar=True, help="host:port of any nodes, separated by commas.")  # fmt: skip
@click.option("--command-config", type=click.Path(path_type=Path, exists=True),
              help="Client settings (name=value lines), such as those for TLS to the nodes.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="Settings file (TOML).")
def scaler(bootstrap: str, command_config: Path | None, config: Path | None) -> None:
    """Report to KEDA how many workers a share group needs: by lag, and by the age of its oldest unfinished record.

    Listens where the settings listen.host and listen.port say. Exit status: 0 after Ctrl-C, 143 after SIGTERM, 1
    when it cannot listen.
    """
    status = 1

    async def body() -> None:
        nonlocal status
        stop = StopSignal()
        try:
            settings = load_settings(environ=os.environ, file=config)
            configure_logs(settings[LOG_LEVEL], settings[LOG_FORMAT], service=_NAME)
            client = {"bootstrap.servers": bootstrap} | pairs(lines_of(command_config))
            await serve_scaler(settings, client, stop.received)
        except (*START_ERRORS, ConfigError) as error:
            raise click.ClickException(str(error)) from error
        else:
            status = stop.status

    run(body)
    sys.exit(status)
