"""The in-memory deployment: a master with replicas and a disk, its clients' connections, and the faults of both.

A *hook* sees every pipeline at three stages and may hold it (await), change the store, or lose it (raise
ConnectionLostError): when it is sent, before each command, and when the replies are on their way back. The server
executes a pipeline even if its client has disconnected, unless the server dropped the connection; so a client may not
know the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol

from shard_runtime.clock import Clock
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import (
    Command,
    ConnectionLostError,
    Reply,
    StoreConnection,
    StoreSettings,
)
from shard_runtime.record_log.redis.log import StoreRecordLog
from tests.twin.data import Data
from tests.twin.server import MemoryServer, Session

NODE = "memory"

#: Called with the number of commands of a pipeline that have arrived so far.
CommandsArrived = Callable[[int], None]


class StoreNetwork(Protocol):
    """The network between a client and the store: it may delay a pipeline or its replies, or lose them."""

    def sent(self, client: str, commands: Sequence[Command], on: CommandsArrived, lost: Callable[[], None]) -> None:
        """Carry a pipeline to the store. Calls either `lost` once, or `on` one or more times with the number of
        commands that have arrived so far, the last time with all of them."""
        ...

    def answered(
        self, client: str, commands: Sequence[Command], on: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        """Carry a pipeline's replies to the client. Calls `on` when they arrive, or `lost` if they do not."""
        ...


class ImmediateNetwork:
    """A network without delay or loss."""

    def sent(self, _client: str, commands: Sequence[Command], on: CommandsArrived, _lost: object) -> None:
        """Deliver the commands in the event loop's next iteration."""
        asyncio.get_running_loop().call_soon(on, len(commands))

    def answered(self, _client: str, _commands: Sequence[Command], on: Callable[[], None], _lost: object) -> None:
        """Deliver the replies at once."""
        on()


class Pipeline:
    """One pipeline without a hook: sent, executed, and replied to. It runs in callbacks, without a task.

    `answer` receives its replies, or the exception if the twin has a bug.
    """

    __slots__ = ("_answer", "_arrived_count", "_commands", "_network", "_replies", "_session", "_waits")

    def __init__(
        self, network: StoreNetwork, session: Session, commands: Sequence[Command], answer: asyncio.Future[list[Reply]]
    ) -> None:
        self._network = network
        self._session = session
        self._commands = commands
        self._replies: list[Reply] = []
        self._answer = answer
        #: The number of commands that have arrived.
        self._arrived_count = 0
        self._waits = False
        network.sent(session.name, commands, self._execute, self._lost)

    def _execute(self, here: int) -> None:
        self._arrived_count = here
        if not self._waits:
            self._go_on()

    def _go_on(self) -> None:
        """Execute the commands that have arrived. A WAIT calls this again when it is over."""
        session, commands, replies = self._session, self._commands, self._replies
        try:
            for command in commands[len(replies) : self._arrived_count]:
                if session.dead:
                    return
                if command[0] == "WAIT":
                    self._waits = True
                    session.server.wait(session, int(command[1]), int(command[2]), self._waited)
                    return
                replies.append(session.server.execute(session, command))
        except Exception as error:
            if not self._answer.done():
                self._answer.set_exception(error)
            return
        if len(replies) == len(commands):
            self._network.answered(session.name, commands, self._arrived, self._lost)

    def _waited(self, reply: Reply) -> None:
        self._waits = False
        self._replies.append(reply)
        self._go_on()

    def _arrived(self) -> None:
        if not self._answer.done():
            self._answer.set_result(self._replies)

    def _lost(self) -> None:
        self._session.end(dead=False)


class Stage(StrEnum):
    """The stage of a pipeline at which a hook is called."""

    SEND = "send"
    COMMAND = "command"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class FaultPoint:
    """A point in a pipeline's execution. At COMMAND, `index` is the command about to be executed."""

    client: str
    stage: Stage
    commands: Sequence[Command]
    index: int = -1

    def has(self, word: str) -> bool:
        """Return whether a command's name, key, script digest or text argument contains the word."""
        commands = self.commands if self.index < 0 else self.commands[self.index : self.index + 1]
        return any(word in arg for command in commands for arg in command if isinstance(arg, str))


Hook = Callable[[FaultPoint], Awaitable[None]]


class MemoryStore:
    """A deployment with one master. All faults are methods or attributes; none happens at random."""

    def __init__(self, clock: Clock, rng: Random | None = None, replicas: int = 0) -> None:
        self.clock = clock
        self.rng = rng or Random(0)
        self.master = MemoryServer(clock, self.rng)
        self.hook: Hook | None = None
        self.network: StoreNetwork = ImmediateNetwork()
        self.reachable = True
        self._routes: dict[str, MemoryServer] = {}
        self._former: list[MemoryServer] = []
        self._cut_off: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        for _ in range(replicas):
            self.master.add_replica()

    def client(self, name: str) -> MemoryClient:
        """Return the store as the process `name` sees it."""
        return MemoryClient(self, name)

    def server_for(self, name: str) -> MemoryServer:
        """Return the node that a client reaches now. Raises ConnectionLostError."""
        if not self.reachable or name in self._cut_off:
            raise ConnectionLostError(f"the in-memory store cannot be reached by {name}")
        return self._routes.get(name, self.master)

    # -- faults -------------------------------------------------------------------------------------------------------

    def restart(self, lose_unsynced: bool = False) -> None:
        """Restart the master: a new history, no connections, no loaded functions.

        With `lose_unsynced`, effects that are not on disk are lost.
        """
        master = self.master
        if not lose_unsynced:
            master.disk.catch_up()
        data = master.disk.data.copy()
        master.loaded.clear()
        master.cut_sessions()
        master.become(data)

    def fail_over(self, replica: int = 0, keep_connections: bool = False) -> None:
        """Promote a replica; effects it had not applied are lost.

        `keep_connections`: as if the old master was demoted and promoted again, unnoticed by its clients (CM-11a).
        """
        data = self.master.followers[replica].data.copy()
        if not keep_connections:
            self.master.cut_sessions()
            self.master.loaded.clear()  # functions are not replicated
        self.master.become(data)

    def split(self, *names: str, replica: int = 0) -> None:
        """Fail over while the clients `names` still reach the old master, which has not noticed it yet."""
        old = MemoryServer(self.clock, self.rng)
        old.data, old.history, old.offset = self.master.data.copy(), self.master.history, self.master.offset
        old.loaded = set(self.master.loaded)
        old.carry = self.master.carry
        self._former.append(old)
        for name in names:
            self._routes.setdefault(name, old)
        self.master.hand_over(old, names)
        self.fail_over(replica)

    def heal(self) -> None:
        """End every split and cut: former masters lose their connections."""
        for server in self._former:
            server.role = "slave"
            server.cut_sessions()
        self._former.clear()
        self._routes.clear()
        self._cut_off.clear()
        self.reachable = True

    def cut_off(self, name: str) -> None:
        """Close a client's connections and refuse new ones until `mend` or `heal`."""
        self._cut_off.add(name)
        self.end_sessions(name)

    def mend(self, name: str) -> None:
        """Let a client that was cut off connect again."""
        self._cut_off.discard(name)

    def end_sessions(self, name: str) -> None:
        """End a client's connections from the client's side, as if its process was killed; the server still executes
        what it sent."""
        for server in (self.master, *self._former):
            for session in [session for session in server.sessions if session.name == name]:
                server.sessions.remove(session)
                session.end(dead=False)

    def cut_all(self) -> None:
        """Break every connection; clients may connect again at once."""
        self.master.cut_sessions()

    def wipe(self) -> None:
        """Replace the store with an empty one at the same address."""
        self.master.cut_sessions()
        self.master.loaded.clear()
        self.master.become(Data())

    async def close(self) -> None:
        """Cancel the pipelines that are still running, such as those of clients that disconnected."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- for connections ----------------------------------------------------------------------------------------------

    def start(self, session: Session, commands: Sequence[Command], answer: asyncio.Future[list[Reply]]) -> None:
        """Execute a pipeline even if its client disconnects; `answer` receives its replies."""
        hook = self.hook
        if hook is None:
            Pipeline(self.network, session, commands, answer)
            return
        task = asyncio.get_running_loop().create_task(_watched(session, commands, answer, hook))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _watched(
    session: Session, commands: Sequence[Command], answer: asyncio.Future[list[Reply]], hook: Hook
) -> None:
    """Execute a pipeline, calling the hook at each stage."""
    try:
        await hook(FaultPoint(session.name, Stage.SEND, commands))
        replies: list[Reply] = []
        for index, command in enumerate(commands):
            await hook(FaultPoint(session.name, Stage.COMMAND, commands, index))
            if session.dead:
                return
            replies.append(await _executed(session, command))
        await hook(FaultPoint(session.name, Stage.REPLY, commands))
    except ConnectionLostError:
        session.end(dead=False)
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(replies)


async def _executed(session: Session, command: Command) -> Reply:
    if command[0] != "WAIT":
        return session.server.execute(session, command)
    waited: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    session.server.wait(session, int(command[1]), int(command[2]), waited.set_result)
    return await waited


class MemoryClient:
    """`Store` as one process sees it."""

    clustered = False

    def __init__(self, store: MemoryStore, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def nodes(self) -> tuple[str, ...]:
        """The only node."""
        return (NODE,)

    def node_of(self, key: str) -> str | None:
        """The only node."""
        return NODE

    async def refresh(self) -> None:
        """Do nothing: the node never moves."""

    async def connect(self, node: str) -> StoreConnection:
        """Connect to the server that this process reaches now (see `MemoryStore.split`)."""
        await asyncio.sleep(0)
        server = self._store.server_for(self._name)
        session = Session(self._name, server)
        server.sessions.append(session)
        return MemoryConnection(self._store, session)


class MemoryConnection:
    """`StoreConnection` to a server in this process."""

    def __init__(self, store: MemoryStore, session: Session) -> None:
        self._store = store
        self._session = session

    async def run(self, commands: Sequence[Command], timeout_ms: int) -> list[Reply]:
        """Run a pipeline. If the connection is cut, this raises at once; the server may still execute the pipeline."""
        session = self._session
        await asyncio.sleep(0)
        if not session.open:
            raise ConnectionLostError("the connection to the in-memory store is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Reply]] = loop.create_future()
        session.asking = answer
        self._store.start(session, commands, answer)
        timer = loop.call_later(timeout_ms / 1000, session.end, False)
        try:
            return await answer
        finally:
            timer.cancel()
            session.asking = None

    async def message(self) -> list[Reply]:
        """Return the next message on a subscribed channel."""
        session = self._session
        while not session.inbox:
            if not session.open:
                raise ConnectionLostError("the connection to the in-memory store is closed")
            session.listener = asyncio.get_running_loop().create_future()
            await session.listener
        return session.inbox.popleft()

    async def close(self) -> None:
        """Close the connection. The server may still execute what was sent."""
        self._session.end(dead=False)
        if self._session in self._session.server.sessions:
            self._session.server.sessions.remove(self._session)


def memory_log(
    store: MemoryStore, name: str = "node", settings: StoreSettings | None = None, clock: Clock | None = None
) -> StoreRecordLog:
    """Return the record log of the process `name` on an in-memory store."""
    return StoreRecordLog(
        store.client(name), settings or StoreSettings(), clock or store.clock, Random(store.rng.random())
    )


def memory_cluster_store(
    store: MemoryStore, name: str = "node", settings: StoreSettings | None = None
) -> StoreClusterStore:
    """Return the cluster-wide keys of an in-memory store for the process `name`."""
    return StoreClusterStore(store.client(name), settings or StoreSettings())
