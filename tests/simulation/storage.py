"""The store of a simulated cluster: the in-memory twin with delays, its faults and its crash points.

A pipeline that a process has sent is executed whatever happens to that process; its reply waits while the process is
paused. Faults are set by the name of the process that they strike; apart from the rates that faults set, nothing fails
at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from shard_runtime.record_log.redis.connection import Command
from tests.simulation.clock import SimLoop, context_of
from tests.simulation.points import CrashPoints, Point
from tests.twin import MemoryStore, Stage
from tests.twin.functions import READ_ONLY
from tests.twin.store import CommandsArrived

if TYPE_CHECKING:
    from tests.twin.server import Follower

_WRITES: Final = frozenset({"XADD", "XTRIM", "HSET", "HDEL", "SET", "DEL", "INCR"})
Event = Callable[[], None]
#: The maximum time between the arrivals of a pipeline's two parts, in ms.
PART_MS: Final = 5.0


def writes(commands: Sequence[Command]) -> bool:
    """Return True if a pipeline carries a write."""
    return any(
        command[0] in _WRITES or (command[0] == "EVALSHA" and command[1] not in READ_ONLY) for command in commands
    )


@dataclass(frozen=True, slots=True)
class Hold:
    """The fraction `rate` of a process's pipelines is held back for up to `up_to_ms` at a stage."""

    stage: Stage
    rate: float
    up_to_ms: float


class SimStorage:
    """The network between processes and the store, and the store's own faults."""

    def __init__(self, loop: SimLoop, store: MemoryStore, points: CrashPoints, rng: Random) -> None:
        self.store = store
        self._loop = loop
        self.delay_ms: tuple[float, float] = (0.05, 0.5)
        #: The fraction of pipelines that arrive in two parts.
        self.in_parts = 0.05
        self._points = points
        self._rng = rng
        self._lossy: dict[str, float] = {}
        self._holds: dict[str, Hold] = {}
        self._nowhere = context_of(None)
        store.network = self
        store.master.carry = self._carry

    # ---- the network

    def sent(self, client: str, commands: Sequence[Command], on: CommandsArrived, lost: Event) -> None:
        """Carry a pipeline to the store, even if its process is killed meanwhile. Some arrive in two parts; in between,
        others may write and the store may fail over."""

        def whole() -> None:
            if self._rng.random() < self.in_parts and len(commands) > 1:
                on(self._rng.randrange(1, len(commands)))
                self._loop.call_later(self._rng.random() * PART_MS / 1000, on, len(commands), context=self._nowhere)
            else:
                on(len(commands))

        def arrived() -> None:
            go_on = partial(self._unless_lost, client, whole, lost)
            if self._points.armed(client, Point.BEFORE_WRITE) and writes(commands):
                self._at_point(client, Point.BEFORE_WRITE, go_on, lost)
            else:
                go_on()

        self._travel(client, Stage.SEND, arrived)

    def answered(self, client: str, commands: Sequence[Command], on: Event, lost: Event) -> None:
        """Carry its replies back."""
        leave = partial(self._unless_lost, client, partial(self._travel, client, Stage.REPLY, on), lost)
        if self._points.armed(client, Point.AFTER_WRITE) and writes(commands):
            self._at_point(client, Point.AFTER_WRITE, leave, lost)
        else:
            leave()

    def _travel(self, client: str, stage: Stage, on: Event) -> None:
        low, high = self.delay_ms
        ms = low + self._rng.random() * (high - low)
        hold = self._holds.get(client)
        if hold is not None and hold.stage is stage and self._rng.random() < hold.rate:
            ms += self._rng.random() * hold.up_to_ms
        self._loop.carry(self._loop.time() + ms / 1000, on, (), self._nowhere)

    def _unless_lost(self, client: str, on: Event, lost: Event) -> None:
        rate = self._lossy.get(client)
        if rate and self._rng.random() < rate:
            lost()
        else:
            on()

    def _at_point(self, client: str, point: Point, on: Event, lost: Event) -> None:
        """Continue when the action at the point is done; if the process was killed there, its pipeline or reply is
        lost."""

        async def reached() -> None:
            if await self._points.reached(client, point):
                on()
            else:
                lost()

        self._loop.create_task(reached(), context=context_of(None))

    def _carry(self, arrive: Callable[[], None]) -> None:
        """Carry what the store sends unprompted, to replicas and subscribers."""
        low, high = self.delay_ms
        delay_s = (low + self._rng.random() * (high - low)) / 1000
        self._loop.carry(self._loop.time() + delay_s, arrive, (), self._nowhere)

    # ---- faults of one process's connections to the store

    def cut_off(self, name: str) -> None:
        """Cut a process off: it loses its connections and gets no new ones. What it has sent is executed."""
        self.store.cut_off(name)

    def mend(self, name: str) -> None:
        """Let a process reach the store again, without delay or loss."""
        self.store.mend(name)
        self._lossy.pop(name, None)
        self._holds.pop(name, None)

    def lose_replies(self, name: str, rate: float) -> None:
        """Lose a fraction of a process's pipelines, or of their replies, with its connection. 0 ends this."""
        self._lossy[name] = rate

    def hold(self, name: str, stage: Stage, rate: float, up_to_ms: float) -> None:
        """Hold back a fraction of a process's pipelines for up to `up_to_ms`, on their way to the store or back."""
        self._holds[name] = Hold(stage, rate, up_to_ms)

    # ---- faults of the store

    def vanish(self) -> None:
        """Make the store unreachable for all until `appear`."""
        self.store.reachable = False
        self.store.cut_all()

    def appear(self) -> None:
        """Make the store reachable again."""
        self.store.reachable = True

    def refuse(self, code: str | None) -> None:
        """Refuse every write with an error code (OOM, NOREPLICAS, MISCONF, READONLY); None ends this."""
        if code == "READONLY":  # from a node that was demoted and does not have its new master's data yet
            self.store.master.role = "slave"
        else:
            self.store.master.role = "master"
            self.store.master.refuse = code

    def restart(self, lose_unsynced: bool = False) -> None:
        """Restart the store: a new history, no connections; with `lose_unsynced`, without data that is not on disk."""
        self.store.restart(lose_unsynced)

    def lag(self, replica: int) -> Follower:
        """Make a replica stop applying effects; a `fail_over` to it loses that tail."""
        follower = self.store.master.followers[replica]
        follower.paused = True
        return follower

    def catch_up(self) -> None:
        """Let every replica apply everything it was sent."""
        self.store.master.release_replicas()

    def fail_over(self, *, keep_connections: bool = False) -> None:
        """Promote the most advanced replica, as a sentinel would; entries that no replica has applied are lost."""
        self.store.fail_over(self._best(), keep_connections)

    def split(self, *names: str) -> None:
        """Fail over while some processes still reach the former master."""
        self.store.split(*names, replica=self._best())

    def _best(self) -> int:
        followers = self.store.master.followers
        return max(range(len(followers)), key=lambda index: followers[index].applied)

    def heal(self) -> None:
        """End every split and cut; former masters lose their connections."""
        self.store.heal()

    def calm(self) -> None:
        """End all faults."""
        self._lossy.clear()
        self._holds.clear()
        self.refuse(None)
        self.heal()
        self.catch_up()
