"""Runs one NodeProcess from its settings until a signal, the end of its store or the loss of its name ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

import share_node.grpc_library  # noqa: F401 - before anything imports grpc
from shard_runtime.clock import SystemClock
from shard_runtime.logs import configure_logs
from shard_runtime.record_log import LogError
from shard_runtime.redis.checks import StoreCheckError
from shard_runtime.rpc.server import ListenError
from shard_runtime.settings import (
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
from share_node.data_directory import DataDirectory, DataDirectoryError, NodeIdentity, new_incarnation
from share_node.process import NodeProcess
from share_node.process_store import StartError, open_clients, refuse_unusable

log = structlog.get_logger(__name__)

#: What keeps a process from starting; each message says what was found and what to do.
START_ERRORS: Final = (
    SettingsError,
    StartError,
    StoreCheckError,
    ListenError,
    DataDirectoryError,
    LogError,
    ValueError,
)
#: Argument of a role process whose standard input is a pipe from its parent: it leaves when that closes.
WITH_PARENT: Final = "--with-parent"
#: First words of the lines that a parent reads on a role's standard output: an address follows, or a reason as JSON.
READY_WORD: Final = "ready"
FAILED_WORD: Final = "failed"
#: How long it may take to leave then: the parent's store goes away too, and a new parent waits for the name.
PARENT_GONE_GRACE_S: Final = 0.5
#: The lock of a killed predecessor is free within this time; a living one's is not.
NAME_WAIT_S: Final = 1.0


def node_name(settings: Settings) -> str:
    """`node.name`, else `<host>-<roles>-<port>` (CM-1)."""
    if settings[NODE_NAME]:
        return settings[NODE_NAME]
    roles = settings.text(NODE_ROLES.name).replace(",", "+")
    return f"{socket.gethostname()}-{roles}-{settings[LISTEN_PORT]}"


def identity(settings: Settings) -> NodeIdentity:
    """This process's name and incarnation: locked in `data.dir` when there is one, so that it takes its shards back at
    once after a kill; without a lock a restart waits for its leases (CM-12). Raises DataDirectoryError."""
    name = node_name(settings)
    if settings[DATA_DIR]:
        return DataDirectory(Path(settings[DATA_DIR])).identity(name, NAME_WAIT_S)
    return NodeIdentity(name, new_incarnation(), frozenset(), None)


class StopSignal:
    """Set by SIGTERM and SIGINT; a second one ends the process at once."""

    def __init__(self) -> None:
        self.received = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def with_parent(self) -> None:
        """Be set too when the pipe that is standard input closes: the parent is gone, even by SIGKILL."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            if not os.read(0, 4096):
                loop.remove_reader(0)
                self.received.set()
                loop.call_later(PARENT_GONE_GRACE_S, os._exit, 1)

        loop.add_reader(0, readable)

    def _on_signal(self) -> None:
        if self.received.is_set():
            os._exit(130)
        self.received.set()


async def serve(
    settings: Settings,
    stop: asyncio.Event,
    *,
    make_cluster: bool = False,
    initialise: bool = False,
    allow: frozenset[str] = frozenset(),
    on_ready: Callable[[str], None] = lambda address: None,
) -> str:
    """Run one process; returns when it has stopped: "" after `stop`, else why. Raises one of START_ERRORS."""
    refuse_unusable(settings)
    clock = SystemClock()
    me = identity(settings)
    try:
        store = await open_clients(settings, clock, make_cluster=make_cluster, initialise=initialise, allow=allow)
    except BaseException:
        me.release()
        raise
    process = NodeProcess(settings, me, store, clock)
    loop = asyncio.get_running_loop()
    ended = loop.create_task(_first(stop, process.ended))
    try:
        address = await process.start()
        ready = loop.create_task(process.wait_ready())
        await asyncio.wait([ended, ready], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            on_ready(address)
            await ended
        ready.cancel()
        return process.ended.result() if process.ended.done() else ""
    finally:
        ended.cancel()
        await process.stop()


async def _first(stop: asyncio.Event, ended: asyncio.Future[str]) -> None:
    """Until told to stop, or the process cannot go on."""
    ended.add_done_callback(lambda _: stop.set())
    await stop.wait()


def run(main: Callable[[], object]) -> None:
    """Run a coroutine function on the fastest event loop that is installed."""
    loop_factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - an extra: used when it is there, needed by nothing

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())  # type: ignore[arg-type]


def flag_settings(arguments: Sequence[str], environ: Mapping[str, str], roles: str) -> Settings:
    """Settings of `python -m <role> name=value …`. Raises SettingsError."""
    flags = {NODE_ROLES.name: roles}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise SettingsError(f"argument {argument!r} is not name=value, as in listen.port=7932")
        flags[name] = value
    return load_settings(flags, environ)


def main(role: str, arguments: Sequence[str]) -> int:
    """`python -m group_coordinator` and its like: one role, on a store that has a cluster."""
    if {"--help", "-h"} & set(arguments):
        print(f"python -m {role} NAME=VALUE …, at least store.url=redis://HOST:PORT; see docs/reference/settings.md")
        return 0
    with_parent = WITH_PARENT in arguments
    try:
        settings = flag_settings([word for word in arguments if word != WITH_PARENT], os.environ, role)
    except SettingsError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    configure_logs(settings[LOG_LEVEL], settings[LOG_FORMAT])
    status = 1
    tell = _tell_parent if with_parent else _tell_person

    async def body() -> None:
        nonlocal status
        stop = StopSignal()
        if with_parent:
            stop.with_parent()
        try:
            reason = await serve(settings, stop.received, on_ready=_announce)
        except START_ERRORS as error:
            tell(str(error))
        else:
            status = 1 if reason else 0
            if reason:
                tell(reason)

    run(body)
    return status


def _announce(address: str) -> None:
    print(f"{READY_WORD} {address}", flush=True)


def _tell_person(reason: str) -> None:
    print(f"Error: {reason}", file=sys.stderr)


def _tell_parent(reason: str) -> None:
    """The parent says it, once, after whatever else its children write."""
    print(f"{FAILED_WORD} {json.dumps(reason)}", flush=True)
