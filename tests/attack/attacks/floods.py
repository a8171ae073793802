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
from tests.attack.definition import Attack, Target, Who
from tests.attack.http2 import Connection, message, ping_frame, window_frame
from tests.support.dial import Dial

HEALTH: Final = "/grpc.health.v1.Health/Check"
CONNECTIONS_MAX: Final = 3
#: The minimum number of other clients' calls that must get a response while the floods go on, within `FLOOD_MAX_S`
#: seconds. If a flood starves others, a call waits for 5 to 20 s, otherwise for a few milliseconds, except for the
#: first calls (CM-180). Calls are counted instead of timed, since the machine may be busy with other tests.
CALLS_MIN: Final = 20
FLOOD_MAX_S: Final = 40.0
_PAUSE_S: Final = 0.02


def _flooding(frame: bytes) -> Callable[[Target, random.Random, float, Path], str]:
    """Flood one listener, while an earlier client and new ones call it."""

    def run(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
        address, floods = rng.choice(listeners(target)), rng.randint(1, CONNECTIONS_MAX)
        began, end = time.monotonic(), threading.Event()
        sent: list[int] = []
        threads = [
            threading.Thread(target=_flood, args=(address, frame, end, sent, target.dial)) for _ in range(floods)
        ]
        waits: list[float] = []
        with Connection(address, dial=target.dial) as there_before:
            for thread in threads:
                thread.start()
            try:
                while (lasted := time.monotonic() - began) < seconds or len(waits) < CALLS_MIN:
                    calls = f"{len(waits)} calls of others got a response in {lasted:.0f} s during {floods} floods"
                    assert lasted < FLOOD_MAX_S, f"{calls}; at least {CALLS_MIN} are expected"
                    waits.append(_wait_s(there_before))
                    with Connection(address, dial=target.dial) as newcomer:
                        waits.append(_wait_s(newcomer))
                    time.sleep(_PAUSE_S)
            finally:
                end.set()
                for thread in threads:
                    thread.join()
        calls = f"{len(waits)} calls beside them, median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s"
        return f"{sum(sent)} frames from {floods} at a time; {calls}"

    return run


def _flood(address: str, frame: bytes, end: threading.Event, sent: list[int], dial: Dial) -> None:
    """Flood on one connection after another: gRPC closes a connection that sends too many pings."""
    while not end.is_set():
        with Connection(address, dial=dial) as connection:
            sent.append(connection.flood(frame, end))


def _wait_s(connection: Connection) -> float:
    began = time.monotonic()
    call = connection.call(HEALTH)
    connection.data(call, message(b""), end=True)
    assert connection.wait_end(call), "a call beside a flood was reset"
    return time.monotonic() - began


FLOOD_ATTACKS: Final = (
    Attack("ping-flood", "Pings as fast as they are taken, while others call", _flooding(ping_frame()), Who.STRANGER),
    Attack(
        "window-flood",
        "Changes of a window as fast as they are taken, while others call",
        _flooding(window_frame()),
        Who.STRANGER,
    ),
)
