"""The interface through which an experiment uses a running cluster; every driver implements it.

A driver is a module of `tests.chaos.drivers` with a function `deploy(folder, topology, settings) -> Deployment`;
`open_deployment` finds it by name. A driver that cannot do something raises `Unsupported` with the reason; the
experiment is then reported as skipped, never left out silently.
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
    """The driver cannot do this, or not on this machine. The report prints the message as the reason."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The number of nodes of each kind. A driver that cannot start one of them raises Unsupported in `deploy`."""

    leaders: int = 3
    share_coordinators: int = 2
    group_coordinators: int = 2
    store_replicas: int = 2
    sentinels: int = 0


class Cut(Enum):
    """How two nodes lose contact."""

    SILENT = "silent"  # packets vanish, both ways
    ONE_WAY = "one way"  # packets from the first to the second vanish; others arrive
    GONE = "gone"  # the name or route is removed: connects are refused at once, or the name cannot be resolved


class WorkerProcess(Protocol):
    """A producer or consumer from `tests.chaos.workers` that runs inside the deployment's network."""

    @property
    def name(self) -> str:
        """The name it was started with, which `Deployment.cut` accepts too."""

    def leave(self) -> None:
        """Ask it to leave cleanly: close its standard input or send SIGTERM. Does not wait."""

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit status; None if it is still running after that time."""

    def kill(self) -> None:
        """SIGKILL it. It is not an error if the worker has already ended."""

    def pause(self) -> None:
        """Stop it with SIGSTOP, or freeze its container."""

    def resume(self) -> None:
        """Let it continue."""


class Deployment(Protocol):
    """A running cluster. A context manager: entering starts everything and waits until it serves, leaving removes
    everything.

    Names are "<role>-<number>", such as `partition_leader-0`. All waits are bounded and raise AssertionError with what
    they waited for. Every fault may be repeated, even on nodes that are already down or paused.
    """

    @property
    def driver(self) -> str:
        """One of DRIVERS."""

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for clients inside the deployment, such as workers."""

    @property
    def outside(self) -> str:
        """`bootstrap.servers` for the test's own process."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Each service's advertised address, by name: identifies an owner whose address is in a response."""

    @property
    def reach(self) -> Mapping[str, str]:
        """Maps an advertised address to the one at which the test's process reaches it; {} if they are the same."""

    def __enter__(self) -> Self:
        """Start everything and wait until every node serves."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Heal, end and remove everything, including workers, whatever the experiment's result."""

    def names(self, role: str) -> list[str]:
        """Return the nodes of a role, running or not; [] if there are none (for example, a driver without replicas)."""

    def kill(self, name: str) -> None:
        """SIGKILL a node. It has ended when this returns, and stays down until `start`."""

    def start(self, name: str) -> None:
        """Start a node that is down again, with the same node.name, address and data; returns once it is ready.

        A running node is left as it is.
        """

    def stop(self, name: str) -> bool:
        """SIGTERM, a bounded wait, then SIGKILL. Returns whether SIGTERM sufficed and the exit status was 0."""

    def pause(self, name: str) -> None:
        """Stop it with SIGSTOP, or freeze its container: its sockets stay open but do not respond."""

    def resume(self, name: str) -> None:
        """Let a paused node continue."""

    def down(self, name: str) -> bool:
        """Return whether a node has ended, by a fault or by itself."""

    def store_command(self, name: str, *words: str) -> str:
        """Return the reply of one of the store's servers to a command. Raises AssertionError if there is none."""

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """Cut the link between two nodes, or between a worker and a node, including open connections.

        GONE makes `other` unreachable for `one`, or for everyone if the driver can only remove the node itself.
        """

    def heal(self) -> None:
        """Remove every cut, loss and delay. Paused nodes stay paused."""

    def slow(self, name: str, delay_ms: int) -> None:
        """Delay everything sent to `name` from now on by this much; 0 removes the delay."""

    def lose(self, name: str, percent: int) -> None:
        """Lose `percent` % of the packets to and from `name` from now on, until `heal`."""

    def limit_memory(self, name: str, mib: int) -> None:
        """Limit the node's memory from now on; if only new memory can be limited, the limit is on top of what it has. 0
        lifts the limit. The kernel kills a node that needs more."""

    def worker(self, name: str, kind: str, options: WorkerOptions) -> WorkerProcess:
        """Start a worker; `kind` is producer or consumer.

        The driver sets the bootstrap in the options. `options.history` is a path on this machine in the deployment's
        folder; the worker's standard error goes to `<name>.err` beside it.
        """

    def logs(self) -> dict[str, str]:
        """Return each node's output since its first start, by name."""


@runtime_checkable
class FollowsMaster(Protocol):
    """A deployment whose store may have a master other than `store-0`, because Sentinels promote replicas."""

    def master(self) -> str:
        """Return the store's current master. Raises AssertionError if no Sentinel names one within a bounded time."""


class Deploy(Protocol):
    """The function `deploy` of a driver's module. Raises Unsupported if the driver cannot run on this machine."""

    def __call__(self, folder: Path, topology: Topology, settings: Mapping[str, str]) -> Deployment:
        """Return a deployment that keeps its data, logs and histories in `folder`; `settings` go to every role's
        process."""


def open_deployment(driver: str, folder: Path, topology: Topology, settings: Mapping[str, str]) -> Deployment:
    """Return a driver's deployment, not yet started. Raises Unsupported with the reason if it cannot run here."""
    if driver not in DRIVERS:
        raise Unsupported(f"there is no driver {driver}; there are {', '.join(DRIVERS)}")
    try:
        module = importlib.import_module(f"tests.chaos.drivers.{driver}")
    except ModuleNotFoundError as error:
        raise Unsupported(f"driver {driver} needs the module {error.name}") from error
    return cast(Deploy, module.deploy)(folder, topology, settings)
