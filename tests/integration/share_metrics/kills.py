"""Streams with a ledger, processes that ingest them, and executors that are killed while their tasks run."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from threading import Event

from kip932.ids import SharePartitionKey
from kip932.state_batches import WriteStats
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareSnapshot, ShareUpdate
from tests.chaos.processes import Handle, descendants
from tests.support.pipeline_entries import TOPIC, snapshot, update

from .world import Log, World

STREAMS = [f"{{sgs:{number}}}:log" for number in range(4)]
#: Entries that each part of the story adds to each stream: two pages per task, so that a job reads for a while.
PART = 8_000
PAUSE_MS = 1_500
BOUND_S = 400


Job = subprocess.Popen[str]


def ends(
    command: list[str], meanwhile: Callable[[Job], object] = bool, env: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Run a command that must exit with 0, and call `meanwhile` while it runs; returns its standard output and
    error."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            meanwhile(process)
            reported, said = process.communicate(timeout=BOUND_S)
        finally:
            process.kill()
    assert process.returncode == 0, f"{reported[-2000:]}{said[-2000:]}"
    return reported, said


class Ledger:
    """Writes what a share coordinator would for one group with a share-partition in each stream; keeps totals of what
    it wrote."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._logs = [Log(world, stream) for stream in STREAMS]
        self._keys = [SharePartitionKey("G1", TOPIC, number) for number in range(len(STREAMS))]
        self.finished = 0
        for log, key in zip(self._logs, self._keys, strict=True):
            log.state(snapshot(0, key=key))

    def write(self) -> None:
        """Write another part; each record finishes three offsets and releases one."""
        stats = WriteStats(1, n_accept=3, n_release=1, max_dc=1, sum_dc=3)
        for log, key in zip(self._logs, self._keys, strict=True):
            log.state(*(update(self.finished + 3 * number, key=key, stats=stats) for number in range(1, PART + 1)))
        self.finished += 3 * PART

    def totals(self) -> tuple[Counter[tuple[str, str]], int, int]:
        """Return the number of entries in the streams, and of accepted and released records; read from the store with
        the services' codec, not with the pipeline's reader."""
        entries: Counter[tuple[str, str]] = Counter()
        accepted = released = 0
        for stream in STREAMS:
            for key, fields in self._world.redis.xrange(stream):
                entries[stream, key.decode()] += 1
                record = ShareStateCodec().decode(fields[b"t"].decode(), fields[b"r"])
                if isinstance(record, ShareSnapshot | ShareUpdate):
                    accepted += record.stats.n_accept or 0
                    released += record.stats.n_release or 0
        return entries, accepted, released


def reads(executor: int) -> bool:
    """Return whether an executor has a Python worker."""
    return any("pyspark.daemon" in below for below in descendants(executor).values())


def kill(pid: int) -> None:
    """Send SIGKILL, and wait until the process has ended."""
    handle = Handle(pid)
    handle.signal(9)
    assert handle.wait(BOUND_S)
    handle.close()


def kill_amid(job: Job, world: World, busy: Callable[[], int | None]) -> None:
    """SIGKILL the executor that `busy` finds, once it has read pages and while the store withholds its replies."""
    pause = Event()

    def pages() -> int:
        calls: int = world.redis.info("commandstats").get("cmdstat_xrange", {}).get("calls", 0)
        return calls

    world.redis.config_resetstat()
    until = time.monotonic() + BOUND_S
    while job.poll() is None and time.monotonic() < until:
        if busy() is not None and pages() > 2 * len(STREAMS):
            break
        pause.wait(0.02)
    world.redis.client_pause(PAUSE_MS, all=True)
    victim = busy()
    assert victim is not None, "no executor has read" if job.poll() is None else job.communicate()
    kill(victim)
