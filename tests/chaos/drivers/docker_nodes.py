"""Containers and their network for the driver `containers`: created with testcontainers; faults are caused through
Docker's client.

Everything has a label that names the process it belongs to. By this label the next run finds what a killed run left
behind, and removes it at the start; what belongs to a living process is never touched.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# Set before testcontainers is imported, which reads it once. Its reaper is an image that would have to be pulled.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import EndpointConfig, IPAMConfig, IPAMPool
from docker.version import __version__ as docker_version
from requests.exceptions import ConnectionError, ReadTimeout
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.chaos.deployment import Unsupported
from tests.chaos.drivers.iptables import Firewall, inside_process

LABEL: Final = "sharegroups.chaos"
COMMAND_WAIT_S: Final = 20.0
#: Subnets are tried in a private range that neither Docker's defaults nor common home networks use.
SUBNETS: Final = tuple(f"10.213.{number}" for number in range(1, 250))


def _start_ticks(pid: int) -> str:
    """Return a process's start time, which distinguishes it from a later process with the same id; "" if it has
    ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def new_label() -> str:
    """Return a new label value: this process, and a random word."""
    return f"{os.getpid()}.{_start_ticks(os.getpid())}.{secrets.token_hex(4)}"


def client() -> docker.DockerClient:
    """Return a client of the local daemon. Raises DockerException if there is none."""
    found = docker.from_env(timeout=int(COMMAND_WAIT_S) * 3)
    found.ping()
    return found


def remove_labelled(daemon: docker.DockerClient, label: str = "") -> None:
    """Remove everything with this value of the label; without one, what ended processes left behind."""

    def due(labels: Mapping[str, str]) -> bool:
        value = labels.get(LABEL, "")
        pid, ticks, *_ = [*value.split("."), ""]
        return value == label if label else pid.isdigit() and _start_ticks(int(pid)) != ticks

    for container in daemon.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
        if due(container.labels):
            with contextlib.suppress(NotFound, APIError):
                container.remove(force=True, v=True)
    for network in daemon.networks.list(filters={"label": LABEL}):
        if due(network.attrs.get("Labels") or {}):
            with contextlib.suppress(NotFound, APIError):
                network.remove()


class Subnet:
    """A separate bridge network whose addresses we assign, so that a node keeps its address across a restart."""

    def __init__(self) -> None:
        self.label = new_label()
        for prefix in random.sample(SUBNETS, 20):
            pool = IPAMPool(subnet=f"{prefix}.0/24", gateway=f"{prefix}.1")
            network = Network(
                docker_network_kw={"ipam": IPAMConfig(pool_configs=[pool]), "labels": {LABEL: self.label}}
            )
            try:
                network.create()
            except APIError:  # another network has that range
                continue
            self.network, self._prefix, self._last = network, prefix, 9
            return
        raise DockerException("none of 20 private subnets is free")

    @property
    def name(self) -> str:
        """The name by which Docker knows the network."""
        return str(self.network.name)

    def address(self) -> str:
        """Return the next free address."""
        self._last += 1
        assert self._last < 250, "no free address left in the chaos network"
        return f"{self._prefix}.{self._last}"


@dataclass(slots=True)
class Spec:
    """What a container runs. `writable` and `readable` are host folders by their path inside; `readable` are
    read-only."""

    image: str
    name: str
    command: Sequence[str]
    user: str = ""
    workdir: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    writable: Mapping[str, Path] = field(default_factory=dict)
    readable: Mapping[str, Path] = field(default_factory=dict)


class Box:
    """One container on a subnet, where it is reachable by name: read-only root, no capabilities."""

    def __init__(self, spec: Spec, subnet: Subnet) -> None:
        self.spec = spec
        self.address = subnet.address()
        self._subnet = subnet
        self._gone = False
        self._firewall: Firewall | None = None
        self._firewall_pid = 0
        self._made = DockerContainer(spec.image).with_command(list(spec.command)).with_network(subnet.network)
        for inside, outside in spec.writable.items():
            self._made.with_volume_mapping(outside, inside, "rw")
        for inside, outside in spec.readable.items():
            self._made.with_volume_mapping(outside, inside, "ro")
        self._made.with_envs(**spec.environment).with_tmpfs_mount("/tmp")
        endpoint = EndpointConfig(docker_version, aliases=[spec.name], ipv4_address=self.address)
        options: dict[str, Any] = {
            "networking_config": {subnet.name: endpoint},
            "labels": {LABEL: subnet.label},
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "healthcheck": {"test": ["NONE"]},  # readiness is checked from outside, which costs no process
            "stdin_open": True,
        }
        if spec.user:
            options["user"] = spec.user
        if spec.workdir:
            options["working_dir"] = spec.workdir
        self._made.with_kwargs(**options)

    def make(self) -> None:
        """Create and start it."""
        self._made.start()

    @property
    def container(self) -> Any:
        """Docker's untyped container object."""
        return self._made.get_wrapped_container()

    def state(self) -> Mapping[str, Any]:
        """Docker's `State`: Running, Paused, Pid, ExitCode."""
        self.container.reload()
        state: Mapping[str, Any] = self.container.attrs["State"]
        return state

    def running(self) -> bool:
        """Return whether it is running, which includes paused; a removed one is not."""
        try:
            return bool(self.state()["Running"])
        except NotFound:
            return False

    def start(self) -> None:
        """Start it again with its data."""
        self.container.start()

    def kill(self) -> None:
        """SIGKILL it and wait for its end. If frozen, it is thawed first."""
        state = self.state()
        if not state["Running"]:
            return
        with contextlib.suppress(APIError):  # it has ended by itself meanwhile
            if state["Paused"]:
                self.container.unpause()
            self.container.kill()
        self.wait(COMMAND_WAIT_S)

    def signal(self, name: str) -> None:
        """Send a signal; do nothing if it is not running."""
        with contextlib.suppress(APIError):
            self.container.kill(signal=name)

    def stop(self, timeout_s: int) -> int:
        """SIGTERM, then SIGKILL after a bounded wait; return its exit status."""
        self.container.stop(timeout=timeout_s)
        return int(self.state()["ExitCode"])

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit status once it has ended; None if it is still running."""
        try:
            return int(self.container.wait(timeout=timeout_s)["StatusCode"])
        except (ConnectionError, ReadTimeout):
            state = self.state()
            return None if state["Running"] else int(state["ExitCode"])

    def pause(self) -> None:
        """Freeze it."""
        if not self.state()["Paused"]:
            self.container.pause()

    def resume(self) -> None:
        """Thaw it."""
        if self.state()["Paused"]:
            self.container.unpause()

    def exec(self, *words: str) -> str:
        """Run a command inside and return its output. Raises AssertionError unless it ended with 0."""
        status, said = self.container.exec_run(list(words))
        text = said.decode(errors="replace")
        assert status == 0, f"{self.spec.name}: {' '.join(words)}: status {status}\n{text}"
        return str(text)

    def limit_memory(self, mib: int) -> None:
        """Limit its memory; 0 allows all that the machine has. Raises Unsupported if Docker cannot."""
        most = mib << 20 or _machine_bytes()
        try:
            self.container.update(mem_limit=most, memswap_limit=most)
        except APIError as error:
            raise Unsupported(f"needs control groups: {error}") from error

    def logs(self) -> str:
        """Return its output on both streams."""
        return str(self.container.logs().decode(errors="replace"))

    # ---- its network

    def disconnect(self) -> None:
        """Take it off the network: its name can no longer be resolved, and nothing answers at its address."""
        if not self._gone:
            self._gone = True
            self._subnet.network._unwrap_network.disconnect(self.container, force=True)

    def connect(self) -> None:
        """Put it back on the network, with the same name and address."""
        if self._gone:
            self._gone = False
            self._subnet.network._unwrap_network.connect(
                self.container, aliases=[self.spec.name], ipv4_address=self.address
            )

    @contextlib.contextmanager
    def inside(self) -> Iterator[list[str]]:
        """Yield the words that run a command in this container's network namespace."""
        yield ["nsenter", "--target", str(self.state()["Pid"]), "--net"]

    def drop(self, *rules: Sequence[str]) -> None:
        """Append rules to its own packet filter. Raises AssertionError with iptables' message."""
        with self.inside() as prefix:
            for rule in rules:
                run([*prefix, "iptables", "--wait", "5", "--append", *rule, "--jump", "DROP"])

    def firewall(self) -> Firewall:
        """Return the rules for loss and delay in its network namespace, which is new at each start."""
        pid = int(self.state()["Pid"])
        if self._firewall is None or self._firewall_pid != pid:
            self.close_firewall()
            self._firewall, self._firewall_pid = Firewall(inside_process(pid)), pid
        return self._firewall

    def heal_firewall(self) -> None:
        """Remove the rules for loss and delay, if it has any; the others stay."""
        if self._firewall is not None and self.running() and self._firewall_pid == self.state()["Pid"]:
            self._firewall.heal()
        self.close_firewall()

    def close_firewall(self) -> None:
        """End the process that delays packets; without it they pass."""
        if self._firewall is not None:
            self._firewall.close()

    def flush(self) -> None:
        """Remove every rule that `drop` appended."""
        with self.inside() as prefix:
            run([*prefix, "iptables", "--wait", "5", "--flush"])


def run(words: Sequence[str]) -> None:
    """Run a bounded command. Raises AssertionError with its output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_WAIT_S, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: status {done.returncode}: {done.stderr.strip()}"


def need_rules(what: str) -> None:
    """Raises Unsupported if this process cannot add rules in a container's network."""
    if shutil.which("nsenter") is None or shutil.which("iptables") is None or os.geteuid() != 0:
        raise Unsupported(f"{what} need nsenter, iptables and root")
