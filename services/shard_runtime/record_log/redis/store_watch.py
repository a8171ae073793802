"""Watches a store while a process uses it: its clock (CM-170), settings changed at run time (CM-171), its memory
(CM-208), and when that nears its limit (CM-214).

The start checks require certain settings, but `CONFIG SET` can change them without a restart. Each node is checked on a
connection of its own, several times within a lease. An unreachable node keeps its last findings: the writers notice by
themselves that it is unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog

from shard_runtime.clock import StoreTime
from shard_runtime.record_log.redis.connection import ConnectionLostError, ErrorReply, Store, StoreConnection
from shard_runtime.record_log.redis.keys import META_LOG
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.startup_checks import (
    Finding,
    StoreCheckError,
    StoreNeeds,
    node_findings,
)
from shard_runtime.record_log.store_room import PERCENT, Reported, StoreRoom
from shard_runtime.record_log.store_usage import ASKED, MemoryLevels, StoreUsage, usage_of

log = structlog.get_logger(__name__)

_ASK_MS: Final = 2_000
#: How long after a reading of the memory the next one begins: at least, and near the limit at most.
_READ_AGAIN_S: Final = 0.05
_READ_NEAR_S: Final = 0.25
#: The findings that mean the store may lose what it confirmed. The writers notice missing replicas by themselves.
UNSAFE: Final = ("appendfsync", "appendonly", "maxmemory-policy")


class StoreWatch:
    """One process's watch of its store. `accepted`: names of findings allowed at the start; `stop_writes`: whether new
    work is refused while a store node is unsafe; `produce_percent`: the part of its limit up to which a store node
    takes records (CM-214)."""

    def __init__(
        self,
        store: Store,
        record_log: StoreRecordLog,
        time: StoreTime,
        needs: StoreNeeds,
        *,
        accepted: Collection[str] = (),
        stop_writes: bool = False,
        produce_percent: int = PERCENT,
    ) -> None:
        self.time: Final = time
        self._store = store
        self._log = record_log
        self._needs = needs
        self._accepted = frozenset(accepted)
        self._stop_writes = stop_writes
        self._connections: dict[str, StoreConnection] = {}
        self._unsafe: dict[str, dict[str, Finding]] = {}
        self._doubt = ""
        self._usage: dict[str, StoreUsage] = {}
        self._levels = MemoryLevels()
        self._on_level: Callable[[str, StoreUsage], None] | None = None
        self._read_soon = asyncio.Event()
        self.room: Final = StoreRoom(store.node_of, percent=produce_percent, wanted=self._read_soon.set)
        self._task: asyncio.Task[None] | None = None

    @property
    def usage(self) -> Mapping[str, StoreUsage]:
        """The memory of each node, and what it says of its disk, as of its last answer (CM-208)."""
        return self._usage

    def node_of(self, key: str) -> str:
        """The node that holds a key, as named in `usage`; "" while it is not known."""
        return self._store.node_of(key) or ""

    def on_level(self, listener: Callable[[str, StoreUsage], None]) -> None:
        """Call `listener` with a node and its usage whenever that crosses a level of its limit (CM-211)."""
        self._on_level = listener

    def limit_records(self, leaders: Callable[[], int], reported: Reported) -> None:
        """Take records only while there is room for them, from now on (CM-214); see `StoreRoom.serve`."""
        self.room.serve(leaders, reported)
        for node, usage in self._usage.items():
            self.room.read(node, usage)

    @property
    def unsafe(self) -> frozenset[str]:
        """The names from UNSAFE of the settings with which a node may lose what it confirmed."""
        return frozenset(name for found in self._unsafe.values() for name in found)

    def start(self, interval_ms: int) -> None:
        """Check every node at this interval, until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._run(interval_ms / 1000), name="store-watch")

    async def stop(self) -> None:
        """End the task and the connections; safe to repeat."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for node in list(self._connections):
            await self._close(node)

    async def check(self) -> None:
        """Check every node once; note the findings and log those that changed."""
        nodes = self._store.nodes
        for node in [node for node in (*self._connections, *self._unsafe, *self._usage) if node not in nodes]:
            self._unsafe.pop(node, None)
            self._usage.pop(node, None)
            self.room.forget(node)
            await self._close(node)
        await asyncio.gather(*(self._check_node(node) for node in nodes))
        if self._stop_writes:
            self._log.refuse_new_work(self._unsafe)
        self._note_clock()
        if self._on_level is not None:
            for node in self._levels.crossed(self._usage):
                self._on_level(node, self._usage[node])

    async def _run(self, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + interval_s
        while True:
            await self._pause(due - loop.time())
            try:
                if loop.time() < due:
                    await self.read_memory()
                else:
                    due += interval_s
                    await self.check()
                    due = loop.time() + interval_s
            except Exception:
                log.exception("store_watch_failed", effect="the watch goes on")

    async def _pause(self, at_most_s: float) -> None:
        """Wait for the next check, or for a reading of the memory that is needed sooner."""
        gap_s = min(_READ_AGAIN_S, at_most_s)
        await asyncio.sleep(gap_s)
        left_s = max(at_most_s - gap_s, 0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left_s, _READ_NEAR_S - gap_s) if self.room.near() else left_s):
                await self._read_soon.wait()
        self._read_soon.clear()

    async def read_memory(self) -> None:
        """Read the memory of the nodes that are near their limit, or may be soon."""
        await asyncio.gather(*(self._read_memory(node) for node in {*self.room.near(), *self.room.asking()}))

    async def _read_memory(self, node: str) -> None:
        try:
            await self._ask_usage(node, await self._connected(node))
        except ConnectionLostError:
            await self._close(node)
        except BaseException:
            await self._close(node)  # a reply may still be on its way
            raise

    async def _connected(self, node: str) -> StoreConnection:
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = await self._store.connect(node)
        return connection

    async def _ask_usage(self, node: str, connection: StoreConnection) -> None:
        self.room.ask(node)
        usage = usage_of(await connection.run(ASKED, _ASK_MS))
        if usage is not None:
            self._usage[node] = usage
            self.room.read(node, usage)

    async def _check_node(self, node: str) -> None:
        try:
            connection = await self._connected(node)
            if node == self._store.node_of(META_LOG):
                await self._compare_clocks(connection)
            await self._ask_usage(node, connection)
            found = await node_findings(connection, node, self._needs)
        except ConnectionLostError:
            await self._close(node)
        except StoreCheckError as error:
            log.warning("store_settings_unreadable", node=node, cause=str(error))
        except BaseException:
            await self._close(node)  # a reply may still be on its way
            raise
        else:
            self._note(node, {each.name: each for each in found if each.name in UNSAFE and not self._is_accepted(each)})

    def _is_accepted(self, finding: Finding) -> bool:
        return finding.name in self._accepted

    async def _compare_clocks(self, connection: StoreConnection) -> None:
        asked_ms = self.time.now_ms()
        (reply,) = await connection.run([("TIME",)], _ASK_MS)
        if not isinstance(reply, ErrorReply):
            seconds, micros = reply
            self.time.compare(int(seconds) * 1_000 + int(micros) // 1_000, asked_ms)

    def _note(self, node: str, found: dict[str, Finding]) -> None:
        before = self._unsafe.get(node, {})
        for name, finding in found.items():
            if name not in before or before[name] != finding:
                log.error(
                    "store_setting_unsafe",
                    node=node,
                    cause=finding.message,
                    effect="writes stop until it is corrected (store.unsafe.stop.writes)"
                    if self._stop_writes
                    else "writes go on; with store.unsafe.stop.writes=true they would stop",
                )
        for name in before.keys() - found.keys():
            log.warning("store_setting_restored", node=node, setting=name)
        if found:
            self._unsafe[node] = found
        else:
            self._unsafe.pop(node, None)

    def _note_clock(self) -> None:
        doubt = self.time.doubt()
        if bool(doubt) != bool(self._doubt):
            if doubt:
                log.warning(
                    "retention_by_age_paused",
                    cause=doubt,
                    effect="no records are deleted by age, and transactions time out by how long the leaders here have "
                    "seen them open",
                    setting="clock.skew.max.ms",
                )
            else:
                log.info("retention_by_age_resumed", cause="the clocks of this host and of the store agree")
        self._doubt = doubt

    async def _close(self, node: str) -> None:
        connection = self._connections.pop(node, None)
        if connection is not None:
            await connection.close()
