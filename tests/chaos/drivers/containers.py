"""Driver `containers`: every node and worker is a container of the image, on this machine's Docker Engine.

Docker resolves the names, as DNS does in production. Silent cuts are rules in a container's own network namespace; a
cut of kind GONE disconnects the container from the network. CHAOS_IMAGE names the image (default sharegroups:dev);
`make chaos` builds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from docker.errors import DockerException
from redis import Redis
from redis.exceptions import RedisError

from share_node.health import status_of
from tests.chaos.deployment import REPLICA, SENTINEL, SERVICES, STORE, Cut, Topology, Unsupported
from tests.chaos.drivers.docker_nodes import Box, Spec, Subnet, client, need_rules, remove_labelled
from tests.chaos.drivers.sentinels import master_address
from tests.chaos.drivers.stores import Address, answer_of
from tests.chaos.workers import WorkerOptions

IMAGE_VARIABLE: Final = "CHAOS_IMAGE"
IMAGE: Final = "sharegroups:dev"
PORT: Final = 7932
STORE_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
SERVICE_NAME: Final = "main"
READY_WAIT_S: Final = 60.0
STOP_WAIT_S: Final = 20
DATA: Final = "/var/lib/sharegroups"
_TESTS: Final = Path(__file__).resolve().parent.parent.parent
_AT_ONCE: Final = 6


def deploy(folder: Path, topology: Topology, settings: Mapping[str, str]) -> Containers:
    """Return the deployment, not yet started. Raises Unsupported without a daemon, the image, or permission to use
    nsenter."""
    image = os.environ.get(IMAGE_VARIABLE) or IMAGE
    try:
        daemon = client()
        daemon.images.get(image)
        daemon.close()
    except DockerException as error:
        raise Unsupported(f"needs Docker: {error} (`make image` builds the image {image})") from error
    return Containers(folder, topology, settings, image)


class Containers:
    """A running cluster in containers; see `tests.chaos.deployment.Deployment`."""

    driver = "containers"

    def __init__(self, folder: Path, topology: Topology, settings: Mapping[str, str], image: str) -> None:
        self.folder = folder
        self.topology = topology
        self._settings = dict(settings)
        self._image = image
        self._nodes: dict[str, Box] = {}
        self._workers: dict[str, Box] = {}
        self._cuts: list[tuple[str, tuple[Sequence[str], ...]]] = []
        self._counts = {
            "partition_leader": topology.leaders,
            "share_coordinator": topology.share_coordinators,
            "group_coordinator": topology.group_coordinators,
            STORE: 1,
            REPLICA: topology.store_replicas,
            SENTINEL: topology.sentinels,
        }

    # ---- facts

    @property
    def bootstrap(self) -> str:
        """The group coordinators' names."""
        return ",".join(f"{name}:{PORT}" for name in self.names("group_coordinator"))

    @property
    def outside(self) -> str:
        """The group coordinators' addresses: Docker's names are known only inside."""
        return ",".join(self.reach[f"{name}:{PORT}"] for name in self.names("group_coordinator"))

    @property
    def addresses(self) -> Mapping[str, str]:
        """Each service's advertised address, which is its name."""
        return {name: f"{name}:{PORT}" for role in SERVICES for name in self.names(role)}

    @property
    def reach(self) -> Mapping[str, str]:
        """The containers' addresses, by advertised name."""
        return {address: f"{self._nodes[name].address}:{PORT}" for name, address in self.addresses.items()}

    def names(self, role: str) -> list[str]:
        """Return the nodes of a role."""
        return [f"{role}-{number}" for number in range(self._counts[role])]

    def master(self) -> str:
        """Return the server that the Sentinels name; without Sentinels, the store."""
        if not self.names(SENTINEL):
            return self.names(STORE)[0]
        sentinels = [(self._nodes[name].address, SENTINEL_PORT) for name in self.names(SENTINEL)]
        host, _ = master_address(sentinels, SERVICE_NAME)
        return next(name for name in (*self.names(STORE), *self.names(REPLICA)) if self._nodes[name].address == host)

    # ---- start and end

    def __enter__(self) -> Self:
        daemon = client()
        remove_labelled(daemon)
        daemon.close()
        self._subnet = Subnet()
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _begin(self) -> None:
        (store,) = self.names(STORE)
        self._launch(store, self._store_command())
        self._wait_ready(store)
        master = self._nodes[store].address
        for name in self.names(REPLICA):
            self._launch(name, [*self._store_command(), "--replicaof", master, str(STORE_PORT)])
        for name in self.names(SENTINEL):
            self._launch(name, _sentinel_command(master, self.topology.sentinels))
        self._wait_all([*self.names(REPLICA), *self.names(SENTINEL)])
        flags = [
            f"SHAREGROUPS_{name.upper().replace('.', '_')}={value}" for name, value in self._store_settings().items()
        ]
        self._nodes[store].exec("env", *flags, "sharegroups", "init")
        services = [name for role in SERVICES for name in self.names(role)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: self._launch(name, self._role_command(name)), services))
        self._wait_all(services)

    def _end(self) -> None:
        for box in [*self._nodes.values(), *self._workers.values()]:
            box.close_firewall()
        with contextlib.suppress(OSError):
            for name, said in self.logs().items():
                (self.folder / f"{name}.log").write_text(said)
        daemon = client()
        remove_labelled(daemon, self._subnet.label)
        daemon.close()

    def _launch(self, name: str, command: Sequence[str]) -> None:
        self._nodes[name] = box = Box(Spec(self._image, name, command), self._subnet)
        box.make()

    def _store_command(self) -> list[str]:
        return [
            "valkey-server", "--bind", "0.0.0.0", "--port", str(STORE_PORT), "--protected-mode", "no", "--dir", DATA,
            "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction",
            "--repl-diskless-sync-delay", "0",
        ]  # fmt: skip

    def _store_settings(self) -> dict[str, str]:
        (store,) = self.names(STORE)
        found = {"store.url": f"redis://{store}:{STORE_PORT}", "store.fsync.always": "true"}
        if sentinels := self.names(SENTINEL):
            hosts = ",".join(f"{name}:{SENTINEL_PORT}" for name in sentinels)
            found["store.url"] = f"redis+sentinel://{hosts}/{SERVICE_NAME}"
        if self.topology.store_replicas:
            found |= {"store.replicas": str(self.topology.store_replicas), "min.insync.replicas": "2"}
        return found

    def _role_command(self, name: str) -> list[str]:
        flags = {
            **self._store_settings(),
            "data.dir": DATA,
            "node.name": name,
            "listen.host": "0.0.0.0",
            "listen.port": str(PORT),
            "advertised.host": name,
            "allow.plaintext": "true",
            **self._settings,
        }
        words = [f"{key}={value}" for key, value in flags.items()]
        return ["python", "-m", "share_node", "serve", name.rpartition("-")[0], *words]

    # ---- waits

    def _wait_all(self, names: Sequence[str]) -> None:
        for name in names:
            self._wait_ready(name)

    def _wait_ready(self, name: str) -> None:
        deadline = time.monotonic() + READY_WAIT_S
        while not (said := self._ready(name))[0]:
            box = self._nodes[name]
            if not box.running():  # as an orchestrator does: a node exits if the store cannot be used yet
                self._start_again(name)
            assert time.monotonic() < deadline, f"{name} is {said[1]} after {READY_WAIT_S:.0f} s:\n{box.logs()[-2000:]}"
            time.sleep(0.1)

    def _ready(self, name: str) -> tuple[bool, str]:
        role, address = name.rpartition("-")[0], self._nodes[name].address
        if role in SERVICES:
            status = asyncio.run(status_of(f"{address}:{PORT}", "readiness", 1.0))
            return status == "SERVING", status
        port = SENTINEL_PORT if role == SENTINEL else STORE_PORT
        try:
            with Redis(address, port, socket_timeout=1.0, socket_connect_timeout=1.0) as store:
                linked = role != REPLICA or store.info("replication").get("master_link_status", "up") == "up"
                return bool(store.ping()) and linked, "not linked to its master"
        except RedisError as error:
            return False, str(error)

    # ---- faults

    def kill(self, name: str) -> None:
        """SIGKILL it; it has ended when this returns."""
        self._nodes[name].kill()

    def start(self, name: str) -> None:
        """Start an ended container again, with its address, data and cuts."""
        if not self._nodes[name].running():
            self._start_again(name)
        self._wait_ready(name)

    def _start_again(self, name: str) -> None:
        box = self._nodes[name]
        box.start()
        for cut, rules in self._cuts:
            if cut == name:
                box.drop(*rules)

    def stop(self, name: str) -> bool:
        """SIGTERM, and a bounded wait. Returns whether SIGTERM sufficed."""
        return self._nodes[name].stop(STOP_WAIT_S) == 0

    def pause(self, name: str) -> None:
        """Freeze the container."""
        self._nodes[name].pause()

    def resume(self, name: str) -> None:
        """Thaw it."""
        self._nodes[name].resume()

    def down(self, name: str) -> bool:
        """Return whether it has ended."""
        return not self._nodes[name].running()

    def store_command(self, name: str, *words: str) -> str:
        """Return the reply of one of the store's servers."""
        return answer_of(Address(self._nodes[name].address, STORE_PORT), *words)

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """SILENT and ONE_WAY: rules in the namespace of `one`. GONE: `other` leaves the network and is unreachable for
        all."""
        first, second = self.box(one), self.box(other)
        if kind is Cut.GONE:
            second.disconnect()
            return
        need_rules("silent cuts")
        rules: list[Sequence[str]] = [("OUTPUT", "--destination", second.address)]
        if kind is Cut.SILENT:
            rules.append(("INPUT", "--source", second.address))
        self._cuts.append((one, tuple(rules)))
        if first.running():
            first.drop(*rules)

    def heal(self) -> None:
        """Flush every rule and put every node back on the network."""
        for name in {name for name, _ in self._cuts}:
            if (box := self.box(name)).running():
                box.flush()
        self._cuts.clear()
        for box in [*self._nodes.values(), *self._workers.values()]:
            box.heal_firewall()
            box.connect()

    def slow(self, name: str, delay_ms: int) -> None:
        """Delay packets to the container. Raises Unsupported if the kernel cannot hand packets to a process."""
        need_rules("delays")
        if (box := self.box(name)).running():
            try:
                box.firewall().delay(box.address, delay_ms)
            except AssertionError as error:
                raise Unsupported(str(error)) from error

    def lose(self, name: str, percent: int) -> None:
        """Lose packets of the container, both ways, until `heal` or its end."""
        need_rules("lost packets")
        if (box := self.box(name)).running():
            box.firewall().lose(box.address, percent)

    def limit_memory(self, name: str, mib: int) -> None:
        """Limit the container's memory, including what it already has."""
        self.box(name).limit_memory(mib)

    # ---- workers and logs

    def worker(self, name: str, kind: str, options: WorkerOptions) -> Worker:
        """Start a container that sees the tests read-only and writes its history as this process's user."""
        history = Path(options.history)
        inside = replace(options, bootstrap=self.bootstrap, history=f"/history/{history.name}")
        spec = Spec(
            self._image,
            name,
            ["python", "-m", "tests.chaos.workers", kind, inside.as_json()],
            user=f"{os.getuid()}:{os.getgid()}",
            workdir="/chaos",
            environment={"HOME": "/tmp"},
            readable={"/chaos/tests": _TESTS},
            writable={"/history": history.parent},
        )
        self._workers[name] = box = Box(spec, self._subnet)
        box.make()
        return Worker(name, box, history.parent / f"{name}.err")

    def logs(self) -> dict[str, str]:
        """Return the logs of every node, by name."""
        found: dict[str, str] = {}
        for name, box in self._nodes.items():
            with contextlib.suppress(Exception):  # a container that was never created
                found[name] = box.logs()
        return found

    def box(self, name: str) -> Box:
        """Return the container of a node or worker."""
        return self._nodes.get(name) or self._workers[name]


class Worker:
    """A worker in a container, which is removed once it has ended."""

    def __init__(self, name: str, box: Box, errors: Path) -> None:
        self._name = name
        self._box = box
        self._errors = errors
        self._status: int | None = None

    @property
    def name(self) -> str:
        """The name it was started with."""
        return self._name

    def leave(self) -> None:
        """SIGTERM it; the worker leaves cleanly."""
        self._unless_ended(lambda: self._box.signal("SIGTERM"))

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit status; None if it is still running."""
        if self._status is None:
            self._status = self._box.wait(timeout_s)
            if self._status is not None:
                with self._errors.open("a") as errors:
                    errors.write(self._box.logs())
                self._box.container.remove(force=True, v=True)
        return self._status

    def kill(self) -> None:
        """SIGKILL it."""
        self._unless_ended(self._box.kill)

    def pause(self) -> None:
        """Freeze it."""
        self._unless_ended(self._box.pause)

    def resume(self) -> None:
        """Thaw it."""
        self._unless_ended(self._box.resume)

    def _unless_ended(self, act: Callable[[], None]) -> None:
        if self._status is None:
            act()


def _sentinel_command(master: str, sentinels: int) -> list[str]:
    lines = [
        f"port {SENTINEL_PORT}",
        "protected-mode no",
        "dir /tmp",
        f"sentinel monitor {SERVICE_NAME} {master} {STORE_PORT} {sentinels // 2 + 1}",
        f"sentinel down-after-milliseconds {SERVICE_NAME} 3000",
        f"sentinel failover-timeout {SERVICE_NAME} 5000",
    ]
    text = "\n".join(lines)
    return ["sh", "-c", f"echo '{text}' >/tmp/sentinel.conf; exec valkey-server /tmp/sentinel.conf --sentinel"]
