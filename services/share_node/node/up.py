"""`sharegroups up`: an embedded store, or the user's own, and all roles, in one process or several (CM-70, CM-73)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from kip932.settings_file import FILE_VARIABLE
from kip932.store_settings import STORE_ACCESS, STORE_FSYNC_ALWAYS, STORE_URL, STORE_WHOLE_HISTORIES
from shard_runtime.clock import SystemClock
from shard_runtime.config import kafka_configs
from shard_runtime.config.process_settings import (
    DATA_DIR,
    HEALTH_LISTEN_PORT,
    INTERNAL_LISTEN_HOST,
    INTERNAL_LISTEN_PORT,
    KAFKA_LISTEN_PORT,
    LISTEN_HOST,
    LISTEN_PORT,
    LOG_FORMAT,
    LOG_LEVEL,
    METRICS_PORT,
    NODE_NAME,
    NODE_SETTINGS,
    SSL_CERTIFICATE,
    Settings,
    load_settings,
)
from shard_runtime.logs import configure_logs
from shard_runtime.ownership.placement import ROLE_GROUP_COORDINATOR, ROLE_PARTITION_LEADER, ROLE_SHARE_COORDINATOR
from shard_runtime.record_log.store_url import without_password
from shard_runtime.rpc.budget import memory_bytes
from share_node.node.children import RoleProcess
from share_node.node.process import raise_file_limit
from share_node.node.process_store import StartError, open_clients, refuse_unusable
from share_node.node.serve import FIRST_SCREEN_S, serve, unless_stopped, warn_of_shown_password
from share_node.store.data_directory import DataDirectory
from share_node.store.embedded_store import EmbeddedStore
from share_node.store.store_limit import StoreLimit

log = structlog.get_logger(__name__)

#: The group coordinator comes first and gets the port that people are given; any node would do.
ROLE_ORDER = (ROLE_GROUP_COORDINATOR, ROLE_SHARE_COORDINATOR, ROLE_PARTITION_LEADER)
#: The node of a plain `up`.
_ONLY: Final = "up"
#: Limit of `--leaders`. Each is a process of some 60 MB that can use one core fully.
LEADERS_MAX: Final = 64


#: The address on which the services between nodes listen: all processes run on this machine, even if clients do not
#: (CM-80).
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `sharegroups up`."""

    data: Path
    host: str
    port: int
    store: str | None = None
    fsync: str = "always"
    processes: bool = False
    leaders: int = 1
    """How many partition leaders: processes with all roles, or with that role alone if `processes`."""
    initialise: bool = False
    allow: frozenset[str] = frozenset()
    config: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)
    shown: str = ""
    """The store's URL as given in this process's arguments."""
    store_memory: int | None = None
    """The limit of the embedded store's memory, in bytes; 0 for none, None for a share of the memory here."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The report that everything is served. `store_pid`: 0 for a store of the user's. `store`: its URL without a
    password. `metrics`: where the processes serve their metrics, in the order of their starts; empty if they serve
    none. `kafka`: where they serve Kafka's clients, likewise. `limit`: of the embedded store's memory. `tls`,
    `access_control`: whether they are on."""

    bootstrap: str
    data: str
    store: str
    store_pid: int
    pids: dict[str, int]
    started_in_ms: int
    metrics: list[str] = field(default_factory=list)
    kafka: list[str] = field(default_factory=list)
    limit: StoreLimit | None = None
    tls: bool = False
    access_control: bool = False

    def security(self) -> str:
        """Return one line for people: who can read what is sent, and who may do what."""
        tls, control = ("on" if each else "off" for each in (self.tls, self.access_control))
        more = "" if self.access_control else ": everyone who can connect may do everything"
        return f"TLS is {tls}, access control is {control}{more}."

    def as_json(self) -> str:
        """Return one line of JSON, for programs."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "limit"}
        return json.dumps(found | {"store_memory": None if self.limit is None else self.limit.limit_bytes})


async def up(options: UpOptions, on_ready: Callable[[Ready], None], stop: asyncio.Event) -> str:
    """Run until `stop` is set. Returns "" then, else the reason for the end. Raises one of START_ERRORS or
    EmbeddedStoreError."""
    began = time.monotonic()
    # First of all: a wrong setting must not leave a data directory, or a store that was started in vain.
    settings = load_settings(_flags(options, options.data, options.store or ""), os.environ, options.config)
    refuse_unusable(settings)
    write_log = configure_logs(settings[LOG_LEVEL], settings[LOG_FORMAT], service=_ONLY, waits=True)
    screen = asyncio.get_running_loop().call_later(FIRST_SCREEN_S, write_log)
    raise_file_limit()
    warn_of_shown_password(options.shown, "give --store without it, and the variable that holds it by --password-env")
    directory = DataDirectory(options.data)
    lock = directory.lock("up")
    lock.acquire(f"process {os.getpid()} (sharegroups up)", 1.0)
    directory.keep_private()
    store: EmbeddedStore | None = None
    failed = ""
    try:
        if options.store is None:
            limit = _store_limit(options.store_memory)
            store = EmbeddedStore(
                directory, options.fsync, lambda: log.warning("embedded_store_restarted"), limit=limit
            )
            await unless_stopped(stop, store.start())
            if stop.is_set():
                return ""
            # Settings that the user gives override the one found here, and all that `up` sets.
            whole = {STORE_WHOLE_HISTORIES.name: ",".join(store.whole)}
            options = replace(options, settings=whole | options.settings)
            store.failed.add_done_callback(lambda future: None if future.cancelled() else stop.set())
            if options.fsync != "always":
                log.warning(
                    "fsync_everysec_used", effect="a killed store may lose up to two seconds of acknowledged writes"
                )
        url = options.store if store is None else store.url

        def ready(bootstrap: str, pids: dict[str, int], metrics: Sequence[str], kafka: Sequence[str]) -> None:
            elapsed = int((time.monotonic() - began) * 1000)
            pid = store.pid if store is not None else 0
            pages = [f"http://{address}/metrics" for address in metrics if address]
            limit = store.limit if store is not None else None
            shown = without_password(url or "")
            secured = bool(settings[SSL_CERTIFICATE]), settings[kafka_configs.ACCESS_CONTROL]
            ports = list(filter(None, kafka))
            on_ready(Ready(bootstrap, str(directory.path), shown, pid, pids, elapsed, pages, ports, limit, *secured))
            write_log()

        run = _in_processes if options.processes or options.leaders > 1 else _in_one
        failed = await run(options, directory, url or "", stop, ready)
        if store is not None and store.failed.done() and not store.failed.cancelled():
            failed = failed or store.failed.result()
        return failed
    finally:
        screen.cancel()
        write_log()
        if store is not None:
            await store.stop()
        lock.release()


#: Takes the bootstrap address, the processes' ids, and their addresses for metrics and for Kafka's clients.
OnServed = Callable[[str, dict[str, int], Sequence[str], Sequence[str]], None]


async def _in_one(options: UpOptions, directory: DataDirectory, url: str, stop: asyncio.Event, ready: OnServed) -> str:
    settings = load_settings(_flags(options, directory.path, url), os.environ, options.config)
    _log_offset_reset(settings)
    _log_retention(settings)
    _log_assignor(settings)
    return await serve(
        settings,
        stop,
        make_cluster=_may_make(options),
        initialise=options.initialise,
        allow=options.allow,
        on_ready=lambda served: ready(served.address, {"node": os.getpid()}, [served.metrics], [served.kafka]),
    )


async def _in_processes(
    options: UpOptions, directory: DataDirectory, url: str, stop: asyncio.Event, ready: OnServed
) -> str:
    flags = _flags(options, directory.path, url)
    settings = load_settings(flags, os.environ, options.config)
    _log_offset_reset(settings)
    _log_retention(settings)
    _log_assignor(settings)
    _warn_of_few_processors(options.leaders, len(os.sched_getaffinity(0)))
    opening = open_clients(
        settings,
        SystemClock(),
        make_cluster=_may_make(options),
        initialise=options.initialise,
        allow=options.allow,
    )
    store = await unless_stopped(stop, opening)
    if store is None:
        return ""
    await store.close()
    failures: list[str] = []

    def failed(reason: str) -> None:
        failures.append(reason)
        stop.set()

    hidden = _child_environment(flags, options.config)
    names = role_processes(options.processes, options.leaders)
    children = [
        RoleProcess(
            role, _child_arguments(flags | _port_flags(settings, place), name, not place), failed, hidden, name=name
        )
        for place, (name, role) in enumerate(names.items())
    ]
    stopping = asyncio.ensure_future(_wait(stop))
    try:
        for child in children:
            await child.start()
        served = asyncio.ensure_future(_addresses(children))
        await asyncio.wait([served, stopping], return_when=asyncio.FIRST_COMPLETED)
        if served.done() and not stop.is_set():
            pids = {child.name: child.pid for child in children}
            metrics = [child.metrics_address for child in children]
            ready(served.result()[0], pids, metrics, [child.kafka_address for child in children])
            for child in children:
                child.let_log()
            await stopping
        served.cancel()
    finally:
        stopping.cancel()
        # The leaders first, and together: a draining leader still writes state through the coordinators, and if they
        # stopped one by one, each would take over the partitions of the one before it.
        leaders = [child for child in children if ROLE_PARTITION_LEADER in names[child.name].split(",")]
        await asyncio.gather(*(leader.stop() for leader in leaders))
        for child in reversed([child for child in children if child not in leaders]):
            await child.stop()
    return failures[0] if failures else ""


def role_processes(processes: bool, leaders: int) -> dict[str, str]:
    """Return the processes in the order of their start: the roles of each, by the name of its node.

    With `processes` there is one for each coordinator. Otherwise every process has all roles: with two of them, half of
    the share state is then written without leaving the process. The first of several has the name that a single one
    has, so that it takes back at once the shards which that one owned.
    """
    if not processes:
        numbers = ["", *(f"-{number}" for number in range(2, leaders + 1))]
        return {f"{_ONLY}{number}": ",".join(ROLE_ORDER) for number in numbers}
    further = {f"{ROLE_PARTITION_LEADER}-{number}": ROLE_PARTITION_LEADER for number in range(2, leaders + 1)}
    return {role: role for role in ROLE_ORDER} | further


async def _addresses(children: list[RoleProcess]) -> list[str]:
    return [await child.address for child in children]


async def _wait(stop: asyncio.Event) -> list[str]:
    await stop.wait()
    return []


def _port_flags(settings: Settings, place: int) -> dict[str, str]:
    """Return the ports for metrics, health and Kafka's clients of the process at this place in the order of starts,
    where one port is given for all (CT-81 (c))."""
    given = {setting.name: settings[setting] for setting in (METRICS_PORT, HEALTH_LISTEN_PORT, KAFKA_LISTEN_PORT)}
    return {name: str(port + place) for name, port in given.items() if port > 0}


def _child_arguments(flags: dict[str, str], name: str, keeps_port: bool) -> list[str]:
    own = {**flags, NODE_NAME.name: name}
    if not keeps_port:
        own[LISTEN_PORT.name] = own[INTERNAL_LISTEN_PORT.name] = "0"
    return [f"{name}={value}" for name, value in own.items() if not _is_hidden(name)]


def _child_environment(flags: dict[str, str], config: Path | None) -> dict[str, str]:
    """Return a child's environment: settings that must not be in a process list, and the settings file."""
    hidden = {NODE_SETTINGS[name].environment: value for name, value in flags.items() if _is_hidden(name)}
    return hidden | ({FILE_VARIABLE: str(config)} if config is not None else {})


def _is_hidden(name: str) -> bool:
    return name in NODE_SETTINGS and NODE_SETTINGS[name].sensitive


#: How long `up` keeps groups without members, in milliseconds: a week (GC-46).
_EMPTY_RETENTION_MS: Final = 7 * 24 * 3_600_000


#: The assignor of groups here: in a work queue, a slow member must not stall a partition (GC-52a).
_ASSIGNOR: Final = "shared"


def _flags(options: UpOptions, data: Path, url: str) -> dict[str, str]:
    """Return the settings that `up` makes; those that the user gives by name override them."""
    always = options.store is None and options.fsync == "always"
    # The embedded store has no users: its socket is its user's alone. The environment may be for another store.
    ours = options.store is None
    credentials = {each.name: each.text(each.default) for each in STORE_ACCESS} if ours else {}
    return {
        NODE_NAME.name: _ONLY,
        LISTEN_HOST.name: options.host,
        LISTEN_PORT.name: str(options.port),
        INTERNAL_LISTEN_HOST.name: LOOPBACK,
        DATA_DIR.name: str(data),
        STORE_URL.name: url,
        **credentials,
        STORE_FSYNC_ALWAYS.name: "true" if always else "false",
        kafka_configs.AUTO_OFFSET_RESET.name: kafka_configs.EARLIEST,
        kafka_configs.EMPTY_RETENTION_MS.name: str(_EMPTY_RETENTION_MS),
        kafka_configs.ASSIGNORS.name: _ASSIGNOR,
        **options.settings,
    }


def _store_limit(given: int | None) -> StoreLimit:
    return StoreLimit.share_of(memory_bytes()) if given is None else StoreLimit(given)


def _may_make(options: UpOptions) -> bool:
    """Return whether a cluster may be made: an embedded store is new when it is empty, but a user's store only if the
    user says so."""
    return options.store is None or options.initialise


def _log_offset_reset(settings: Settings) -> None:
    if settings[kafka_configs.AUTO_OFFSET_RESET] != kafka_configs.LATEST:
        log.info(
            "production_default_overridden",
            effect="new share groups begin at the earliest record here; production's default is latest",
            setting=kafka_configs.AUTO_OFFSET_RESET.name,
            value=settings[kafka_configs.AUTO_OFFSET_RESET],
        )


def _log_retention(settings: Settings) -> None:
    if retention_ms := settings[kafka_configs.EMPTY_RETENTION_MS]:
        log.info(
            "production_default_overridden",
            effect="groups that are unused for this long are deleted with their offsets here; production keeps them",
            setting=kafka_configs.EMPTY_RETENTION_MS.name,
            value=retention_ms,
            hours=retention_ms // 3_600_000,
        )


def _log_assignor(settings: Settings) -> None:
    assignors = settings[kafka_configs.ASSIGNORS]
    if assignors != kafka_configs.ASSIGNORS.default:
        log.info(
            "production_default_overridden",
            effect="several members share a partition here, so that a slow or dead one stalls none; production's "
            "default is simple",
            setting=kafka_configs.ASSIGNORS.name,
            value=",".join(assignors),
        )


def _warn_of_few_processors(leaders: int, processors: int) -> None:
    if leaders > max(1, processors):
        log.warning(
            "surplus_leaders_started",
            effect="each leader fills at most one processor, so further leaders bring no speed here",
            leaders=leaders,
            processors=processors,
        )


__all__ = ["LEADERS_MAX", "Ready", "StartError", "UpOptions", "role_processes", "up"]
