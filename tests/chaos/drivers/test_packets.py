"""Packets of a namespace are delayed and lost as requested, and pass again after healing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.chaos.deployment import Unsupported
from tests.chaos.drivers.namespaces import require_namespaces
from tests.chaos.drivers.network import Network
from tests.chaos.drivers.runs import Run

PORT = 7_932
DELAY_MS = 150
#: A program that echoes each line.
_ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
while True:
    caller, _ = server.accept()
    with caller:
        while said := caller.recv(100):
            caller.sendall(said)
"""

SENT = 200
_SENDS = """
import contextlib, socket, sys
for _ in range(int(sys.argv[3])):
    with contextlib.suppress(PermissionError):  # this is how a lost datagram looks to who sends it
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        require_namespaces()
    except Unsupported as reason:
        pytest.skip(str(reason))
    with Run() as run, Network(run) as network:
        yield network


@pytest.fixture
def echo(network: Network) -> Iterator[str]:
    """Yield the address of a server that echoes, in a separate namespace."""
    address = network.add("echo")
    words = [*network.enter("echo"), sys.executable, "-I", "-c", _ECHO, address, str(PORT)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        yield address
        process.kill()


def asked_ms(address: str) -> float:
    """Return how long a new connection and a reply take."""
    began = time.monotonic()
    with socket.create_connection((address, PORT), 5.0) as link:
        link.sendall(b"x")
        assert link.recv(1) == b"x"
    return (time.monotonic() - began) * 1_000


def test_what_comes_in_is_held_up_until_the_delay_is_changed_or_healed(network: Network, echo: str) -> None:
    try:
        network.delay("echo", DELAY_MS)
    except AssertionError as reason:
        pytest.skip(str(reason))
    assert asked_ms(echo) >= 2 * DELAY_MS  # the connect's first packet, and the one with the request
    network.delay("echo", 1)
    assert min(asked_ms(echo) for _ in range(20)) < DELAY_MS
    network.delay("echo", DELAY_MS)
    network.heal()
    assert min(asked_ms(echo) for _ in range(20)) < DELAY_MS


def test_some_packets_are_lost_by_chance_and_none_after_healing(network: Network) -> None:
    hub = network.add("sender").rpartition(".")[0] + ".1"  # this machine's address
    network.lose("sender", 50)
    assert 0 < arrived(network, hub) < SENT  # all or none by chance: once in 2 ** 200
    network.heal()
    assert arrived(network, hub) == SENT


def arrived(network: Network, hub: str) -> int:
    """Count how many of SENT datagrams arrive, until the sender has ended and no datagram is left."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind((hub, 0))
        words = [sys.executable, "-I", "-c", _SENDS, hub, str(here.getsockname()[1]), str(SENT)]
        subprocess.run([*network.enter("sender"), *words], check=True, timeout=60)
        here.setblocking(False)
        count = 0
        while True:
            try:
                here.recv(1)
            except BlockingIOError:
                return count
            count += 1


def test_a_namespace_that_loses_all_packets_cannot_be_reached(network: Network, echo: str) -> None:
    network.lose("echo", 100)
    with pytest.raises(TimeoutError), socket.create_connection((echo, PORT), 0.5):
        pass
    network.heal()
    assert asked_ms(echo) > 0


def test_a_delay_whose_process_dies_lets_packets_pass(network: Network, echo: str) -> None:
    try:
        network.delay("echo", 60_000)
    except AssertionError as reason:
        pytest.skip(str(reason))
    for firewall in network._firewalls.values():
        firewall.close()
    assert asked_ms(echo) < 60_000
