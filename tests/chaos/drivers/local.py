"""A cluster of processes on this machine, one per role: the common part of drivers `processes`, `proxy`, `namespaces`.

A driver decides where each node listens, how others reach it and how a process enters its network; this module starts,
ends and pauses the processes. Each node keeps its data in its own directory below `home`, as if on a separate machine.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from share_node.node.serve import READY_WORD, WITH_PARENT
from tests.chaos.deployment import (
    GROUP_COORDINATOR,
    PARTITION_LEADER,
    REPLICA,
    SENTINEL,
    SERVICES,
    SHARE_COORDINATOR,
    STORE,
    Cut,
    Topology,
    Unsupported,
    WorkerProcess,
)
from tests.chaos.drivers import stores
from tests.chaos.drivers.children import Child, WatchedChild, Worker
from tests.chaos.drivers.runs import Run
from tests.chaos.drivers.sentinels import master_address
from tests.chaos.drivers.stores import Address
from tests.chaos.workers import WorkerOptions

MASTER: Final = f"{STORE}-0"
#: How long a service may keep exiting before it is ready, and the pause before each restart.
SERVED_WAIT_S: Final = 20.0
RESTART_PAUSE_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node listens, the address that it advertises (None: the same), and the words that enter its network."""

    listen: Address
    advertised: Address | None = None
    enter: Sequence[str] = ()

    @property
    def reached_at(self) -> Address:
        """The address that others use."""
        return self.advertised or self.listen


def role_of(name: str) -> str:
    """Return the role of a node, or the kind with which a worker's name starts."""
    return name.rpartition("-")[0]


class LocalDeployment:
    """Implements `tests.chaos.deployment.Deployment`: process faults here, network faults in the drivers."""

    driver: ClassVar[str]

    def __init__(self, folder: Path, topology: Topology, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.home = folder
        self.topology = topology
        self._settings = dict(settings)
        self._stack = ExitStack()
        self._run: Run | None = None
        self._places: dict[str, Place] = {}
        self._nodes: dict[str, Child] = {}
        self._metrics_ports: dict[str, int] = {}
        self._internal_ports: dict[str, int] = {}
        self._workers: dict[str, Child] = {}

    # ---- what a driver implements

    def _open_machines(self) -> None:
        """Prepare for faults of single machines; cleanup goes onto `self._stack`."""

    def _open_network(self) -> None:
        """Create what nodes need to reach each other; cleanup goes onto `self._stack`."""

    def _place(self, name: str) -> Place:
        """Return where a node is to run; called once per node, stores first."""
        raise NotImplementedError

    def _place_worker(self, name: str) -> Sequence[str]:
        """Return the words that enter a new worker's network."""
        return ()

    def _way(self, one: str, other: str) -> Address:
        """Return the address at which `one` finds the store or replica `other`."""
        return self._places[other].reached_at

    # ---- start and end

    @property
    def run(self) -> Run:
        """The run with the deployment's number; exists only once started."""
        assert self._run is not None, "start first"
        return self._run

    def __enter__(self) -> Self:
        try:
            self._start_everything()
        except BaseException:
            self._end_everything()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_everything()

    def _start_everything(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home = Path(tempfile.mkdtemp(prefix="cluster-", dir=self.folder))  # `folder` may hold an earlier cluster
        self._run = self._stack.enter_context(Run())
        self._open_machines()
        self._open_network()
        self._stack.callback(self._kill_everything)
        for name in self._all_names():
            self._places[name] = self._place(name)
        for name in self._store_names():
            self._nodes[name] = self._store_child(name)
        for name in [name for role in SERVICES for name in self.names(role)]:
            self._nodes[name] = self._service_child(name)
        self._start_stores()
        stores.make_cluster(self._url(MASTER), self.topology.store_replicas, self._store_access())
        services = [self._nodes[name] for role in SERVICES for name in self.names(role)]
        for service in services:
            service.launch()
        for service in services:
            _wait_served(service)

    def _store_access(self) -> Mapping[str, str]:
        """Return the settings by which the store is reached, besides its URL."""
        return {}

    def _start_stores(self) -> None:
        replicas, sentinels = self.names(REPLICA), self.names(SENTINEL)
        for name in (MASTER, *replicas):
            self._nodes[name].launch()
        for name in (MASTER, *replicas):
            stores.wait_answers(self._places[name].listen, name)
        stores.wait_in_step(self._places[MASTER].listen, len(replicas))
        for name in sentinels:
            self._nodes[name].launch()
        for name in sentinels:
            stores.wait_answers(self._places[name].listen, name)
            stores.wait_watched(self._places[name].listen, len(replicas), len(sentinels))

    def _end_everything(self) -> None:
        self._stack.close()

    def _kill_everything(self) -> None:
        """SIGKILL everything, which also reaches processes that are paused or cut off."""
        for child in [*self._workers.values(), *reversed(self._nodes.values())]:
            child.kill()

    # ---- nodes and addresses

    def names(self, role: str) -> list[str]:
        """Return the nodes of a role, running or not."""
        counts = {
            PARTITION_LEADER: self.topology.leaders,
            SHARE_COORDINATOR: self.topology.share_coordinators,
            GROUP_COORDINATOR: self.topology.group_coordinators,
            STORE: 1,
            REPLICA: self.topology.store_replicas,
            SENTINEL: self.topology.sentinels,
        }
        return [f"{role}-{number}" for number in range(counts[role])]

    def _store_names(self) -> list[str]:
        return [name for role in (STORE, REPLICA, SENTINEL) for name in self.names(role)]

    def _all_names(self) -> list[str]:
        return [*self._store_names(), *(name for role in SERVICES for name in self.names(role))]

    @property
    def addresses(self) -> Mapping[str, str]:
        """The address that each service advertises, by name."""
        return {name: str(place.reached_at) for name, place in self._places.items() if role_of(name) in SERVICES}

    @property
    def internal_addresses(self) -> Mapping[str, str]:
        """The address at which each service listens for other nodes, by name."""
        return {name: f"{self._places[name].reached_at.host}:{port}" for name, port in self._internal_ports.items()}

    @property
    def metrics_addresses(self) -> Mapping[str, str]:
        """The address at which each service serves its metrics, by name."""
        return {name: f"{self._places[name].listen.host}:{port}" for name, port in self._metrics_ports.items()}

    def pids(self) -> Mapping[str, int]:
        """Return the process ids of the running services, by name."""
        return {name: child.pid for name, child in self._services() if child.pid}

    def ended(self) -> tuple[str, ...]:
        """Return the services that ended by themselves and were not restarted."""
        return tuple(name for name, child in self._services() if child.status is not None and not child.running)

    def _services(self) -> list[tuple[str, Child]]:
        return [(name, child) for name, child in self._nodes.items() if role_of(name) in SERVICES]

    @property
    def reach(self) -> Mapping[str, str]:
        """{}: the test's process reaches every node at the address it advertises."""
        return {}

    @property
    def bootstrap(self) -> str:
        """Every service's address, since some services are down in most experiments."""
        return ",".join(self.addresses.values())

    @property
    def outside(self) -> str:
        """The same as `bootstrap`, since this process is in the same network."""
        return self.bootstrap

    # ---- commands

    def _store_child(self, name: str) -> Child:
        place, folder = self._places[name], self.home / name
        folder.mkdir(exist_ok=True)
        if role_of(name) == SENTINEL:
            master = self._places[MASTER].reached_at
            command = stores.sentinel_command(folder, place.listen, master, self.topology.sentinels)
        else:
            master_of = self._way(name, MASTER) if role_of(name) == REPLICA else None
            command = stores.server_command(folder, place.listen, master_of)
        command += ["--logfile", str(folder / "store.log")]
        return WatchedChild(name, place.enter, command, folder / "store.log", self.run.environment)

    def _internal_flags(self, name: str) -> dict[str, str]:
        """Return the flags of the listener for other nodes; a fault of the link to one of the two addresses applies to
        the other too."""
        return {"internal.listen.port": str(self._internal_ports[name])}

    def _service_child(self, name: str) -> Child:
        place, folder = self._places[name], self.home / name
        folder.mkdir(exist_ok=True)
        self._metrics_ports[name] = self.run.port()
        self._internal_ports[name] = self.run.port()
        flags = {
            "store.replicas": str(self.topology.store_replicas),
            # As in the containers: if a single copy confirmed, a killed master could lose what it had confirmed.
            "min.insync.replicas": "2" if self.topology.store_replicas else "1",
            "store.fsync.always": "true",
            "allow.plaintext": "true",
            **self._settings,
            "store.url": self._url(name),
            "node.name": name,
            "listen.host": place.listen.host,
            "listen.port": str(place.listen.port),
            "advertised.host": place.reached_at.host,
            "advertised.port": str(place.reached_at.port),
            "data.dir": str(folder),
            "metrics.host": place.listen.host,
            "metrics.port": str(self._metrics_ports[name]),
            **self._internal_flags(name),
        }
        words = [f"{setting}={value}" for setting, value in flags.items()]
        command = [*place.enter, sys.executable, "-m", *self._role_words(name), WITH_PARENT, *words]
        return Child(name, command, self.home / f"{name}.log", self.run.environment)

    def _role_words(self, name: str) -> list[str]:
        """Return what `python -m` runs for a node."""
        return ["share_node", "serve", role_of(name)]

    def _url(self, name: str) -> str:
        """Return `store.url` for a node; for the store itself, the URL for this process."""
        if self.topology.sentinels:
            return stores.store_url([self._places[each].listen for each in self.names(SENTINEL)], sentinel=True)
        return stores.store_url(
            [self._places[MASTER].listen if name == MASTER else self._way(name, MASTER)], sentinel=False
        )

    def master(self) -> str:
        """Return the server that the Sentinels name; without Sentinels, the store."""
        if not self.topology.sentinels:
            return MASTER
        named = master_address([self._places[each].listen for each in self.names(SENTINEL)], stores.SERVICE)
        servers = (MASTER, *self.names(REPLICA))
        return next(name for name in servers if named in (self._places[name].reached_at, self._places[name].listen))

    # ---- faults of processes

    def kill(self, name: str) -> None:
        """SIGKILL a node; it has ended when this returns."""
        self._child(name).kill()

    def start(self, name: str) -> None:
        """Start a node that is down with the same name, address and data; returns once it is ready."""
        child = self._child(name)
        if child.running:
            return
        child.launch()
        if role_of(name) in SERVICES:
            _wait_served(child)
        else:
            stores.wait_answers(self._places[name].listen, name)

    def stop(self, name: str) -> bool:
        """SIGTERM, a bounded wait, then SIGKILL. Returns whether it left cleanly."""
        return self._child(name).stop()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._child(name).signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._child(name).signal(signal.SIGCONT)

    def _child(self, name: str) -> Child:
        child = self._nodes.get(name) or self._workers.get(name)
        assert child is not None, f"there is no {name}; there are {', '.join([*self._nodes, *self._workers])}"
        return child

    def down(self, name: str) -> bool:
        """Return whether it has ended, by a fault or by itself."""
        return not self._child(name).running

    def store_command(self, name: str, *words: str) -> str:
        """Return the reply of one of the store's servers. Raises AssertionError if there is none."""
        return stores.answer_of(self._places[name].listen, *words)

    def limit_memory(self, name: str, mib: int) -> None:
        """Raises Unsupported here."""
        raise Unsupported(f"the driver {self.driver} does not limit the memory of {name}")

    # ---- network faults

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """Raises Unsupported here."""
        raise Unsupported(f"the driver {self.driver} has no network of its own, so it cannot cut {one} from {other}")

    def slow(self, name: str, delay_ms: int) -> None:
        """Raises Unsupported here."""
        raise Unsupported(f"the driver {self.driver} cannot delay what goes to {name}; the driver proxy can")

    def lose(self, name: str, percent: int) -> None:
        """Raises Unsupported here."""
        raise Unsupported(f"the driver {self.driver} has no packets of its own, so it loses none of {name}")

    def heal(self) -> None:
        """Do nothing: there is nothing to heal here."""

    # ---- workers and logs

    def worker(self, name: str, kind: str, options: WorkerOptions) -> WorkerProcess:
        """Start a worker from `tests.chaos.workers`, a producer or a consumer."""
        assert name not in self._nodes, f"{name} is a node's name"
        if (earlier := self._workers.get(name)) is not None:
            earlier.kill()
        addressed = replace(options, bootstrap=self.bootstrap)
        words = [sys.executable, "-m", "tests.chaos.workers", kind, addressed.as_json()]
        log = Path(options.history).with_name(f"{name}.err")
        child = Child(name, [*self._place_worker(name), *words], log, self.run.environment)
        self._workers[name] = child
        return Worker(child)

    def logs(self) -> dict[str, str]:
        """Return each node's output since its first start, by name."""
        return {name: child.log.read_text(errors="replace") for name, child in self._nodes.items()}


def _wait_served(child: Child) -> None:
    """Wait until a service is ready. Restart it if it exits earlier, as an orchestrator does, since a node refuses a
    store whose replicas are not back yet. Raises AssertionError with the last reason that it gave."""
    deadline = time.monotonic() + SERVED_WAIT_S
    while True:
        line = child.line()
        word, _, rest = line.strip().partition(" ")
        if word == READY_WORD:
            return
        assert time.monotonic() < deadline, f"{child.name}: {json.loads(rest) if rest else line!r}"
        child.kill()
        time.sleep(RESTART_PAUSE_S)
        child.launch()


def known(names: Iterable[str], *asked: str) -> None:
    """Raises AssertionError for a name that no node has."""
    there = set(names)
    for name in asked:
        assert name in there, f"there is no {name}; there are {', '.join(sorted(there))}"
