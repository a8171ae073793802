"""A network of namespaces: one for every node and worker, joined by a bridge in a separate namespace.

The bridge is not in this machine's namespace, because traffic on a bridge is subject to the rules of the bridge's
namespace, and a machine with Docker has rules that drop it. This machine has one end of a link to the bridge, with the
address `<net>.1`. All names start with the number of the run, so that leftovers of a killed run are found and removed.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Final, Self

from tests.chaos.deployment import Cut
from tests.chaos.drivers.iptables import Firewall, answer, command, inside_named, missing
from tests.chaos.drivers.runs import Run, if_ownerless
from tests.chaos.processes import Handle

_PREFIX: Final = "sgchaos"
_HUB: Final = "hub"
_FIRST_HOST: Final = 10
_NAMES: Final = Path("/run/netns")
_GONE_WAIT_S: Final = 10.0


class Network:
    """The namespaces of one run. A context manager; raises AssertionError with the output of a command that fails."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._addresses: dict[str, str] = {}
        self._firewalls: dict[str, Firewall] = {}

    def __enter__(self) -> Self:
        remove_leftovers(self._run.number)
        try:
            self._make_hub()
        except BaseException:
            remove(self._run.number)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for firewall in self._firewalls.values():
            firewall.close()
        remove(self._run.number)

    def add(self, name: str) -> str:
        """Give a node or worker a namespace, unless it has one; return its address there."""
        if name not in self._addresses:
            number = _FIRST_HOST + len(self._addresses)
            address = f"{self._net}.{number}"
            namespace = self._namespace(name)
            command(["ip", "netns", "add", namespace])
            self._join(namespace, f"node{number}", address)
            self._addresses[name] = address
            self._firewalls[name] = Firewall(self.enter(name))
        return self._addresses[name]

    def enter(self, name: str) -> list[str]:
        """Return the words that run a command in its namespace."""
        return inside_named(self._namespace(name))

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """Cut two added nodes or workers off from each other, including open connections."""
        firewall, address = self._firewalls[one], self._addresses[other]
        if kind is Cut.GONE:
            firewall.refuse(address)
        else:
            firewall.drop(address, incoming=kind is Cut.SILENT, outgoing=True)

    def lose(self, name: str, percent: int) -> None:
        """Lose `percent` % of the packets that a node or worker sends and receives."""
        self._firewalls[name].lose(self._addresses[name], percent)

    def delay(self, name: str, delay_ms: int) -> None:
        """Delay what arrives at a node or worker; 0 removes the delay."""
        self._firewalls[name].delay(self._addresses[name], delay_ms)

    def heal(self) -> None:
        """Remove every cut, loss and delay; what TCP must send again arrives on its next attempt."""
        for firewall in self._firewalls.values():
            firewall.heal()

    def _namespace(self, name: str) -> str:
        return f"{_PREFIX}{self._run.number}-{name}"

    @property
    def _net(self) -> str:
        """Return the first three numbers of our addresses, in a part of 10/8 that Docker and most other software do not
        use."""
        return f"10.231.{self._run.number}"

    def _make_hub(self) -> None:
        hub, outside = self._namespace(_HUB), f"{_PREFIX}{self._run.number}"
        command(["ip", "netns", "add", hub])
        command(["ip", "-n", hub, "link", "add", "bridge", "type", "bridge"])
        command(["ip", "-n", hub, "link", "set", "bridge", "up"])
        command(["ip", "link", "add", outside, "type", "veth", "peer", "name", "machine", "netns", hub])
        command(["ip", "-n", hub, "link", "set", "machine", "master", "bridge", "up"])
        command(["ip", "address", "add", f"{self._net}.1/24", "dev", outside])
        command(["ip", "link", "set", outside, "up"])

    def _join(self, namespace: str, port: str, address: str) -> None:
        """Link the namespace to the bridge."""
        hub = self._namespace(_HUB)
        command(["ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace])
        command(["ip", "-n", hub, "link", "set", port, "master", "bridge", "up"])
        command(["ip", "-n", namespace, "address", "add", f"{address}/24", "dev", "eth0"])
        for device in ("lo", "eth0"):
            command(["ip", "-n", namespace, "link", "set", device, "up"])


def remove_leftovers(mine: int) -> None:
    """Remove networks of ended runs, and what an earlier holder of the number `mine` left."""
    remove(mine)
    for number in {_number(path.name) for path in _named()} - {0, mine}:
        with if_ownerless(number) as ownerless:
            if ownerless:
                remove(number)


def remove(number: int) -> None:
    """Remove the network of a run. Processes still in it are killed, since a namespace exists as long as its processes.

    No other run may take the number during this call.
    """
    for path in [path for path in _named() if _number(path.name) == number]:
        _kill_inside(path.name)
        command(["ip", "netns", "delete", path.name])
    outside = f"{_PREFIX}{number}"
    if Path("/sys/class/net", outside).exists():  # it is removed with its other end, but later
        answer(["ip", "link", "delete", outside])


def why_not() -> str:
    """Return the reason why this machine cannot run networks of namespaces; "" if it can."""
    if program := missing():
        return program
    try:
        with Run() as run, Network(run) as network:
            network.add("probe")
            network.cut("probe", "probe", Cut.GONE)
    except AssertionError as error:
        return str(error)
    return ""


def why_no_delay() -> str:
    """Return the reason why packets cannot be delayed here; "" if they can. Valid only if `why_not` returns ""."""
    try:
        with Run() as run, Network(run) as network:
            network.add("probe")
            network.delay("probe", 1)
    except AssertionError as error:
        return str(error)
    return ""


def _named() -> list[Path]:
    return sorted(_NAMES.iterdir()) if _NAMES.is_dir() else []


def _number(name: str) -> int:
    """Return the run's number in a namespace's name; 0 for a namespace that is not ours."""
    found = re.match(rf"{_PREFIX}(\d+)-", name)
    return int(found.group(1)) if found else 0


def _kill_inside(namespace: str) -> None:
    for pid in map(int, answer(["ip", "netns", "pids", namespace]).stdout.split()):
        try:
            handle = Handle(pid)
        except ProcessLookupError:
            continue
        handle.signal(signal.SIGKILL)
        handle.wait(_GONE_WAIT_S)
        handle.close()
