"""Ports of this machine for the servers of a test."""

from __future__ import annotations

import itertools
import random
import socket
from typing import Final

#: Below the ports that the kernel gives to outgoing connections: one of those could take a port between this call and
#: the start of the server that it is for.
_PORTS: Final = range(20_000, 32_768)
#: In an order of this process's own, so that test processes rarely try the same ones, and none twice in a row.
_next_ports: Final = itertools.cycle(random.SystemRandom().sample(_PORTS, len(_PORTS)))


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens at present."""
    for port in itertools.islice(_next_ports, len(_PORTS)):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise AssertionError("each port of the range is taken")
