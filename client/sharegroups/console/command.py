"""`sharegroups console`: serves pages for a browser (CT-161, CT-162)."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from kip932.rpc.loopback import is_loopback
from sharegroups.cli.interrupts import INTERRUPTED, status_of, terminable
from sharegroups.cli.output import FILE, UsageFailure, connection_options, print_stderr, settings
from sharegroups.config import ADMIN, Config
from sharegroups.console.audit import AuditLog
from sharegroups.console.guard import host_name, listen_refusal
from sharegroups.errors import ConfigError

INSTALL: Final = "in a clone of the project, pip install '.[cli,console]'"
#: How the audit log names a user who did not sign in, as the cluster does.
_ANONYMOUS: Final = "User:ANONYMOUS"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7980,
    show_default=True,
    help="Port to listen on; 0 for a free one.",
)
@click.option(
    "--allowed-host", "names", multiple=True, metavar="NAME", help="Name that browsers use for it; repeatable."
)
@click.option("--certificate", type=FILE, help="Its certificate for TLS, in PEM; with --key.")
@click.option("--key", type=FILE, help="The key of the certificate, in PEM.")
@click.option("--behind-tls-proxy", is_flag=True, help="A proxy in front of it does TLS.")
@click.option("--read-only", is_flag=True, help="Change nothing: only show.")
@click.option("--audit-log", type=click.Path(dir_okay=False, path_type=Path), help="File for a line about each change.")
@connection_options
def console(
    *,
    host: str,
    port: int,
    names: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
    behind_tls_proxy: bool,
    read_only: bool,
    audit_log: Path | None,
    bootstrap_server: str,
    command_config: Path | None,
) -> None:
    """Show groups, dead letters, topics and nodes in a browser, and mend what failed: redrive, purge, reset, configure.

    Only on this machine, without credentials in --command-config, no sign-in is needed. With such credentials it
    prints a link that signs in the person who opens it. If other machines can reach it, each user signs in with a name
    and password or a token of the cluster, and has the rights of that user.

    Exit status: 0 after Ctrl-C, 143 after SIGTERM, 1 when it cannot listen.
    """
    if (certificate is None) != (key is None):
        raise UsageFailure("--certificate and --key belong together; give both or none")
    if refusal := listen_refusal(host, has_certificate=certificate is not None, behind_tls_proxy=behind_tls_proxy):
        raise UsageFailure(refusal)
    given = settings(bootstrap_server, command_config)
    try:
        Config(ADMIN, given).check_bootstrap()
    except ConfigError as error:
        raise UsageFailure(str(error)) from error
    _require_packages()
    try:
        audit = AuditLog(audit_log)
    except OSError as error:
        raise UsageFailure(f"--audit-log {audit_log} cannot be written: {error.strerror}") from error
    listener = _listener(host, port)
    tls = None if certificate is None or key is None else (certificate, key)
    sys.exit(_serve(listener, given, audit, host=host, names=names, tls=tls, proxied=behind_tls_proxy,
                    read_only=read_only))  # fmt: skip


def _require_packages() -> None:
    try:
        import jinja2  # noqa: F401, PLC0415 - only this command needs it
        import starlette  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise click.ClickException(f"'console' needs the package {error.name!r}: {INSTALL}") from error


def _listener(host: str, port: int) -> socket.socket:
    """Return a bound socket. Raises UsageFailure."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageFailure(
            f"it cannot listen on {host}:{port}: {error.strerror}. Is another console running? Free port: --port 0"
        ) from error
    return listener


def _serve(
    listener: socket.socket,
    given: Mapping[str, Any],
    audit: AuditLog,
    *,
    host: str,
    names: tuple[str, ...],
    tls: tuple[Path, Path] | None,
    proxied: bool,
    read_only: bool,
) -> int:
    """Serve until a signal ends it. Returns the exit status."""
    from sharegroups.console.app import Console, Options  # noqa: PLC0415 - these need the extra
    from sharegroups.console.server import serve  # noqa: PLC0415
    from sharegroups.console.sign_in import has_credentials, own_name, without_credentials  # noqa: PLC0415

    is_private = is_loopback(host) and not proxied and not names
    link = secrets.token_urlsafe(32) if is_private and has_credentials(given) else ""
    port = listener.getsockname()[1]
    options = Options(
        without_credentials(given),
        port,
        frozenset({*map(host_name, names), host_name(f"[{host}]" if ":" in host else host)}),
        on_loopback=is_loopback(host),
        secure=tls is not None or proxied,
        read_only=read_only,
        local=_ANONYMOUS if is_private and not link else "",
        link=link,
        own=given if link else {},
        own_name=own_name(given),
    )
    try:
        with terminable():
            asyncio.run(serve(Console(options, audit), listener, tls, lambda: _say(options, host, tls, given)))
    except KeyboardInterrupt as interrupt:
        status = status_of(interrupt)
        return 0 if status == INTERRUPTED else status
    except OSError as error:
        print_stderr(f"Error: The console cannot serve: {error}")
        return 1
    return 0


def _say(options: Any, host: str, tls: object, given: Mapping[str, Any]) -> None:
    """Print where the console is, and who may use it how."""
    name = f"[{host}]" if ":" in host else host
    address = f"{'https' if tls else 'http'}://{name}:{options.port}/"
    cluster = given["bootstrap.servers"]
    if options.local:
        click.echo(f"console {address} of the cluster at {cluster}; Ctrl-C stops it")
    elif options.link:
        click.echo(f"console {address}sign-in?link={options.link}")
        print_stderr("Anyone who opens this link has your rights; Ctrl-C stops the console, and ends the link.")
    else:
        click.echo(f"console {address} of the cluster at {cluster}; its users sign in")
    if not (options.local or options.link) and any(name.startswith("sasl.") for name in given):
        print_stderr("Note: the token or password in --command-config is not used; each user signs in with their own.")
    if options.read_only:
        print_stderr("Note: --read-only: it changes nothing.")
