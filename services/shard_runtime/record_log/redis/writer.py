"""The one connection that writes to a store node: checks, pipelines, reconnects (CM-15, CM-19, P-9).

One pipeline is in flight; calls that arrive meanwhile form the next. A pipeline is the commands of all its calls, one
WAIT, a read of the history, and the calls' `after` commands. The writer never interprets replies: calls do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import structlog

from shard_runtime.record_log.protocol import ShardLostError, StoreUnavailableError
from shard_runtime.record_log.redis.claimed_shard import ClaimedShard
from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    Command,
    ConnectionLostError,
    Reply,
    Store,
    StoreConnection,
    StoreSettings,
    parse_replication,
)
from shard_runtime.record_log.redis.connection_check import NotCheckedError, check_connection, check_shards
from shard_runtime.record_log.redis.store_calls import PipelineResult, StoreCall, Verdict

_log = structlog.get_logger(__name__)


class Writer:
    """Writes to one store node. `route` takes calls whose key has moved to another node; `held_on` lists this process's
    claimed shards on a node."""

    def __init__(
        self,
        node: str,
        store: Store,
        settings: StoreSettings,
        *,
        rng: Random,
        route: Callable[[StoreCall], None],
        held_on: Callable[[str], Sequence[ClaimedShard]],
    ) -> None:
        self.node = node
        self.history = ""
        self.trouble = ""
        self._store = store
        self._settings = settings
        self._rng = rng
        self._route = route
        self._held_on = held_on
        self._connection: StoreConnection | None = None
        self._queue: deque[StoreCall] = deque()
        self._waiting: list[StoreCall] = []
        self._parked: set[asyncio.TimerHandle] = set()
        self._parked_calls: set[StoreCall] = set()
        self._attempt = 0
        self._short = False  # too few replicas acknowledged the last WAIT: the master may have been replaced (CM-19)
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"store-writer-{node}")

    @property
    def connected(self) -> bool:
        """True while it is connected to a checked master."""
        return self._connection is not None

    @property
    def available(self) -> bool:
        """True while it is connected and no flush is unresolved (CM-15)."""
        if self._waiting or self._parked_calls:
            return self.connected and not any(call.unresolved for call in (*self._waiting, *self._parked_calls))
        return self._connection is not None

    @property
    def idle(self) -> bool:
        """True while it has no calls and no claimed shards, so that its node need not be reachable."""
        return not (self._waiting or self._queue or self._parked_calls or self._held_on(self.node))

    def submit(self, call: StoreCall) -> None:
        """Queue a call for the next pipeline."""
        self._queue.append(call)
        self._wake.set()

    async def close(self) -> None:
        """End the task and the connection; unanswered calls fail."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for handle in self._parked:
            handle.cancel()
        for call in (*self._waiting, *self._queue, *self._parked_calls):
            call.fail(StoreUnavailableError("this process closed its store connection before an answer came"))
        self._waiting, self._parked_calls = [], set()
        self._queue.clear()
        await self._disconnect()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            while self.idle:
                await self._woken()
            try:
                await self._connect()
                await self._serve()
            except (ConnectionLostError, NotCheckedError) as error:
                if self._attempt == 0 or str(error) != self.trouble:
                    _log.warning("store_connection_failed", node=self.node, cause=str(error))
                self.trouble = str(error)
            except Exception:  # a bug must not end the only writer: its calls would wait for ever
                _log.exception("store_writer_failed", node=self.node)
            await self._disconnect()
            await asyncio.sleep(self._back_off())
            self._attempt += 1
            await self._reroute()

    def _back_off(self) -> float:
        """The back-off before the next attempt, in seconds: 0 at first, then doubling up to a limit, half of it
        random."""
        if self._attempt == 0:
            return 0.0
        bound = min(self._settings.backoff_max_ms, self._settings.backoff_ms << min(self._attempt - 1, 16))
        return bound * (0.5 + self._rng.random() / 2) / 1000

    async def _woken(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    async def _connect(self) -> None:
        """Connect; check the node, then every shard claimed on it, before the first write (CM-19)."""
        settings = self._settings
        connection = await self._store.connect(self.node)
        try:
            history = await check_connection(connection, self._store, self.node, settings.cluster_id, settings.reply_ms)
            await check_shards(connection, self._usable(), history, settings.reply_ms)
        except BaseException:
            await connection.close()
            raise
        if history != self.history:
            _log.info("store_history_read", node=self.node, history=history, before=self.history)
        self._connection, self.history = connection, history

    def _usable(self) -> list[ClaimedShard]:
        return [held for held in self._held_on(self.node) if held.lost is None]

    async def _disconnect(self) -> None:
        """Close the connection. The outcome of each unresolved call is unknown again: its read-back or its execution on
        this connection no longer counts."""
        connection, self._connection = self._connection, None
        for call in (*self._waiting, *self._queue, *self._parked_calls):
            if call.unresolved:
                call.lost()
        if connection is not None:
            await connection.close()

    async def _reroute(self) -> None:
        """Learn which node holds which keys now, and pass on the calls whose key moved."""
        if not self._store.clustered:
            return
        try:
            await self._store.refresh()
        except ConnectionLostError as error:
            self.trouble = str(error)
            return
        calls = [*self._waiting, *self._queue]
        self._waiting = []
        self._queue.clear()
        for call in calls:
            if self._store.node_of(call.key) in (self.node, None):
                self._queue.append(call)
            else:
                self._route(call)

    async def _serve(self) -> None:
        while True:
            batch = self._take()
            if not batch:
                await self._woken()
                continue
            await self._check_moved_shards(batch)
            await self._turn([call for call in batch if not call.done])
            if self._short and not self._store.clustered:  # in a cluster a replaced master answers CLUSTERDOWN
                with contextlib.suppress(ConnectionLostError):
                    await self._store.refresh()

    def _take(self) -> list[StoreCall]:
        """The calls of the next pipeline: first those kept from the last one, then queued ones, up to the bounds."""
        self._waiting = [call for call in self._waiting if not call.done]
        size = sum(call.size for call in self._waiting)
        while self._queue and size <= self._settings.turn_bytes and len(self._waiting) < self._settings.turn_jobs:
            call = self._queue.popleft()
            if not call.done:
                self._waiting.append(call)
                size += call.size
        return self._waiting

    async def _check_moved_shards(self, batch: Sequence[StoreCall]) -> None:
        """Check shards that moved to this connection later, with their slot, before their first write here."""
        connection = self._connection
        if connection is None:
            raise ConnectionLostError("the connection was closed")
        unseen = {
            id(held): held
            for call in batch
            for held in call.shards
            if held.checked_on is not connection and held.lost is None
        }
        if unseen:
            await check_shards(connection, list(unseen.values()), self.history, self._settings.reply_ms)

    async def _turn(self, batch: Sequence[StoreCall]) -> None:
        """Run one pipeline, then let each of its calls evaluate its replies."""
        connection = self._connection
        if connection is None:
            raise ConnectionLostError("the connection was closed")
        parts = [call.commands() for call in batch]
        follow_ups = [call.after() for call in batch]
        commands: list[Command] = [command for part in parts for command in part]
        wait = max((call.wait for call in batch), default=0)
        timeout_ms = self._settings.reply_ms
        if wait:
            commands.append(("WAIT", wait, self._settings.wait_ms))
            timeout_ms += self._settings.wait_ms
        commands.append(INFO_REPLICATION)
        commands += [command for follow_up in follow_ups for command in follow_up]
        try:
            replies = await connection.run(commands, timeout_ms)
        except BaseException:
            for call, part in zip(batch, parts, strict=True):
                if part:
                    call.lost()
            raise
        self._settle(batch, parts, follow_ups, replies=replies, wait=wait, connection=connection)

    def _settle(
        self,
        batch: Sequence[StoreCall],
        parts: Sequence[Sequence[Command]],
        follow_ups: Sequence[Sequence[Command]],
        *,
        replies: Sequence[Reply],
        wait: int,
        connection: StoreConnection,
    ) -> None:
        at = sum(map(len, parts))
        acked = replies[at] if wait and isinstance(replies[at], int) else 0
        self._short = acked < wait
        at += 1 if wait else 0
        intact = parse_replication(replies[at]) == ("master", self.history)
        pipeline = PipelineResult(connection, acked, self.history, intact)
        after_at, at = at + 1, 0
        recheck = not intact
        kept: list[StoreCall] = []
        for call, part, follow_up in zip(batch, parts, follow_ups, strict=True):
            ours, after = replies[at : at + len(part)], replies[after_at : after_at + len(follow_up)]
            at, after_at = at + len(part), after_at + len(follow_up)
            verdict = _judged(call, ours, after, pipeline)
            recheck = recheck or verdict is Verdict.RECHECK
            if verdict is Verdict.LATER:
                self._park(call)
            elif not call.done:
                kept.append(call)
        self._waiting = kept
        if recheck:
            raise NotCheckedError(f"the store node {self.node} must be checked again")
        self._attempt = 0
        self.trouble = ""

    def _park(self, call: StoreCall) -> None:
        """Keep a call out of pipelines until its back-off is over."""

        def due() -> None:
            self._parked.discard(handle)
            self._parked_calls.discard(call)
            self.submit(call)

        handle = asyncio.get_running_loop().call_later(self._settings.backoff_ms * 4 / 1000, due)
        self._parked.add(handle)
        self._parked_calls.add(call)


def _judged(call: StoreCall, replies: Sequence[Reply], after: Sequence[Reply], pipeline: PipelineResult) -> Verdict:
    """Let a call evaluate its replies, unless it is answered already. If it cannot parse a reply, its shards are
    treated as lost, but the writer continues (CM-13)."""
    if call.done:
        return Verdict.DONE
    try:
        return call.settle(replies, after, pipeline)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, UnicodeDecodeError) as error:
        lost = ShardLostError(f"{call.key}: the store answered {list(replies)!r:.200}, which cannot be read: {error}")
        call.fail(lost)
        for held in call.shards:
            held.lose(lost)
        return Verdict.DONE
