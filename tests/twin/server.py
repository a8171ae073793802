"""One node of the in-memory store: it executes commands, feeds replicas and a disk, and refuses as a real node does.

It contains no client logic; network faults are in `store.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from shard_runtime.clock import Clock
from shard_runtime.record_log.redis.connection import Command, ConnectionLostError, ErrorReply
from tests.twin.commands import COMMANDS, READS, SESSION
from tests.twin.data import Data, Effect
from tests.twin.functions import ALLOW_OOM, READ_ONLY

_WRITES: Final = frozenset({"XADD", "XTRIM", "HSET", "HSETNX", "HDEL", "SET", "DEL", "INCR"})
_GROWS: Final = frozenset({"XADD", "HSET", "HSETNX", "SET", "INCR"})


_UNREAD_MAX: Final = 1_024

#: Delivers a message of the server to a replica or a subscriber by calling the given function: now, later or never.
Carry = Callable[[Callable[[], None]], None]


class Follower:
    """A replica's or the disk's copy: it applies groups of effects in order, and may lag by holding some back.

    `applied` is the offset up to which it has applied effects; they are carried out when `data` is read.
    """

    def __init__(self, data: Data, applied: int) -> None:
        self.applied = applied
        self.paused = False
        self._data = data
        self._groups: deque[tuple[int, Sequence[Effect]]] = deque()

    @property
    def data(self) -> Data:
        """Return the data up to `applied`."""
        while self._groups and self._groups[0][0] <= self.applied:
            for effect in self._groups.popleft()[1]:
                self._data.apply(effect)
        return self._data

    def feed(self, offset: int, effects: Sequence[Effect]) -> None:
        """Receive a group of effects; `reach` or `catch_up` applies it."""
        self._groups.append((offset, effects))
        if len(self._groups) > _UNREAD_MAX:
            _ = self.data

    def reach(self, offset: int) -> None:
        """Apply the effects up to an offset, unless paused."""
        if not self.paused:
            self.applied = max(self.applied, offset)

    def catch_up(self) -> None:
        """Apply all effects received so far."""
        if self._groups:
            self.applied = max(self.applied, self._groups[-1][0])

    def restart(self, data: Data, offset: int) -> None:
        """Start again from other data, at the master's offset."""
        self._data, self.applied, self.paused = data, offset, False
        self._groups.clear()


@dataclass(slots=True)
class Session:
    """The server's state for one connection."""

    name: str
    server: MemoryServer
    queued: list[Command] | None = None
    refused: bool = False
    written: int = 0
    channels: set[str] = field(default_factory=set)
    inbox: deque[list[Any]] = field(default_factory=deque)
    listener: asyncio.Future[None] | None = None
    """Done when a message arrives or the connection ends."""
    asking: asyncio.Future[list[Any]] | None = None
    """Done when the replies of the outstanding pipeline arrive."""
    open: bool = True
    """Whether the client can still receive a reply."""
    dead: bool = False
    """Whether the server dropped the connection: it executes none of the remaining commands."""

    def end(self, dead: bool) -> None:
        """End the connection. With `dead`, the server dropped it and executes none of its remaining commands."""
        self.open = False
        self.dead = self.dead or dead
        self._wake()
        if self.asking is not None and not self.asking.done():
            self.asking.set_exception(ConnectionLostError("the connection to the in-memory store broke"))

    def hear(self, message: list[Any]) -> None:
        """Receive a message on a subscribed channel."""
        self.inbox.append(message)
        self._wake()

    def _wake(self) -> None:
        if self.listener is not None and not self.listener.done():
            self.listener.set_result(None)


@dataclass(slots=True, eq=False)
class _Waiter:
    session: Session
    replicas: int
    done: Callable[[Any], None]
    timer: asyncio.TimerHandle | None = None


class MemoryServer:
    """A store node. `refuse`: the error code with which it refuses every write (NOREPLICAS, MISCONF…); OOM applies only
    to writes that need memory."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self.data = Data()
        self.history = _random_history(rng)
        self.role = "master"
        self.offset = 0
        self.followers: list[Follower] = []
        self.disk = Follower(Data(), 0)
        self.refuse: str | None = None
        self.skew_ms = 0
        self.sessions: list[Session] = []
        self.loaded: set[str] = set()
        self.config = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        #: Delivers messages that are not replies; if None, they arrive at once.
        self.carry: Carry | None = None
        self._clock = clock
        self._rng = rng
        self._effects: list[Effect] = []
        self._waiters: list[_Waiter] = []

    # -- for functions (View) -----------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the time by the node's own wall clock."""
        return self._clock.wall_ms() + self.skew_ms

    def effect(self, what: str, key: str, argument: object) -> None:
        """Change the data: on this node at once, in its copies only at the end of the command or of its MULTI."""
        effect = (what, key, argument)
        self.data.apply(effect)
        self._effects.append(effect)

    def command(self, *args: str | bytes) -> Any:
        """Run a read command."""
        return READS[str(args[0])](self, args)

    # -- copies -------------------------------------------------------------------------------------------------------

    def add_replica(self) -> Follower:
        """Attach one more replica, which is up to date."""
        follower = Follower(self.data.copy(), self.offset)
        self.followers.append(follower)
        return follower

    def new_history(self) -> None:
        """Give the node a new history id, as every restart and fail-over does."""
        self.history = _random_history(self._rng)

    def release_replicas(self) -> None:
        """Let paused replicas and the disk continue, and reply to the WAITs that are now satisfied."""
        for follower in (*self.followers, self.disk):
            follower.paused = False
            follower.catch_up()
        self._acked()

    def cut_sessions(self) -> None:
        """Drop every connection."""
        sessions, self.sessions = self.sessions, []
        for session in sessions:
            session.end(dead=True)
        self._acked()

    def become(self, data: Data) -> None:
        """Replace the data under a new history, as in a fail-over or a restart. Replicas and disk start from that
        data."""
        self.data = data
        self._effects = []
        self.new_history()
        for follower in (*self.followers, self.disk):
            follower.restart(data.copy(), self.offset)

    def _publish_effects(self, session: Session) -> None:
        if self._effects:
            self.offset += 1
            effects, self._effects = self._effects, []
            offset = session.written = self.offset
            for follower in (*self.followers, self.disk):
                follower.feed(offset, effects)
            self.disk.reach(offset)
            if self.carry is None or not self.followers:
                self._replicated(offset, self.followers)
            else:
                for follower in self.followers:
                    self.carry(partial(self._replicated, offset, (follower,)))

    def _replicated(self, offset: int, followers: Sequence[Follower]) -> None:
        for follower in followers:
            follower.reach(offset)
        self._acked()

    def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all subscribers of a channel; returns their number."""
        heard = [session for session in self.sessions if channel in session.channels]
        for session in heard:
            said = partial(session.hear, [b"message", channel.encode(), message])
            if self.carry is None:
                said()
            else:
                self.carry(said)
        return len(heard)

    # -- executing ----------------------------------------------------------------------------------------------------

    def execute(self, session: Session, command: Command) -> Any:
        """Execute one command (not WAIT) of a connection and return its reply."""
        name = str(command[0])
        if session.queued is None and name in READS:
            return READS[name](self, command)
        if name == "MULTI":
            session.queued, session.refused = [], False
            return b"OK"
        if name == "EXEC":
            return self._exec(session)
        if session.queued is not None:
            refusal = self._refusal(command)
            if refusal is not None:
                session.refused = True
                return refusal
            session.queued.append(command)
            return b"QUEUED"
        reply = self._run(session, command)
        self._publish_effects(session)
        return reply

    def _exec(self, session: Session) -> Any:
        queued, session.queued = session.queued, None
        if queued is None:
            return ErrorReply("ERR", "EXEC without MULTI")
        refusal = next((r for r in map(self._refusal, queued) if r is not None), None)
        if session.refused or refusal is not None:
            return ErrorReply("EXECABORT", "Transaction discarded because of previous errors.")
        replies = [self._run(session, command) for command in queued]
        self._publish_effects(session)
        return replies

    def _run(self, session: Session, command: Command) -> Any:
        name = str(command[0])
        if name in READS:
            return READS[name](self, command)
        refusal = self._refusal(command)
        if refusal is not None:
            return refusal
        if name in SESSION:
            return SESSION[name](self, session, command)
        return COMMANDS[name](self, command)

    def _refusal(self, command: Command) -> ErrorReply | None:
        """Return the error with which this node refuses a command now; None if it accepts it."""
        name = str(command[0])
        digest = str(command[1]) if name == "EVALSHA" else ""
        writes = name in _WRITES or (name == "EVALSHA" and digest not in READ_ONLY)
        if name == "EVALSHA" and digest not in self.loaded:
            return ErrorReply("NOSCRIPT", "No matching script. Please use EVAL.")
        if not writes:
            return None
        if self.role != "master":
            return ErrorReply("READONLY", "You can't write against a read only replica.")
        grows = name in _GROWS or (name == "EVALSHA" and digest not in ALLOW_OOM)
        if self.refuse is not None and (grows or self.refuse != "OOM"):
            return ErrorReply(self.refuse, "refused by the test")
        return None

    def wait(self, session: Session, replicas: int, timeout_ms: int, done: Callable[[Any], None]) -> None:
        """Run a WAIT: call `done` with the number of replicas that have everything this connection wrote, as soon as
        there are enough or after `timeout_ms`."""
        if self.role != "master":
            done(ErrorReply("ERR", "WAIT cannot be used with replica instances."))
            return
        waiter = _Waiter(session, replicas, done)
        if not session.open or self._reached(session) >= replicas:
            done(self._reached(session))
            return
        self._waiters.append(waiter)
        waiter.timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, _timed_out, waiter)

    def hand_over(self, other: MemoryServer, names: Collection[str]) -> None:
        """Move some clients' connections to another server, with their outstanding WAITs."""
        for session in [session for session in self.sessions if session.name in names]:
            self.sessions.remove(session)
            other.sessions.append(session)
            session.server = other
        for waiter in [waiter for waiter in self._waiters if waiter.session.server is other]:
            self._waiters.remove(waiter)
            other._waiters.append(waiter)

    def _reached(self, session: Session) -> int:
        return sum(1 for follower in self.followers if follower.applied >= session.written)

    def _waited(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            waiter.done(self._reached(waiter.session))

    def _acked(self) -> None:
        """Reply to the WAITs that are now over, after replicas have applied more or connections have ended."""
        for waiter in list(self._waiters):
            if not waiter.session.open or self._reached(waiter.session) >= waiter.replicas:
                if waiter.timer is not None:
                    waiter.timer.cancel()
                self._waited(waiter)


def _timed_out(waiter: _Waiter) -> None:
    """End a WAIT at its time-out, on the server that holds its connection now."""
    waiter.session.server._waited(waiter)


def _random_history(rng: Random) -> str:
    return f"{rng.getrandbits(160):040x}"
