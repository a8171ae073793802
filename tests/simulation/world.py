"""A whole cluster in one virtual event loop: real processes and clients on the in-memory store and network.

It starts, stops, kills and pauses processes and gives access to every fault; it checks nothing, and all randomness
comes from the seed. Runs only inside `determinism.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Final, Protocol, TypeVar

from shard_runtime.record_log.redis.connection import StoreSettings
from tests.simulation.clock import Life, ProcessClock, SimLoop, context_of, living, unasked
from tests.simulation.delay_events import ClockSet
from tests.simulation.determinism import scribe
from tests.simulation.history import Configured, History, PhaseBegan, ProcessChanged
from tests.simulation.network import SimNetwork, SimTransport
from tests.simulation.points import CrashPoints, Point
from tests.simulation.process import CLUSTER_ID, PORT, Process, alive
from tests.simulation.shape import FLAGS, SKEW_MS, ProcessShape, Shape
from tests.simulation.storage import SimStorage
from tests.twin import MemoryStore, memory_cluster_store

__all__ = ["KilledError", "Point", "ProcessShape", "Shape", "World"]

T = TypeVar("T")

_RETRY_S: Final = 0.5
_START_S: Final = 120.0
_SETTLE_S: Final = 60.0
_SETTLE_POLL_S: Final = 0.1
#: A killed client's tasks may start something else when they are cancelled; then they are cancelled again.
_CANCELS_MAX: Final = 10
_CANCEL_S: Final = 0.1


class Watcher(Protocol):
    """Observes what enters and leaves a service."""

    def watch(self, service_name: str, service: object, process: str, incarnation: int) -> object:
        """Return the service, or a replacement that records what passes through it."""
        ...


class _NoWatcher:
    def watch(self, _service_name: str, service: object, _process: str, _incarnation: int) -> object:
        return service


class KilledError(Exception):
    """A process was killed while it started or stopped."""


class World:
    """A simulated cluster with its store, its network and its faults; one seed determines one schedule."""

    def __init__(self, seed: int, shape: Shape) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop), "only inside determinism.run"
        self.loop = loop
        self.seed = seed
        self.shape = shape
        self.phase = ""
        self.topics: dict[str, str] = {}
        self.history = History(seed, self.now_ms)
        self.history.add(Configured(self.now_ms(), "world", tuple(sorted({**FLAGS, **shape.flags}.items()))))
        self.observer: Watcher = _NoWatcher()
        self.rng = self.random("world")
        self.processes: dict[str, Process] = {}
        self.complaints_of_processes: list[str] = []
        self.points = CrashPoints(loop, context_of(None), self._living)
        self.store = MemoryStore(ProcessClock(loop), self.random("store"), shape.replicas)
        self.storage = SimStorage(loop, self.store, self.points, self.random("road"))
        self.network = SimNetwork(loop, self.points, self.random("network"))
        self.network.keepalive_s = shape.keepalive_ms / 1000
        self._clocks: dict[str, ProcessClock] = {}
        self._incarnations = 0
        self._dead: dict[str, list[int]] = {}
        self._starting: set[str] = set()
        self._clients: dict[str, Life] = {}
        #: Lives that are over; kept because their tasks would otherwise be cleaned up in the middle of the run.
        self._buried: list[Process] = []
        self._leaving: list[asyncio.Task[None]] = []
        self._changes: list[tuple[bool, asyncio.Future[str]]] = []
        self._shapes = {each.name: each for each in shape.processes}

    # ---- time and randomness

    def now_ms(self) -> int:
        """Return the virtual milliseconds since the start."""
        return self.loop.now_ms

    def random(self, purpose: str) -> Random:
        """Return a separate random source for one purpose, unaffected by what others draw."""
        return Random(f"{self.seed} {purpose}")

    def begin(self, phase: str) -> None:
        """Enter the phase "work", "calm", "drain" or "rest"."""
        self.phase = phase
        self.history.add(PhaseBegan(self.now_ms(), "world", phase))

    async def change_begun(self, *, deletion: bool) -> str:
        """Wait until a coordinator starts a requested change to a group; return the name of its process. `deletion`:
        wait until it starts to delete a group, or its offsets."""
        begun: asyncio.Future[str] = self.loop.create_future()
        self._changes.append((deletion, begun))
        return await begun

    def changes(self, name: str, *, deletion: bool) -> None:
        """Note that a coordinator in this process decides on the first write of a change to a group."""
        meant = [begun for narrow, begun in self._changes if deletion or not narrow]
        self._changes = [each for each in self._changes if each[1] not in meant]
        for begun in meant:
            if not begun.done():
                begun.set_result(name)

    def clock_of(self, name: str) -> ProcessClock:
        """Return the clock of a process's machine; no two machines were started at the same moment."""
        clock = self._clocks.get(name)
        if clock is None:
            rng = self.random(f"clock {name}")
            clock = self._clocks[name] = ProcessClock(
                self.loop, rng.randrange(10**6, 10**9), rng.randrange(-SKEW_MS, SKEW_MS)
            )
            self.history.add(ClockSet(self.now_ms(), name, clock.wall_offset_ms))
        return clock

    def jump(self, name: str, ms: int) -> None:
        """Make the wall clock of a process's machine jump."""
        clock = self.clock_of(name)
        clock.wall_offset_ms += ms
        self.history.add(ClockSet(self.now_ms(), name, clock.wall_offset_ms))

    # ---- settings

    @property
    def min_insync_replicas(self) -> int:
        """Return the number of copies that a write needs, including the master's."""
        return int(self.flags_of(self.shape.processes[0])["min.insync.replicas"])

    def flags_of(self, shape: ProcessShape) -> dict[str, str]:
        """Return the settings of a process, as they would be on its command line."""
        replicas = self.shape.replicas
        return {
            **FLAGS,
            "store.replicas": str(replicas),
            "store.fsync.always": "false" if replicas else "true",
            "min.insync.replicas": str(replicas + 1),
            **self.shape.flags,
            "node.name": shape.name,
            "node.roles": ",".join(sorted(shape.roles)),
            "listen.host": "127.0.0.1",
            "advertised.host": shape.name,
            "advertised.port": str(PORT),
        }

    def bootstrap(self) -> str:
        """Return the addresses that a client needs to find the cluster."""
        return ",".join(f"{each.name}:{PORT}" for each in self.shape.processes)

    # ---- processes

    async def open(self) -> None:
        """Create the store's cluster. Processes are started by `start`."""
        first = memory_cluster_store(self.store, "world", StoreSettings())
        await first.init_cluster(CLUSTER_ID)
        await first.close()

    async def start(self, name: str, *, knows_dead: bool = True, roles: frozenset[str] | None = None) -> Process:
        """Start a process, retrying until it has joined the cluster. `knows_dead`: it has the list of its own former
        incarnations, as with a data directory; `roles`: for a process that is not in the shape. Raises AssertionError
        if it never joins, KilledError if it is killed first."""
        if roles is not None:
            self._shapes[name] = ProcessShape(name, roles)
        assert not self.present(name), f"{name} runs already"
        self._starting.add(name)
        try:
            process = await self._start(name, knows_dead)
        finally:
            self._starting.discard(name)
        process.ready = True
        self._changed(process, "started")
        return process

    async def _start(self, name: str, knows_dead: bool) -> Process:
        until_s = self.loop.time() + _START_S
        while True:
            self._incarnations += 1
            dead = self._dead.setdefault(name, [])
            process = Process(self, self._shapes[name], self._incarnations, frozenset(dead if knows_dead else ()))
            dead.append(process.incarnation)
            self.processes[name] = process
            try:
                await self._in(process, process.start())
            except (asyncio.CancelledError, KilledError):
                raise
            except Exception as error:
                await self._in(process, process.stop())
                self._end(process, "it did not start")
                if self.loop.time() > until_s:
                    raise AssertionError(f"{name} never joined: {error!r}") from error
            else:
                return process
            await asyncio.sleep(_RETRY_S)

    def present(self, name: str) -> bool:
        """Return True if a process is alive or about to be started."""
        return name in self.processes or name in self._starting

    async def stop(self, name: str) -> None:
        """End a process as SIGTERM does. Raises KilledError if it is killed meanwhile."""
        process = self.processes[name]
        process.ready = False
        self._changed(process, "stopping")
        await self._in(process, process.stop())
        process.left = True
        self._end(process, "stopped")
        self._changed(process, "stopped")

    async def kill(self, name: str) -> None:
        """End a process as SIGKILL does: it runs nothing more, releases nothing and sends nothing more."""
        process = self.processes[name]
        self._end(process, "killed")
        self._changed(process, "killed")

    def pause(self, name: str) -> None:
        """Pause a process, as SIGSTOP does; time continues for all others."""
        life = self._life(name)
        if not life.halted:
            life.pause()
            self.network.unheard(life)
            self._changed_life(life, "paused")

    def resume(self, name: str) -> None:
        """Resume a process, as SIGCONT does."""
        life = self._life(name)
        if life.paused:
            self._changed_life(life, "resumed")
            life.resume()

    def calm(self) -> None:
        """End every network and store fault, and every pause."""
        self.points.disarm()
        self.network.calm()
        self.storage.calm()
        for name in (*self.processes, *self._clients):
            self.resume(name)

    async def settled(self) -> None:
        """Wait until every living process serves the shards that are assigned to it. Raises AssertionError naming those
        that do not."""
        until_s = self.loop.time() + _SETTLE_S
        while waiting := [name for name, process in self.processes.items() if not process.settled]:
            if self.loop.time() > until_s:
                raise AssertionError(f"after a minute without faults {waiting} still do not serve their shards")
            await asyncio.sleep(_SETTLE_POLL_S)

    async def close(self) -> None:
        """End every fault, then shut every process down cleanly."""
        self.calm()
        for name in list(self.processes):
            await self.stop(name)
        await self.store.close()

    def gave_up(self, process: Process) -> None:
        """Note that a process cannot continue, and ends by itself as `serve` does. This is a complaint: no fault may
        cause it."""
        self.complaints_of_processes.append(f"{self.now_ms():>8} {process.life} gave up: {process.ended}")
        if self.processes.get(process.name) is process and process.ready:
            self._leaving.append(self.loop.create_task(self._leave(process.name), context=context_of(None)))

    async def _leave(self, name: str) -> None:
        with suppress(KilledError):
            await self.stop(name)

    def _living(self, name: str) -> Life | None:
        process = self.processes.get(name)
        return process.life if process is not None else self._clients.get(name)

    def _life(self, name: str) -> Life:
        return self.processes[name].life if name in self.processes else self._clients[name]

    async def _in(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Run something as the process; raises KilledError if the process dies meanwhile."""
        with alive(process):
            task = self.loop.create_task(work)
        await asyncio.wait((task, process.life.died), return_when=asyncio.FIRST_COMPLETED)
        if process.life.dead:
            raise KilledError(f"{process.life} was killed meanwhile")
        result: T = task.result()
        return result

    def _end(self, process: Process, why: str) -> None:
        """Stop everything of this life."""
        process.life.die()
        self.points.disarm(process.name)
        self.network.gone(process.life, why)
        self.store.end_sessions(process.name)
        self._buried.append(process)
        if self.processes.get(process.name) is process:
            del self.processes[process.name]

    def _changed(self, process: Process, what: str) -> None:
        self.history.add(ProcessChanged(self.now_ms(), process.name, what, process.incarnation))

    def _changed_life(self, life: Life, what: str) -> None:
        self.history.add(ProcessChanged(self.now_ms(), life.name, what, life.incarnation))

    # ---- clients

    def transport(self, client_name: str, principal: str | None = None) -> SimTransport:
        """Return a transport for a client process, which has this principal on it."""
        return self.network.transport(self._client(client_name), principal)

    @contextmanager
    def client(self, name: str) -> Iterator[None]:
        """Make everything that is started inside the block belong to the client process `name`."""
        with living(self._client(name)):
            yield

    async def kill_client(self, name: str) -> None:
        """End a client process: its tasks are cancelled, and nothing that they still try to send leaves."""
        life = self._clients.pop(name, None)
        if life is None:
            return
        life.resume()
        life.severed = True
        self.network.gone(life, "the client was killed")
        for _ in range(_CANCELS_MAX):
            tasks = [task for task in life.tasks if not task.done()]
            for task in tasks:
                task.cancel()
            if not tasks:
                break
            await asyncio.wait(tasks, timeout=_CANCEL_S)
        life.die()
        self._changed_life(life, "killed")

    @property
    def clients(self) -> tuple[str, ...]:
        """Return the names of the living client processes."""
        return tuple(self._clients)

    def _client(self, name: str) -> Life:
        life = self._clients.get(name)
        if life is None:
            self._incarnations += 1
            life = self._clients[name] = Life(self.loop, name, self._incarnations)
        return life

    # ---- complaints

    @property
    def complaints(self) -> list[str]:
        """Return what must not occur under any fault: log lines of level error, and exceptions that were never
        retrieved."""
        lives = [each.life for each in (*self.processes.values(), *self._buried) if each.left or not each.life.dead]
        silent = [
            f"{life}: {task.get_name()} ended with {task._exception!r}"  # retrieving it would mark it as seen
            for life in (*lives, *self._clients.values())
            for task in life.tasks
            if task.done() and unasked(task)
        ]
        return [*scribe().complaints, *self.complaints_of_processes, *silent]
