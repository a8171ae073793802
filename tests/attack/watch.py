"""Watches the nodes under attack from outside: whether a new client can reach each, and how much memory each uses."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from tests.support.dial import PLAIN, Dial

POLL_S: Final = 0.5
CALL_S: Final = 2.0
MIB: Final = 1024 * 1024


class Watch:
    """Polls every node each half second, on a new connection each time, as a new client would.

    `addresses`: client addresses by node; `pids`: called at every poll, since nodes are restarted.
    """

    def __init__(self, addresses: Mapping[str, str], pids: Callable[[], Mapping[str, int]], dial: Dial = PLAIN) -> None:
        self._addresses = dict(addresses)
        self._pids = pids
        self._dial = dial
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._reach, args=(name, address), daemon=True)
            for name, address in self._addresses.items()
        ]
        self._threads.append(threading.Thread(target=self._weigh, daemon=True))
        self._outages: dict[str, float] = dict.fromkeys(addresses, 0.0)
        self._memory: dict[str, list[int]] = {name: [] for name in addresses}
        self._began = time.monotonic()
        self._ended = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop polling; what was seen can still be read. Safe to call again."""
        self._stop.set()
        self._ended = self._ended or time.monotonic()
        for thread in self._threads:
            thread.join(2 * CALL_S)

    def longest_outage_s(self) -> dict[str, float]:
        """Return each node's longest time from the first failed poll to the next successful one, or to now."""
        return dict(self._outages)

    def peak_bytes(self, name: str) -> int:
        """Return the highest resident memory that a node had at a poll."""
        return max(self._memory[name], default=0)

    def growth(self, name: str) -> float:
        """Return the low of the resident memory in the last third of the polls, divided by the low in the second third.

        The first third is left out, because caches fill during it. The low is the value that a twentieth of the polls
        are below: what an attack leaves in memory matters here, not what it uses while it lasts.
        """
        samples = self._memory[name]
        third = len(samples) // 3
        if third == 0:
            return 1.0
        return _low(samples[2 * third :]) / _low(samples[third : 2 * third])

    def watched_s(self) -> float:
        """Return how long it has watched the memory."""
        return (self._ended or time.monotonic()) - self._began

    def medians_mib(self, name: str, parts: int = 12) -> list[int]:
        """Return the median resident memory, in MiB, in each of `parts` equal parts of the time, which shows whether
        memory grows or only differs by attack."""
        samples, step = self._memory[name], max(1, len(self._memory[name]) // parts)
        cuts = range(0, len(samples) - step + 1, step)
        return [round(statistics.median(samples[start : start + step]) / MIB) for start in cuts]

    def _reach(self, name: str, address: str) -> None:
        failed_since = 0.0
        while not self._stop.wait(POLL_S):
            began = time.monotonic()
            if _answers(address, self._dial):
                if failed_since:
                    self._outages[name] = max(self._outages[name], time.monotonic() - failed_since)
                failed_since = 0.0
            else:
                failed_since = failed_since or began
                self._outages[name] = max(self._outages[name], time.monotonic() - failed_since)

    def _weigh(self) -> None:
        while not self._stop.wait(POLL_S / 2):
            for name, pid in self._pids().items():
                if weight := resident_bytes(pid):
                    self._memory[name].append(weight)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _low(samples: list[int]) -> int:
    return sorted(samples)[len(samples) // 20]


def _answers(address: str, dial: Dial) -> bool:
    """Return whether a node serves a newcomer: checks its liveness over a new connection."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with dial.channel(address, options) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=CALL_S)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
