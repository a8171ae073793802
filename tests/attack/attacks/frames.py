"""Attacks with HTTP/2 frames: opened and reset calls, pings, settings changes, compressed messages."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.attack.attacks.connections import listeners
from tests.attack.definition import Attack, Target, Who
from tests.attack.http2 import Connection, message

HEARTBEAT: Final = "/kip932.api.v1.GroupCoordinatorService/ShareGroupHeartbeat"
SHARE_STREAM: Final = "/kip932.api.v1.PartitionLeaderService/ShareStream"
DESCRIBE: Final = "/kip932.api.v1.GroupCoordinatorService/ShareGroupDescribe"
#: The number of frames in a burst, after which a connection is checked: if its peer has closed it, another is opened.
_BURST: Final = 200
#: An entry with an empty string as field 1; repeated, it gives any number of empty group ids.
_EMPTY_ENTRY: Final = b"\x0a\x00"
#: The pause, relative to the time worked: the attack is on the nodes, not on the machine that it shares with them.
_PAUSE_RATIO: Final = 0.5


def _in_bursts(
    burst: Callable[[Connection, random.Random], int], of: Callable[[Target], list[str]]
) -> Callable[[Target, random.Random, float, Path], str]:
    """Repeat a burst on one connection to each address; each is opened again once its peer has closed it."""

    def run(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
        deadline, count, closed = time.monotonic() + seconds, 0, 0
        addresses = of(target)
        connections = {address: Connection(address, dial=target.dial) for address in addresses}
        try:
            while time.monotonic() < deadline:
                for address in addresses:
                    if connections[address].closed:
                        connections[address].__exit__(None, None, None)
                        connections[address] = Connection(address, dial=target.dial)
                        closed += 1
                    began = time.monotonic()
                    count += burst(connections[address], rng)
                    connections[address].pump(max(0.001, (time.monotonic() - began) * _PAUSE_RATIO))
        finally:
            for connection in connections.values():
                connection.__exit__(None, None, None)
        return f"{count} of them; {closed} times the node closed the connection"

    return run


def _resets(connection: Connection, rng: random.Random) -> int:
    for _ in range(_BURST):
        connection.reset(connection.call(rng.choice((HEARTBEAT, SHARE_STREAM))))
    return _BURST


def _pings(connection: Connection, rng: random.Random) -> int:
    connection.ping(_BURST)
    return _BURST


def _settings(connection: Connection, rng: random.Random) -> int:
    connection.settings(_BURST)
    return _BURST


def _unknown_methods(connection: Connection, rng: random.Random) -> int:
    for _ in range(_BURST // 4):
        path = "/" + "".join(rng.choices("abc/.%\\ \t~", k=rng.randrange(1, 100)))
        connection.data(connection.call(path), message(b"x"), end=True, wait_s=0.1)
    return _BURST // 4


def _no_text(connection: Connection, rng: random.Random) -> int:
    """Send paths whose bytes are not text."""
    path = rng.choice((b"/", HEARTBEAT.encode())) + rng.randbytes(rng.choice((1, 2, 50, 3_000)))
    connection.data(connection.call(path), message(b""), end=True, wait_s=0.1)
    return 1


def _bomb(connection: Connection, rng: random.Random) -> int:
    """Send 60 MiB of zeros in 60 KiB as a call's only message."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(60)) + packer.flush()
    call = connection.call(rng.choice((HEARTBEAT, DESCRIBE, SHARE_STREAM)), "gzip")
    connection.data(call, message(packed, compressed=True), end=True)
    return 1


def _wide(connection: Connection, rng: random.Random) -> int:
    """Request a description of more groups than a message may name."""
    call = connection.call(DESCRIBE)
    connection.data(call, message(_EMPTY_ENTRY * rng.choice((1_001, 500_000, 3_000_000))), end=True)
    return 1


def _clients(target: Target) -> list[str]:
    return sorted(target.clients.values())


FRAME_ATTACKS: Final = (
    Attack("rapid-reset", "Calls that are opened and reset at once", _in_bursts(_resets, listeners), Who.STRANGER),
    Attack("pings", "Pings without end", _in_bursts(_pings, listeners), Who.STRANGER),
    Attack("settings", "Changes of HTTP/2's settings without end", _in_bursts(_settings, listeners), Who.STRANGER),
    Attack(
        "unknown-methods", "Calls of methods that there are not", _in_bursts(_unknown_methods, listeners), Who.STRANGER
    ),
    Attack("path-bytes", "Calls whose path is not text", _in_bursts(_no_text, listeners), Who.STRANGER),
    Attack(
        "gzip-bombs", "Messages that unpack to a thousand times their bytes", _in_bursts(_bomb, _clients), Who.STRANGER
    ),
    Attack("wide-describes", "Requests that name millions of groups", _in_bursts(_wide, _clients), Who.STRANGER),
)
