"""One running experiment: a load on an existing deployment, faults recorded in the history, and an end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.chaos.abilities import clocks_of, disks_of
from tests.chaos.deployment import (
    GROUP_COORDINATOR,
    PARTITION_LEADER,
    REPLICA,
    SENTINEL,
    SERVICES,
    STORE,
    Cut,
    Deployment,
    FollowsMaster,
)
from tests.chaos.drops import drops
from tests.chaos.hands import Hand, produce_all, produce_one
from tests.chaos.history import Acknowledged, Fault, HistoryWriter, Observed, now_ms
from tests.chaos.load import Load, LoadOptions, Tail, wait_for
from tests.chaos.ownership import Ownership
from tests.chaos.verdict import CONSUMER_KILLED

ROLES: Final = (*SERVICES, STORE, REPLICA, SENTINEL)
#: Far longer than a recovery may take; the report shows if it took too long.
RECOVERY_WAIT_S: Final = 30.0


class Trial:
    """The argument of an experiment's function. A context manager: entering starts the load, leaving ends it and
    heals."""

    def __init__(self, deployment: Deployment, folder: Path, seed: int, topic: str, options: LoadOptions) -> None:
        self.deployment = deployment
        self.folder = folder
        self.rng = random.Random(seed)
        self.load = Load(deployment, folder, seed, topic, options)
        self.owners = Ownership(deployment)
        self._faults = HistoryWriter(folder / "faults.jsonl")
        self._tail = Tail(folder)
        self._killed_ms = 0
        self._down: list[str] = []
        self._paused: list[str] = []
        self._undo: dict[str, Callable[[], None]] = {}
        self._hands: list[Hand] = []

    def __enter__(self) -> Self:
        try:
            self.load.begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def finish(self) -> None:
        """Undo every fault, drain the topic, and let the workers leave."""
        self.mend()
        for hand in self._hands:
            hand.close()
        self.load.finish()

    def _end(self) -> None:
        try:
            self.mend()
        finally:
            for hand in self._hands:
                hand.close()
            self.load.close()
            self.owners.close()
            self._faults.close()

    # ---- nodes

    def names(self, role: str) -> list[str]:
        """Return the nodes of a role."""
        return self.deployment.names(role)

    def everybody(self, roles: Iterable[str] = SERVICES) -> list[str]:
        """Return the nodes of several roles, in this order."""
        return [name for role in roles for name in self.names(role)]

    def leader(self, partition: int = 0) -> str:
        """Return the node that currently leads a partition of the load's topic."""
        return self.owners.leader(self.load.topic, partition)

    def coordinator(self) -> str:
        """Return the node that currently coordinates the load's group."""
        return self.owners.group_coordinator(self.load.group)

    def state_keeper(self, partition: int = 0) -> str:
        """Return the share coordinator that currently keeps the state of a partition of the load's topic."""
        return self.owners.share_coordinator(self.load.group, self.load.topic, partition)

    def master(self) -> str:
        """Return the store's current master."""
        found = self.deployment
        return found.master() if isinstance(found, FollowsMaster) else self.names(STORE)[0]

    def an_owner(self, role: str) -> str:
        """Return a node of a service on which some partition of the load, or its group, currently depends."""
        if role == GROUP_COORDINATOR:
            return self.coordinator()
        return self.leader(self.a_partition()) if role == PARTITION_LEADER else self.state_keeper(self.a_partition())

    def a_partition(self) -> int:
        """Return a random partition of the load's topic."""
        return self.rng.randrange(self.load.options.partitions)

    # ---- time

    def pass_time(self, least_s: float, most_s: float) -> None:
        """Wait for a random time."""
        time.sleep(self.rng.uniform(least_s, most_s))

    def until(self, happened: Callable[[], bool], what: str, timeout_s: float = RECOVERY_WAIT_S) -> None:
        """Wait until something has happened. Raises AssertionError with `what` if it does not."""
        wait_for(happened, what, timeout_s)

    def until_served_again(self, role: str) -> None:
        """Wait until the last kill's role, or the killed consumer's partitions, are served again; see
        `verdict.recoveries`."""
        groups = role == GROUP_COORDINATOR
        missing = {0} if groups else set(range(self.load.options.partitions))

        def served() -> bool:
            for event in self._tail.new():
                if groups and isinstance(event, Observed) and event.asked_ms >= self._killed_ms:
                    missing.discard(0)
                elif isinstance(event, Acknowledged) and not event.error and event.sent_ms >= self._killed_ms:
                    missing.discard(-1 if groups else event.partition)
            return not missing

        self.until(served, f"service after the SIGKILL of a {role}")

    # ---- faults

    def kill(self, *names: str) -> None:
        """SIGKILL nodes, one right after the other; they stay down."""
        for name in names:
            self._killed_ms = self._record("SIGKILL", name)
            self._down.append(name)
            self.deployment.kill(name)

    def kill_consumer(self, name: str) -> None:
        """SIGKILL a consumer's process; it stays down."""
        self._killed_ms = self._record(CONSUMER_KILLED, name)
        self.load.kill_worker(name)

    def start(self, *names: str) -> None:
        """Start the nodes that are down, those of a store first and the rest in parallel; all are ready when this
        returns."""
        stores = [name for name in names if name.rpartition("-")[0] not in SERVICES]
        for name in stores:
            self._start(name)
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            list(pool.map(self._start, (name for name in names if name not in stores)))

    def _start(self, name: str) -> None:
        self.deployment.start(name)
        self._record("started", name)
        if name in self._down:
            self._down.remove(name)

    def stop(self, name: str) -> None:
        """SIGTERM a node. Raises AssertionError if it does not leave cleanly."""
        self._record("SIGTERM", name)
        self._down.append(name)
        assert self.deployment.stop(name), f"{name} did not leave in good order after SIGTERM"
        self._record("stopped", name)

    def pause(self, *names: str) -> None:
        """SIGSTOP nodes until `resume`."""
        for name in names:
            self._record("SIGSTOP", name)
            self._paused.append(name)
            self.deployment.pause(name)

    def resume(self, *names: str) -> None:
        """Let paused nodes continue."""
        for name in names:
            self.deployment.resume(name)
            self._paused.remove(name)
            self._record("SIGCONT", name)

    def cut(self, one: str, other: str, kind: Cut) -> None:
        """Cut a link until `heal`."""
        self._record("cut", f"{one} {other} {kind.value}")
        self.deployment.cut(one, other, kind)

    def heal(self) -> None:
        """Remove all cuts, losses and delays."""
        self.deployment.heal()
        self._record("healed", "everything")

    def slow(self, name: str, delay_ms: int) -> None:
        """Delay what goes to a node."""
        self._record(f"slow {delay_ms} ms", name)
        self.deployment.slow(name, delay_ms)

    def lose(self, name: str, percent: int) -> None:
        """Lose `percent` % of a node's packets, both ways, until `heal`."""
        self._record(f"{percent} % of packets lost", name)
        self.deployment.lose(name, percent)

    def set_clock(self, name: str, *, wall_ms: int | None = None, rate_ppm: int | None = None) -> None:
        """Set the offset of a service's wall clock and the rate of all its clocks. `wear_clocks` must have restarted it
        before."""
        clocks = clocks_of(self.deployment)
        self._undo[f"clock of {name}"] = lambda: clocks.set_clock(name, wall_ms=0, rate_ppm=0)
        said = [f"wall clock off by {wall_ms} ms"] if wall_ms is not None else []
        said += [f"clocks {rate_ppm:+} ppm"] if rate_ppm is not None else []
        self._record(" and ".join(said), name)
        clocks.set_clock(name, wall_ms=wall_ms, rate_ppm=rate_ppm)

    def wear_clocks(self, *names: str) -> None:
        """Restart services with clocks that `set_clock` can change."""
        clocks = clocks_of(self.deployment)
        self.kill(*names)
        for name in names:
            clocks.wear_clock(name)
        self.start(*names)

    def leave_store(self, name: str, room: int) -> None:
        """Allow a server of the store this many bytes more than it has now, until `give_store_back`."""
        used = next(
            int(line.partition(":")[2])
            for line in self.deployment.store_command(name, "INFO", "memory").splitlines()
            if line.startswith("used_memory:")
        )
        self._undo[f"memory of {name}"] = lambda: self._lift_maxmemory(name)
        self._record(f"maxmemory, {room} bytes left", name)
        self.deployment.store_command(name, "CONFIG", "SET", "maxmemory", str(used + room))

    def limit_memory(self, name: str, mib: int) -> None:
        """Limit a node's memory until the end of the experiment; the kernel kills a node that needs more."""
        self._undo[f"limit of {name}"] = lambda: self.deployment.limit_memory(name, 0)
        self.deployment.limit_memory(name, mib)
        self._record(f"no more than {mib} MiB", name)

    def lift_memory(self, name: str) -> None:
        """Lift the limit on a node's memory."""
        self._mend_one(f"limit of {name}")
        self._record("memory limit lifted", name)

    def move_to_disk(self, name: str, mib: int) -> None:
        """Kill a store and restart it with its data on a separate, small disk, where it stays."""
        disks = disks_of(self.deployment)
        self.kill(name)
        disks.put_on_disk(name, mib)
        self.start(name)

    def fill_disk(self, name: str) -> None:
        """Fill a store's disk completely, until `free_disk`."""
        disks = disks_of(self.deployment)
        self._undo[f"room of {name}"] = lambda: disks.free_disk(name)
        self._record("disk full", name)
        disks.fill_disk(name)

    def free_disk(self, name: str) -> None:
        """Free the disk's space again. A store that has ended stays down until `start`."""
        self._mend_one(f"room of {name}")
        self._record("disk has room", name)

    def slow_disk(self, name: str, writes_per_s: int) -> None:
        """Limit the writes per second of a store's disk, until `hasten_disk`."""
        disks = disks_of(self.deployment)
        self._undo[f"speed of {name}"] = lambda: disks.throttle_disk(name, 0)
        self._record(f"disk takes {writes_per_s} writes a second", name)
        disks.throttle_disk(name, writes_per_s)

    def hasten_disk(self, name: str) -> None:
        """Lift the limit on a disk's writes."""
        self._mend_one(f"speed of {name}")
        self._record("disk is fast again", name)

    def has_ended(self, name: str) -> bool:
        """Return whether a node ended by itself or was killed by the kernel; if so, it is restarted at the end of the
        experiment."""
        ended = self.deployment.down(name)
        if ended and name not in self._down:
            self._record("ended by itself", name)
            self._down.append(name)
        return ended

    def give_store_back(self, name: str) -> None:
        """Lift the memory limit of a server of the store."""
        self._mend_one(f"memory of {name}")
        self._record("maxmemory lifted", name)

    def _lift_maxmemory(self, name: str) -> None:
        if not self.deployment.down(name):  # otherwise it starts without a limit
            self.deployment.store_command(name, "CONFIG", "SET", "maxmemory", "0")

    def _mend_one(self, what: str) -> None:
        self._undo.pop(what)()

    def mend(self) -> None:
        """Heal the network, undo every other fault, resume and start everything."""
        self.deployment.heal()
        while self._undo:
            self._mend_one(next(iter(self._undo)))
        for name in self._paused:
            self.deployment.resume(name)
        self._paused.clear()
        self.start(*self._down)
        self._record("mended", "everything")

    def record_of_worker(self, name: str, worker: str) -> None:
        """Record a fault of a worker."""
        self._record(name, worker)

    def _record(self, name: str, target: str) -> int:
        at_ms = now_ms()
        self._faults.write([Fault(name, target, at_ms)])
        return at_ms

    # ---- the experiment's own clients, in this process

    def hand(self, name: str, topic: str = "") -> Hand:
        """Return a consumer that takes single steps; its history is kept like those of the workers."""
        self._hands.append(Hand(self.deployment, self.folder, name, self.load.group, topic or self.load.topic))
        return self._hands[-1]

    def note_drops(self, *topics: str) -> None:
        """Record from the leaders' logs when they dropped share-partitions of these topics, for `counts_rise`."""
        ids = {self.owners.topic_id(topic): topic for topic in topics}
        history = HistoryWriter(self.folder / "drops.jsonl")
        history.write(drops(self.deployment.logs(), self.load.group, ids))
        history.close()

    def produce(self, count: int, topic: str = "", partition: int = 0) -> None:
        """Store records and wait until all are confirmed. Raises AssertionError if one is not."""
        produce_all(self.deployment, self.folder, topic or self.load.topic, partition, count)

    def refused_produce(self) -> str:
        """Produce a new record to the load's topic; return Kafka's name of the resulting error, "" if it was confirmed,
        which the history then records."""
        return produce_one(self.deployment, self.folder, self.load.topic)
