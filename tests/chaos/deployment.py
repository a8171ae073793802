"""What an experiment asks of a running cluster, however it runs: the one interface of all drivers.

A driver is a module of `tests.chaos.drivers` with a function `deploy(folder, topology, settings) -> Deployment`;
`open_deployment` finds it by name. A driver that cannot do something raises `Unsupported` with the reason: the
experiment is then reported as skipped there, never silently.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, cast, runtime_checkable

from tests.chaos.workers import WorkerOptions

PARTITION_LEADER: Final = "partition_leader"
SHARE_COORDINATOR: Final = "share_coordinator"
GROUP_COORDINATOR: Final = "group_coordinator"
STORE: Final = "store"
REPLICA: Final = "replica"
SENTINEL: Final = "sentinel"
SERVICES: Final = (PARTITION_LEADER, SHARE_COORDINATOR, GROUP_COORDINATOR)
DRIVERS: Final = ("processes", "proxy", "namespaces", "containers")


class Unsupported(Exception):  # noqa: N818 - it is a reason to skip, not an error
    """This driver cannot do that, or not on this machine. The message is the reason that the report prints."""


@dataclass(frozen=True, slots=True)
class Topology:
    """How many nodes of each kind. A driver that cannot start one of them raises Unsupported in `deploy`."""

    leaders: int = 3
    share_coordinators: int = 2
    group_coordinators: int = 2
    store_replicas: int = 2
    sentinels: int = 0


class Cut(Enum):
    """How two nodes lose each other."""

    SILENT = "silent"  # packets vanish, both ways
    ONE_WAY = "one way"  # packets from the first to the second vanish; the others arrive
    GONE = "gone"  # the name or the route is gone: connects are refused at once, or the name cannot be resolved


class WorkerProcess(Protocol):
    """A producer or consumer of `tests.chaos.workers` that runs inside the deployment's network."""

    @property
    def name(self) -> str:
        """The name it was started with; `Deployment.cut` knows it too."""

    def leave(self) -> None:
        """Ask it to leave in good order: its standard input closes, or it gets SIGTERM. Does not wait."""

    def wait(self, timeout_s: float) -> int | None:
        """Its exit status; None when it still runs after that time."""

    def kill(self) -> None:
        """SIGKILL. A worker that is gone already is no error."""

    def pause(self) -> None:
        """SIGSTOP, or a frozen container."""

    def resume(self) -> None:
        """Let it go on."""


class Deployment(Protocol):
    """A running cluster. `with` it: entering starts everything and waits until it is served, leaving removes it all.

    Names are "<role>-<number>", as `partition_leader-0`. All waits are bounded and raise AssertionError with what was
    waited for. Every fault may be made again and again, on nodes that are down or paused already too.
    """

    @property
    def driver(self) -> str:
        """One of DRIVERS."""

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers for clients that run inside, as workers do."""

    @property
    def outside(self) -> str:
        """bootstrap.servers for the process of the test itself."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """The address that each service advertises, by its name: this is how an owner in an answer gets its name."""

    @property
    def reach(self) -> Mapping[str, str]:
        """Advertised address to the one that the process of the test reaches it at; {} when they are the same."""

    def __enter__(self) -> Self:
        """Start everything and wait until every node serves."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Heal, end and remove everything, workers too, however the experiment ended."""

    def names(self, role: str) -> list[str]:
        """The nodes of a role, running or not; [] when there are none (a driver without replicas, say)."""

    def kill(self, name: str) -> None:
        """SIGKILL a node. It is dead when this returns, and stays down until `start`."""

    def start(self, name: str) -> None:
        """Start a node that is down again, with the same node.name, address and data; returns once it is ready.

        A node that runs is left as it is.
        """

    def stop(self, name: str) -> bool:
        """SIGTERM and a bounded wait, then SIGKILL; whether the first was enough and the exit status was 0."""

    def pause(self, name: str) -> None:
        """SIGSTOP, or a frozen container: its sockets stay open and answer nothing."""

    def resume(self, name: str) -> None:
        """Let a paused node go on."""

    def down(self, name: str) -> bool:
        """Whether a node has ended, by a fault or by itself."""

    def store_command(self, name: str, *words: str) -> str:
        """What a server of the store answers to one command. Raises AssertionError when it does not."""

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """Cut the link between two nodes, or between a worker and a node, for connections that are open too.

        GONE takes `other` away from `one`, as far as the driver can: from everybody, when it is the node that goes.
        """

    def heal(self) -> None:
        """Take every cut, loss and delay away. Paused nodes stay paused."""

    def slow(self, name: str, delay_ms: int) -> None:
        """From now on everything that goes to `name` takes this much longer; 0 takes the delay away."""

    def lose(self, name: str, percent: int) -> None:
        """From now on so many of a hundred packets that go to `name` or come from it vanish, until `heal`."""

    def limit_memory(self, name: str, mib: int) -> None:
        """From now on the node may have no more than this, beside what it has where only new memory counts; 0 lifts the
        limit. A node that needs more is killed by the kernel."""

    def worker(self, name: str, kind: str, options: WorkerOptions) -> WorkerProcess:
        """Start a worker; `kind` is producer or consumer.

        The driver puts its own bootstrap into the options. `options.history` is a path on this machine in the
        deployment's folder; what the worker says goes to `<name>.err` beside it.
        """

    def logs(self) -> dict[str, str]:
        """What every node said since its first start, by its name."""


@runtime_checkable
class FollowsMaster(Protocol):
    """A deployment whose store may have another master than `store-0`, because Sentinels promote replicas."""

    def master(self) -> str:
        """The node that is the store's master now. Raises AssertionError when nobody says so in a bounded time."""


class Deploy(Protocol):
    """The function `deploy` of a driver's module. Raises Unsupported when it cannot run on this machine."""

    def __call__(self, folder: Path, topology: Topology, settings: Mapping[str, str]) -> Deployment:
        """A deployment that keeps its data, logs and histories in `folder`; `settings` go to every role's process."""


def open_deployment(driver: str, folder: Path, topology: Topology, settings: Mapping[str, str]) -> Deployment:
    """The deployment of a driver, not yet started. Raises Unsupported with the reason when there is none here."""
    if driver not in DRIVERS:
        raise Unsupported(f"there is no driver {driver}; there are {', '.join(DRIVERS)}")
    try:
        module = importlib.import_module(f"tests.chaos.drivers.{driver}")
    except ModuleNotFoundError as error:
        raise Unsupported(f"driver {driver} needs the module {error.name}") from error
    return cast(Deploy, module.deploy)(folder, topology, settings)
