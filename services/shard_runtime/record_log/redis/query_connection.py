"""A connection for calls that need no claimed shard: reads of logs, the node list, the metadata log.

Calls that arrive while a pipeline is in flight form the next one (P-9). A connection never retries: when it breaks, its
calls fail with StoreUnavailableError, and the caller decides whether to repeat them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import structlog

from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    REROUTE_CODES,
    Command,
    ConnectionLostError,
    ErrorReply,
    Reply,
    Store,
    StoreConnection,
    StoreSettings,
    connected_replicas,
    parse_replication,
)
from shard_runtime.record_log.redis.connection_check import NotCheckedError, check_connection
from shard_runtime.record_log.redis.store_calls import AnswerT, seen

_log = structlog.get_logger(__name__)


class Answered(NamedTuple):
    """The replies of one call, the number of replicas that have everything written so far, and the history under which
    the replies were read."""

    replies: list[Reply]
    acked: int
    history: str


class _Call(NamedTuple):
    commands: Sequence[Command]
    wait: int
    answer: asyncio.Future[Answered]


class QueryConnection:
    """One connection to one store node. With `cluster_id` None the node's cluster id is not checked."""

    def __init__(self, node: str, store: Store, settings: StoreSettings, cluster_id: str | None) -> None:
        self._node = node
        self._store = store
        self._settings = settings
        self._cluster_id = cluster_id
        #: This node's replicas as counted in its last reply; None while it does not reply.
        self.connected_replicas: int | None = None
        self._connection: StoreConnection | None = None
        self._calls: deque[_Call] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"store-query-{node}")

    async def call(self, commands: Sequence[Command], wait: int = 0) -> Answered:
        """Run commands in one pipeline, then WAIT for `wait` replicas. Error replies are returned as values, but a
        refusal by a node that is not the key's master raises StoreUnavailableError."""
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(seen)
        self._calls.append(_Call(commands, wait, answer))
        self._wake.set()
        return await answer

    async def close(self) -> None:
        """End the task and the connection; unanswered calls fail."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._fail(list(self._calls), "this process closed its store connection before an answer came")
        self._calls.clear()
        await self._disconnect()

    async def _run(self) -> None:
        while True:
            while not self._calls:
                await self._wake.wait()
                self._wake.clear()
            batch = [self._calls.popleft() for _ in range(min(len(self._calls), self._settings.turn_jobs))]
            batch = [call for call in batch if not call.answer.done()]
            try:
                await self._turn(batch)
            except asyncio.CancelledError:
                self._fail(batch, "this process closed its store connection before an answer came")
                raise
            except Exception as error:  # a reply that cannot be parsed must not end the only reader of this node
                if not isinstance(error, (ConnectionLostError, NotCheckedError)):
                    _log.exception("store_query_connection_failed", node=self._node)
                await self._disconnect()
                self._fail(batch, f"store node {self._node}: {error}")

    async def _turn(self, batch: Sequence[_Call]) -> None:
        settings = self._settings
        if self._connection is None:
            connection = await self._store.connect(self._node)
            self._connection = connection
            await check_connection(connection, self._store, self._node, self._cluster_id, settings.reply_ms)
        wait = max((call.wait for call in batch), default=0)
        commands = [command for call in batch for command in call.commands]
        if wait:
            commands.append(("WAIT", wait, settings.wait_ms))
        commands.append(INFO_REPLICATION)
        replies = await self._connection.run(commands, settings.reply_ms + (settings.wait_ms if wait else 0))
        replication = parse_replication(replies[-1])
        self.connected_replicas = connected_replicas(replies[-1])
        acked = replies[-2] if wait and isinstance(replies[-2], int) else 0
        at = 0
        stale = replication.role != "master"
        for call in batch:
            ours = replies[at : at + len(call.commands)]
            at += len(call.commands)
            stale = self._answer(call, Answered(ours, acked, replication.history), stale) or stale
        if stale:
            await self._disconnect()

    def _answer(self, call: _Call, answered: Answered, stale: bool) -> bool:
        """Answer one call. Returns whether its node must be found and checked again."""
        rerouted = next(
            (r for r in answered.replies if isinstance(r, ErrorReply) and r.code in REROUTE_CODES | {"READONLY"}), None
        )
        if rerouted is not None or stale:
            self._fail([call], f"store node {self._node}: {rerouted or 'it is no longer a master'}")
            return True
        if not call.answer.done():
            call.answer.set_result(answered)
        return False

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self.connected_replicas = None
        if connection is not None:
            await connection.close()

    @staticmethod
    def _fail(calls: Sequence[_Call], why: str) -> None:
        for call in calls:
            if not call.answer.done():
                call.answer.set_exception(StoreUnavailableError(why))


class QueryConnections:
    """Holds connections to the nodes of a store, and finds the one for a key. Repeats calls that may be repeated, for a
    bounded time."""

    def __init__(self, store: Store, settings: StoreSettings, cluster_id: str | None) -> None:
        self._store = store
        self._settings = settings
        self._cluster_id = cluster_id
        self._connections: dict[str, QueryConnection] = {}
        self._closed = False

    async def once(self, key: str, commands: Sequence[Command], wait: int = 0) -> Answered:
        """Make one call on the node of `key`. Raises StoreUnavailableError; the commands may still have been
        executed."""
        if self._closed:
            raise StoreUnavailableError("the store client is closed")
        node = self._store.node_of(key)
        try:
            if node is None:
                await self._store.refresh()
                node = self._store.node_of(key)
        except ConnectionLostError as error:
            raise StoreUnavailableError(str(error)) from error
        if node is None:
            raise StoreUnavailableError(f"no store node holds {key}")
        return await self.at(node, commands, wait)

    async def at(self, node: str, commands: Sequence[Command], wait: int = 0) -> Answered:
        """Make one call on a node, one of `nodes`. Raises as `once`."""
        if self._closed:
            raise StoreUnavailableError("the store client is closed")
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = QueryConnection(node, self._store, self._settings, self._cluster_id)
        return await connection.call(commands, wait)

    async def nodes(self) -> tuple[str, ...]:
        """All nodes that hold keys, in order. Raises StoreUnavailableError."""
        if not self._store.nodes:
            try:
                await self._store.refresh()
            except ConnectionLostError as error:
                raise StoreUnavailableError(str(error)) from error
        return tuple(sorted(self._store.nodes))

    async def repeat(self, key: str, commands: Sequence[Command], wait: int = 0) -> Answered:
        """Like `once`, but for commands that may run twice: repeat them until `call_ms` have passed."""
        return await self.answered(f"about {key}", lambda: self.once(key, commands, wait))

    async def repeat_at(self, node: str, commands: Sequence[Command]) -> Answered:
        """Like `at`, but for commands that may run twice: repeat them until `call_ms` have passed."""
        return await self.answered(f"of {node}", lambda: self.at(node, commands))

    async def answered(self, what: str, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Call `ask` until it raises no StoreUnavailableError. After `call_ms` raise the last one (CM-182)."""
        pause_ms = self._settings.backoff_ms
        last = StoreUnavailableError(f"no answer {what} within {self._settings.call_ms} ms")
        try:
            async with asyncio.timeout(self._settings.call_ms / 1000):
                while True:
                    try:
                        return await ask()
                    except StoreUnavailableError as error:
                        last = error
                    if self._closed:
                        raise last
                    await asyncio.sleep(pause_ms / 1000)
                    pause_ms = min(pause_ms * 2, self._settings.backoff_max_ms)
                    await self.refresh_nodes()
        except TimeoutError:
            raise last from None

    def connected_replicas(self, key: str) -> int | None:
        """Replicas of the node of `key` as last counted; None while the number is not known."""
        connection = self._connections.get(self._store.node_of(key) or "")
        return None if connection is None else connection.connected_replicas

    async def refresh_nodes(self) -> None:
        """Refresh the map from keys to nodes after a failed call, if keys can move."""
        if self._store.clustered:
            try:
                await self._store.refresh()
            except ConnectionLostError:
                return  # the next call raises what is wrong

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()
