"""Runs one NodeProcess from its settings, until a signal, the end of its store, or the loss of its name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import structlog

import share_node.grpc_library  # noqa: F401 - before anything imports grpc
from kip932.log_lines import JSON, json_line, timestamp
from kip932.nearest_name import did_you_mean
from kip932.printable import printable
from kip932.store_settings import STORE_URL
from shard_runtime.clock import Clock, SystemClock
from shard_runtime.config.process_settings import (
    DATA_DIR,
    LISTEN_PORT,
    LOG_FORMAT,
    LOG_LEVEL,
    NODE_NAME,
    NODE_ROLES,
    Settings,
    SettingsError,
    load_settings,
)
from shard_runtime.logs import configure_logs
from shard_runtime.ownership.placement import ROLES
from shard_runtime.record_log.protocol import LogError, NameTakenError
from shard_runtime.record_log.redis.startup_checks import StoreCheckError
from shard_runtime.record_log.store_url import has_password, masked
from shard_runtime.rpc.server import ListenError
from share_node.node.process import NodeProcess, raise_file_limit
from share_node.node.process_store import StartError, StoreClient, open_clients, refuse_unusable
from share_node.node.waiting import Waiting
from share_node.process_memory.memory_checks import memory_upkeep
from share_node.store.data_directory import DataDirectory, DataDirectoryError, NodeIdentity, new_incarnation

T = TypeVar("T")

log = structlog.get_logger(__name__)

#: Errors that keep a process from starting; each message says what was found and what to do.
START_ERRORS: Final = (
    SettingsError,
    StartError,
    StoreCheckError,
    ListenError,
    DataDirectoryError,
    LogError,
    ValueError,
)
#: Arguments that ask for the help text.
HELP: Final = frozenset({"--help", "-h"})
USAGE: Final = (
    "python -m share_node serve {role} NAME=VALUE …, at least store.url=redis://HOST:PORT; "
    "see docs/reference/settings.md"
)
#: Argument of a role process whose standard input is a pipe from its parent: it leaves when the pipe closes.
WITH_PARENT: Final = "--with-parent"
#: First words of the lines that a parent reads from a role's standard output. After the first come the addresses for
#: clients, for nodes, for its metrics and for Kafka's clients, up to the last one that is served, NONE for one that is
#: not; after the second a reason as JSON.
READY_WORD: Final = "ready"
FAILED_WORD: Final = "failed"
#: The placeholder for an address that is not served.
NONE: Final = "-"
#: How long a role process may take to leave after its parent has ended, s: the parent's store ends, too, and a new
#: parent waits for the name.
ORPHAN_GRACE_S: Final = 0.5
#: Exit status of a command that SIGTERM ended; for a role process, which a supervisor starts and ends, it is 0.
TERMINATED: Final = 128 + signal.SIGTERM
#: How long lines of level info wait for the first screen of `up`, s: if its start takes longer, they explain it.
FIRST_SCREEN_S: Final = 5.0
#: A killed predecessor's lock becomes free within this time, s; a living process's does not.
NAME_WAIT_S: Final = 1.0


class Served(NamedTuple):
    """The addresses of a process that is ready, as `host:port`: for clients, for nodes, of its metrics, and for Kafka's
    clients; "" for those that it does not serve."""

    address: str
    internal: str
    metrics: str
    kafka: str = ""


def node_name(settings: Settings) -> str:
    """Return `node.name`, else `<host>-<roles>-<port>` (CM-1)."""
    if settings[NODE_NAME]:
        return settings[NODE_NAME]
    roles = settings.text(NODE_ROLES.name).replace(",", "+")
    return f"{socket.gethostname()}-{roles}-{settings[LISTEN_PORT]}"


def identity(settings: Settings) -> NodeIdentity:
    """Return this process's name and incarnation. With a `data.dir` the name is locked there, so that a restart after a
    kill takes its shards back at once; without it, a restart waits until its leases end (CM-12). Raises
    DataDirectoryError."""
    name = node_name(settings)
    if settings[DATA_DIR]:
        directory = DataDirectory(Path(settings[DATA_DIR]))
        held = directory.identity(name, NAME_WAIT_S)
        directory.keep_private()
        return held
    return NodeIdentity(name, new_incarnation(), frozenset(), None)


class StopSignal:
    """Set by SIGTERM and SIGINT; a second signal ends the process at once. `number`: the first signal's, 0 before
    it."""

    def __init__(self) -> None:
        self.received = asyncio.Event()
        self.number = 0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    @property
    def status(self) -> int:
        """The exit status of a command that serves until a signal: 143 after SIGTERM, 0 after Ctrl-C (CT-80)."""
        return TERMINATED if self.number == signal.SIGTERM else 0

    def with_parent(self, on_input: Callable[[], None] = lambda: None) -> None:
        """Set `received` also when standard input, a pipe, closes: the parent has ended, perhaps by SIGKILL.

        `on_input`: called when the parent writes something there.
        """
        loop = asyncio.get_running_loop()

        def readable() -> None:
            if not os.read(0, 4096):
                loop.remove_reader(0)
                self.received.set()
                loop.call_later(ORPHAN_GRACE_S, os._exit, 1)
            else:
                on_input()

        loop.add_reader(0, readable)

    def _on_signal(self, number: int) -> None:
        if self.received.is_set():
            os._exit(128 + number)
        self.number = number
        self.received.set()


async def unless_stopped(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
    """Return the result of `work`; None when `stop` is set first, which cancels the work."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None
    finally:
        task.cancel()
        stopped.cancel()


async def serve(
    settings: Settings,
    stop: asyncio.Event,
    *,
    make_cluster: bool = False,
    initialise: bool = False,
    allow: frozenset[str] = frozenset(),
    on_ready: Callable[[Served], None] = lambda served: None,
    waits: bool = False,
) -> str:
    """Run one process until it has stopped. Returns "" after `stop`, else the reason. Raises one of START_ERRORS.

    `waits`: wait, instead of raising, for things that others may still provide: a store, or a cluster in it (CM-130).
    It always waits for the end of a dead predecessor's entry.
    """
    refuse_unusable(settings)
    clock = SystemClock()

    async def opened() -> StoreClient:
        return await open_clients(settings, clock, make_cluster=make_cluster, initialise=initialise, allow=allow)

    started = await _start(settings, stop, clock, opened, waits=waits)
    if started is None:
        return ""
    process, address = started
    loop = asyncio.get_running_loop()
    ended = loop.create_task(_first(stop, process.ended))
    try:
        ready = loop.create_task(process.wait_ready())
        await asyncio.wait([ended, ready], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            on_ready(Served(address, process.internal_address, process.metrics_address, process.kafka_address))
            await ended
        ready.cancel()
        return process.ended.result() if process.ended.done() else ""
    finally:
        ended.cancel()
        await process.stop()


Started = tuple[NodeProcess, str]
Opened = Callable[[], Awaitable[StoreClient]]


async def _start(
    settings: Settings, stop: asyncio.Event, clock: Clock, opened: Opened, *, waits: bool
) -> Started | None:
    """Start the process; return it and its address, or None when `stop` was set meanwhile.

    Waits for the end of a dead predecessor's entry under this name: `up` meets one in a copied data directory, whose
    original runs on elsewhere. With `waits`, also waits for things that others may still provide. Raises one of
    START_ERRORS for the first missing thing that is not waited for.
    """
    waiting = Waiting(settings, stop)
    me: NodeIdentity | None = None
    try:
        while not stop.is_set():
            me = me or identity(settings)
            try:
                store = await waiting.attempt(opened())
                if store is None:
                    break
                await waiting.port.close()
                mine, me = me, None  # from here on the process releases it, with the store
                started = await _join(settings, mine, store, clock)
            except START_ERRORS as error:
                if not waits and not isinstance(error, NameTakenError):
                    raise
                await waiting.after(error)
            else:
                waiting.over()
                return started
        return None
    finally:
        await waiting.port.close()
        if me is not None:
            me.release()


async def _join(settings: Settings, me: NodeIdentity, store: StoreClient, clock: Clock) -> Started:
    process = NodeProcess(settings, me, store, clock)
    try:
        return process, await process.start()
    except BaseException:
        await process.stop()
        raise


async def _first(stop: asyncio.Event, ended: asyncio.Future[str]) -> None:
    """Wait until `stop` is set, or the process cannot go on."""
    ended.add_done_callback(lambda _: stop.set())
    await stop.wait()


def run(main: Callable[[], object]) -> None:
    """Run a coroutine function on the fastest event loop that is installed."""
    loop_factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - an extra: used when installed, not required

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner, memory_upkeep(runner.get_loop()):
        runner.run(main())  # type: ignore[arg-type]


def flag_settings(arguments: Sequence[str], environ: Mapping[str, str], roles: str) -> Settings:
    """Settings of `python -m share_node serve ROLE name=value …`. Raises SettingsError."""
    flags = {NODE_ROLES.name: roles}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise SettingsError(f"argument {masked(argument)!r} is not name=value, as in listen.port=7932")
        flags[name] = value
    return load_settings(flags, environ)


def warn_of_shown_password(url: str, instead: str) -> None:
    """Log a warning when a store URL with a password was given as an argument."""
    if has_password(url):
        log.warning(
            "store_password_exposed",
            cause="it is in this process's arguments, which every user of this machine can read",
            try_next=instead,
        )


def main(arguments: Sequence[str]) -> int:
    """Run `python -m share_node serve ROLE name=value …`, or several roles with commas. Returns the exit status."""
    roles = ", ".join(sorted(ROLES))
    if not arguments or arguments[0] in HELP:
        print(
            f"{USAGE.format(role='ROLE')}\nROLE is one of {roles}. Commas join several in one process.",
            file=sys.stdout if arguments else sys.stderr,
        )
        return 0 if arguments else 1
    given, *rest = arguments
    for role in given.split(","):
        if role not in ROLES:
            _print_reason(f"no role {role!r}." + (did_you_mean(role, ROLES) or f" There are {roles}."))
            return 1
    return serve_role(given, rest)


def serve_role(role: str, arguments: Sequence[str]) -> int:
    """Run one role, or several with commas, on a store with a cluster, until a signal ends it. Returns the exit
    status."""
    if HELP & set(arguments):
        print(USAGE.format(role=role))
        return 0
    with_parent = WITH_PARENT in arguments
    shown = [word for word in arguments if word.startswith(f"{STORE_URL.name}=")]
    try:
        settings = flag_settings([word for word in arguments if word != WITH_PARENT], os.environ, role)
    except SettingsError as error:
        _print_reason(str(error))
        return 1
    service = settings[NODE_NAME] or role
    write_log = configure_logs(settings[LOG_LEVEL], settings[LOG_FORMAT], service=service, waits=with_parent)
    raise_file_limit()
    warn_of_shown_password(" ".join(shown), f"give the URL as {STORE_URL.environment}, or in the settings file")
    status = 1
    json_alone = settings[LOG_FORMAT] == JSON  # chosen, and not only because this is no terminal
    report = _send_reason if with_parent else _log_reason if json_alone else _print_reason

    async def body() -> None:
        nonlocal status
        stop = StopSignal()
        if with_parent:
            stop.with_parent(write_log)
            asyncio.get_running_loop().call_later(FIRST_SCREEN_S, write_log)
        try:
            # With a parent, the parent reports what is missing; a role on its own waits for it (CM-130).
            announce = _announce_all if with_parent else partial(_announce, service if json_alone else "")
            reason = await serve(settings, stop.received, on_ready=announce, waits=not with_parent)
        except START_ERRORS as error:
            report(str(error))
        else:
            status = 1 if reason else 0
            if reason:
                report(reason)

    try:
        run(body)
    finally:
        write_log()
    return status


def _announce(json_of: str, served: Served) -> None:
    print(ready_line(served.address, json_of), flush=True)


def ready_line(address: str, json_of: str = "") -> str:
    """Return the line of standard output that says where a service is ready: `ready HOST:PORT`, for the program that
    started it. With the name of the service as `json_of` it is JSON, in the form of a log line, for programs that read
    JSON alone from all that a service prints (CM-241)."""
    if not json_of:
        return f"{READY_WORD} {address}"
    fields = {"timestamp": timestamp(time.time()), "level": "info", "event": READY_WORD, "service": json_of}
    return json_line({**fields, "address": address})


def _announce_all(served: Served) -> None:
    addresses = [address or NONE for address in served]
    while addresses[-1] == NONE:
        addresses.pop()
    print(" ".join((READY_WORD, *addresses)), flush=True)


def _print_reason(reason: str) -> None:
    print("Error: " + printable(masked(reason), keep="\n"), file=sys.stderr)


def _log_reason(reason: str) -> None:
    """Log the reason: a program reads JSON logs, so every line must be JSON, the last one too."""
    log.error("process_failed", cause=masked(reason))


def _send_reason(reason: str) -> None:
    """Pass the reason to the parent, which prints it once, after all other output of its children."""
    print(f"{FAILED_WORD} {json.dumps(masked(reason))}", flush=True)
