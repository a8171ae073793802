"""This process in the node list: registered under a stable name, renewed every second, removed at the end (CM-1, CM-2).

Only placement and hints use the list; safety never depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from shard_runtime.ownership.placement import NODE_LEAVING, NODE_LIVE
from shard_runtime.record_log.cluster_store import ClusterStore, NodeRecord
from shard_runtime.record_log.protocol import LogError, StoreUnavailableError

log = structlog.get_logger(__name__)

#: The wake that a node publishes when its entry has changed.
NODES_CHANGED: Final = "nodes"
#: How long after an entry's lapse the list is read again, ms: by then the entry must have lapsed by the store's clock,
#: too.
_AFTER_LAPSE_MS: Final = 5
#: How many nodes a warning names.
_NAMED_MAX: Final = 10


def new_incarnation() -> int:
    """Return a random 64-bit number, never 0, that distinguishes this process from others of its name (CM-1)."""
    return secrets.randbits(64) or 1


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A process's own data for the node list. `dead`: earlier incarnations that have ended, as the name's lock file
    proves. `internal_address`: the address at which it serves other nodes (CM-80). `access_control`: whether it decides
    by access control entries. `kafka_address`: where it serves Kafka's clients; "" if it does not. `external_address`,
    `kafka_external_address`: the same for clients from elsewhere (CM-237)."""

    name: str
    incarnation: int
    address: str
    roles: frozenset[str]
    rack: str = ""
    dead: frozenset[int] = frozenset()
    internal_address: str = ""
    access_control: bool | None = None
    kafka_address: str = ""
    external_address: str = ""
    kafka_external_address: str = ""


class NodeRegistry:
    """The node list as last seen, and this process's entry in it.

    `history` returns the store's history as last seen. `taken` is called when another process has the name; it must end
    this process. `changed` is called after each renewal in which the list changed.
    """

    def __init__(
        self,
        store: ClusterStore,
        me: NodeDescription,
        *,
        history: Callable[[], str],
        changed: Callable[[], None],
        taken: Callable[[str], None],
        interval_ms: int = 1_000,
        ttl_ms: int = 3_000,
    ) -> None:
        self._store = store
        self._me = me
        self._history = history
        self._changed = changed
        self._taken = taken
        self._interval_ms = interval_ms
        self._ttl_ms = ttl_ms
        self._record: NodeRecord | None = None
        self._registered_under = ""
        self._nodes: tuple[NodeRecord, ...] = ()
        self._other_access: frozenset[str] = frozenset()
        self._overdue_ms = 0
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def record(self) -> NodeRecord:
        """This process's entry. Valid only after `register`."""
        assert self._record is not None, "register first"
        return self._record

    def nodes(self) -> Sequence[NodeRecord]:
        """Return the nodes as last seen, leaving ones included; empty before the first renewal."""
        return self._nodes

    def node(self, node_id: int) -> NodeRecord | None:
        """Return the node with this id; None when the list has none."""
        return next((node for node in self._nodes if node.node_id == node_id), None)

    async def register(self) -> NodeRecord:
        """Take the name's node id and enter the list. Raises LogError when another incarnation holds the name."""
        me = self._me
        fresh = NodeRecord(0, me.incarnation, me.name, me.address, me.roles, me.rack, NODE_LIVE, me.internal_address)
        fresh = replace(
            fresh,
            access_control=me.access_control,
            kafka_address=me.kafka_address,
            external_address=me.external_address,
            kafka_external_address=me.kafka_external_address,
        )
        state = self._record.state if self._record else NODE_LIVE
        record = await self._store.register_node(
            me.name, me.incarnation, me.dead, replace(fresh, state=state), self._ttl_ms
        )
        if self._record is not None and self._record.node_id != record.node_id:
            raise LogError(
                f"node name {me.name}: its id was {self._record.node_id} and is {record.node_id} in this store now; "
                "the store has lost the list of names, so this process must be started again"
            )
        self._record = record
        self._registered_under = self._history()
        await self._renew()
        return record

    def start(self) -> None:
        """Start renewing the entry."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Renew now, and so read the list, instead of at the next interval: another node's entry changed (CM-4)."""
        self._woken.set()

    async def leave(self) -> None:
        """Become `leaving`: still an owner, no longer a target (CM-4). When this returns, other nodes can see it."""
        self._record = replace(self.record, state=NODE_LEAVING)
        with contextlib.suppress(LogError):
            await self._renew()
            await self._store.wake(NODES_CHANGED)

    async def remove(self) -> None:
        """Stop renewing and remove the entry."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(LogError):
            await self._store.remove_node(self.record)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_ms() / 1000):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self._renew()
            except StoreUnavailableError as error:
                log.warning("node_renewal_failed", cause=str(error))
            except LogError as error:
                if await self._lost_name(error):
                    return

    def _pause_ms(self) -> int:
        """Return milliseconds until the next renewal: an interval, or less when another node's entry lapses sooner."""
        overdue_ms = self._overdue_ms
        return min(self._interval_ms, overdue_ms + _AFTER_LAPSE_MS) if overdue_ms else self._interval_ms

    async def _renew(self) -> None:
        self._overdue_ms = 0  # unknown until the reply arrives
        nodes, self._overdue_ms = await self._store.renew_node(self.record, self._ttl_ms)
        if nodes != self._nodes:
            self._nodes = nodes
            self._compare_access()
            self._changed()

    def _compare_access(self) -> None:
        """Warn of live nodes with which this one differs in access control, once for each that comes (CM-61)."""
        mine = self._me.access_control
        others = {node.name for node in self._nodes if mine is not None and node.access_control is (not mine)}
        before, self._other_access = self._other_access, frozenset(others)
        if not others - before:
            return
        names = sorted(others)
        shown = ", ".join(names[:_NAMED_MAX]) + (
            f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        )
        log.warning(
            "access_control_differs",
            here="on" if mine else "off",
            there="off" if mine else "on",
            nodes=shown,
            effect="at the nodes where it is off, every caller may do everything",
            try_next="set access.control.enable=true on all nodes, and restart those where it was off",
        )

    async def _lost_name(self, error: LogError) -> bool:
        """Handle another incarnation in this node's entry. After a fail-over it may be an old one, so register again
        (CM-1). Returns whether the name is lost."""
        if self._history() != self._registered_under:
            try:
                await self.register()
            except StoreUnavailableError:
                return False
            except LogError as again:
                error = again
            else:
                return False
        log.error("node_name_taken", cause=str(error))
        self._taken(str(error))
        return True
