"""Floods of frames that need no call: one to three connections send them as fast as the node reads them (CM-180)."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.attack.attacks.connections import listeners
from tests.attack.definition import Attack, Target
from tests.attack.http2 import Connection, message, ping_frame, window_frame

HEALTH: Final = "/grpc.health.v1.Health/Check"
CONNECTIONS_MAX: Final = 3
#: How long other clients may wait for a response meanwhile, in seconds. Before the fix each call waited for 5 to 20 s.
#: The limit for a single call leaves room for a machine that is busy with other tests; most calls take some
#: milliseconds.
TYPICAL_S: Final = 1.0
WORST_S: Final = 4.0
_PAUSE_S: Final = 0.02


def _flooding(frame: bytes) -> Callable[[Target, random.Random, float, Path], str]:
    """Flood one listener, while an earlier client and new ones call it."""

    def run(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
        address, floods = rng.choice(listeners(target)), rng.randint(1, CONNECTIONS_MAX)
        deadline = time.monotonic() + seconds
        sent: list[int] = []
        threads = [threading.Thread(target=_flood, args=(address, frame, deadline, sent)) for _ in range(floods)]
        waits = []
        with Connection(address) as there_before:
            for thread in threads:
                thread.start()
            try:
                while time.monotonic() < deadline:
                    waits.append(_wait_s(there_before))
                    with Connection(address) as newcomer:
                        waits.append(_wait_s(newcomer))
                    time.sleep(_PAUSE_S)
            finally:
                for thread in threads:
                    thread.join()
        typical, worst = statistics.median(waits), max(waits)
        calls = f"{len(waits)} calls beside them, median {typical:.2f} s, worst {worst:.2f} s"
        saw = f"{sum(sent)} frames from {floods} at a time; {calls}"
        assert typical <= TYPICAL_S, f"{saw}; at most {TYPICAL_S} s"
        assert worst <= WORST_S, f"{saw}; at most {WORST_S} s"
        return saw

    return run


def _flood(address: str, frame: bytes, deadline: float, sent: list[int]) -> None:
    """Flood on one connection after another: gRPC closes a connection that sends too many pings."""
    while (left := deadline - time.monotonic()) > 0:
        with Connection(address) as connection:
            sent.append(connection.flood(frame, left))


def _wait_s(connection: Connection) -> float:
    began = time.monotonic()
    call = connection.call(HEALTH)
    connection.data(call, message(b""), end=True)
    assert connection.wait_end(call), "a call beside a flood was reset"
    return time.monotonic() - began


FLOOD_ATTACKS: Final = (
    Attack("ping-flood", "Pings as fast as they are taken, while others call", _flooding(ping_frame())),
    Attack(
        "window-flood", "Changes of a window as fast as they are taken, while others call", _flooding(window_frame())
    ),
)
