"""Commands that need the services: `up`, `init`, `certs`, `demo`, `scaler`, `state`, `backup`, `restore`, reached
through entry points, and all of them with `serve` as `python -m share_node`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kip932.sizes import size_bytes
from kip932.store_settings import STORE_URL
from shard_runtime.config.process_settings import KAFKA_LISTEN_PORT, LOG_LEVEL, METRICS_PORT
from shard_runtime.record_log.redis.startup_checks import ALLOWABLE
from shard_runtime.record_log.store_url import masked
from share_node.backup.commands import backup
from share_node.backup.commands import restore_command as restore
from share_node.certs import certs
from share_node.demo.command import demo
from share_node.node.serve import START_ERRORS, WITH_PARENT, StopSignal, run
from share_node.node.serve import main as run_serve
from share_node.node.up import LEADERS_MAX, Ready, UpOptions
from share_node.node.up import up as run_up
from share_node.scaler.command import scaler
from share_node.state.check import check, skip
from share_node.state.dump import state
from share_node.state.reading import dump
from share_node.state.repair import repair
from share_node.store.cluster_init import init
from share_node.store.data_directory import default_data
from share_node.store.embedded_store import EmbeddedStoreError
from share_node.store.store_option import password_option, url_with_password
from sharegroups.cli.group import ToolGroup
from sharegroups.cli.output import UsageFailure, print_stderr

DEFAULT_PORT = 7932


class Size(click.ParamType[int]):
    """A number of bytes, with or without a unit."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes. Raises click.BadParameter for what is not a size."""
        try:
            return value if isinstance(value, int) else size_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=default_data,
              show_default="~/.local/share/sharegroups", help="Directory of the data.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(0, 65_535),
              help="Port to listen on; 0 for any free one.")  # fmt: skip
@click.option("--store", help="Use this store instead of an embedded one: redis://, rediss://, redis+sentinel://…")
@password_option
@click.option(
    "--init",
    "initialise",
    is_flag=True,
    help="The store is new: make a cluster in it; also for an embedded store that was wiped on purpose.",
)
@click.option("--fsync", type=click.Choice(["always", "everysec"]), default="always", show_default=True,
              help="When the embedded store writes to disk; a killed one may lose 2 s with everysec.")  # fmt: skip
@click.option("--store-memory", type=Size(), metavar="SIZE", show_default="half of the memory here",
              help="Memory limit of the embedded store, as 512MiB or 2GiB: it then refuses writes. "
              "0 for none.")  # fmt: skip
@click.option("--processes", is_flag=True, help="Run the roles as separate processes, as in production. With "
              "metrics.port=N or health.listen.port=N they take N, N+1, N+2, …: group and share coordinator, "
              "partition leaders.")  # fmt: skip
@click.option("--leaders", default=1, show_default=True, type=click.IntRange(1, LEADERS_MAX), metavar="N",
              help="How many partition leaders. A partition is led by one of them, on one core. Each is a process "
              "with all roles; with --processes, with that role alone.")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(0, 65_535), metavar="N",
              help="Serve metrics for Prometheus at this port, 0 for any free one; with several processes, the second "
              f"at N+1, and so on. The setting {METRICS_PORT.name}.")  # fmt: skip
@click.option("--kafka-port", type=click.IntRange(0, 65_535), metavar="N",
              help="Serve Kafka's own clients and tools at this port, 0 for any free one; with several processes, the "
              f"second at N+1, and so on. The setting {KAFKA_LISTEN_PORT.name}.")  # fmt: skip
@click.option("--allow", multiple=True, type=click.Choice(ALLOWABLE), help="Accept what a check of the store found.")
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="Settings file (TOML).")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="One setting, as in docs/reference/settings.md; repeatable.")  # fmt: skip
@click.option("--log-level", type=click.Choice(LOG_LEVEL.choices),
              help=f"Least level that is logged, on standard error; the setting {LOG_LEVEL.name}.")  # fmt: skip
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="How readiness is printed, on standard output.")  # fmt: skip
@click.option(WITH_PARENT, "with_parent", is_flag=True, hidden=True)
def up(  # noqa: PLR0917 - click passes options by name
    data: Path,
    host: str,
    port: int,
    store: str | None,
    password_env: str,
    initialise: bool,
    fsync: str,
    store_memory: int | None,
    processes: bool,
    leaders: int,
    metrics_port: int | None,
    kafka_port: int | None,
    allow: tuple[str, ...],
    config: Path | None,
    assignments: tuple[str, ...],
    log_level: str | None,
    output: str,
    with_parent: bool,
) -> None:
    """Start everything: a durable store and all three services. Ctrl-C or SIGTERM stops it in good order.

    Exit status: 0 after Ctrl-C, 143 after SIGTERM, 1 when it could not start or go on.
    """
    settings = dict(_assignment(text) for text in assignments)
    if log_level is not None:
        settings[LOG_LEVEL.name] = log_level
    if metrics_port is not None:
        settings[METRICS_PORT.name] = str(metrics_port)
    if kafka_port is not None:
        settings[KAFKA_LISTEN_PORT.name] = str(kafka_port)
    # Beside a password of its own, the word before the @ is the user's name.
    shown = " ".join(("" if password_env else store or "", settings.get(STORE_URL.name, "")))
    if store is not None or password_env:
        store = url_with_password(store, password_env)
    if store is not None and store_memory is not None:
        raise UsageFailure("--store-memory is for the embedded store; set maxmemory in the configuration of yours")
    options = UpOptions(
        data, host, port, store, fsync, processes, leaders, initialise, frozenset(allow), config, settings,
        shown.strip(), store_memory,
    )  # fmt: skip
    sys.exit(_run_up(options, output, with_parent))


def _run_up(options: UpOptions, output: str, with_parent: bool) -> int:
    status = 1

    def announce(ready: Ready) -> None:
        if output == "json":
            click.echo(ready.as_json())
        else:
            click.echo(
                f"sharegroups is ready at {ready.bootstrap} after {ready.started_in_ms} ms; data in {ready.data}"
            )
            click.echo(ready.security())
            if options.store is None:
                if ready.limit is not None:
                    click.echo(ready.limit.text())
                click.echo(f"The store, for `sharegroups metrics`: {ready.store}")
                click.echo(
                    f"It has another name at each start; `sharegroups metrics ingest --up {ready.data}` finds it."
                )
            if ready.metrics:
                click.echo(f"Metrics, for Prometheus: {', '.join(ready.metrics)}")
            if ready.kafka:
                click.echo(f"Kafka's clients, bootstrap.servers: {','.join(ready.kafka)}")
            click.echo("Press Ctrl-C to stop.")

    async def body() -> None:
        nonlocal status
        stop = StopSignal()
        if with_parent:
            stop.with_parent()
        try:
            reason = await run_up(options, announce, stop.received)
        except (*START_ERRORS, EmbeddedStoreError) as error:
            print_stderr(f"Error: {masked(str(error))}", keep="\n")
            return
        if reason:
            print_stderr(f"Error: {masked(reason)}", keep="\n")
        elif output == "text":
            place = "the store" if options.store is not None else options.data.absolute()
            click.echo(f"Stopped; data kept in {place}.")
        status = 1 if reason else stop.status

    run(body)
    return status


state.add_command(check)
state.add_command(dump)
state.add_command(skip)
state.add_command(repair)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{masked(text)!r} is not NAME=VALUE, as in group.share.delivery.count.limit=3")
    return name, value


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="ROLE NAME=VALUE ...", nargs=-1, type=click.UNPROCESSED)
def serve(words: tuple[str, ...]) -> None:
    """Run one role as a process of its own, on a store that has a cluster."""
    sys.exit(run_serve(words))


main = ToolGroup("share_node", commands=[backup, certs, demo, init, restore, scaler, serve, state, up])

__all__ = ["backup", "certs", "demo", "init", "restore", "scaler", "state", "up"]
