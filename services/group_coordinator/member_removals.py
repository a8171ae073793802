"""Tells partition leaders which members were removed, so that they end their share sessions (GC-39a, GC-39b).

Fire and forget: nobody waits for it, and locks that run out do later what an order that is lost would have done. Orders
are gathered for a moment, sent to each leader in one call, and tried again for half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog

from group_coordinator.core.commands import MemberExpired
from group_coordinator.core.removals import Order, Removals
from kip932.internal.v1 import end_member_sessions_pb2 as pb
from kip932.internal.v1 import member_sessions_service_pb2 as service_pb
from kip932.rpc.transport import Method, Transport, TransportError
from shard_runtime.clock import Clock

log = structlog.get_logger(__name__)

#: How long orders are gathered: members of one moment are often removed together.
GATHER_S: Final = 0.05
RETRY_S: Final = 0.5
CALL_S: Final = 3.0
TOLD: Final = "told"
REFUSED: Final = "refused"
DROPPED: Final = "dropped"
_END: Final[Method[pb.EndMemberSessionsRequest, pb.EndMemberSessionsResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['MemberSessionsService'].full_name}/EndMemberSessions",
    pb.EndMemberSessionsRequest,
    pb.EndMemberSessionsResponse,
)


class MemberRemovals:
    """One task. `leaders` gives the addresses between nodes of all nodes that lead partitions; `told` counts orders by
    outcome."""

    def __init__(
        self,
        transport: Transport,
        leaders: Callable[[], Collection[str]],
        clock: Clock,
        told: Callable[[str, int], None],
    ) -> None:
        self._transport = transport
        self._leaders = leaders
        self._clock = clock
        self._told = told
        self._removals = Removals()
        self._counted = 0
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def removed(self, expired: MemberExpired) -> None:
        """A member was removed, and the store has confirmed it. Never blocks, never raises."""
        order = Order(expired.group_id, expired.member.member_id, expired.group_epoch, self._clock.now_ms())
        self._removals.removed(order, self._leaders())
        self._something.set()

    def start(self) -> None:
        """Begin to tell; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="member-removals")

    async def stop(self) -> None:
        """End; what waits is not told."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._something.wait()
            await asyncio.sleep(GATHER_S)
            try:
                whole = await self._round()
            except Exception:
                log.exception("a round of orders to end the sessions of removed members was cut short")
                whole = False
            if not whole:
                await asyncio.sleep(RETRY_S)

    async def _round(self) -> bool:
        """Tell what waits. Returns whether nothing of it has to be tried again."""
        self._something.clear()
        calls = self._removals.take(self._leaders(), self._clock.now_ms())
        reached = await asyncio.gather(*(self._call(leader, orders) for leader, orders in calls.items()))
        dropped, self._counted = self._removals.dropped - self._counted, self._removals.dropped
        if dropped:
            self._told(DROPPED, dropped)
        if self._removals:
            self._something.set()
        return all(reached)

    async def _call(self, leader: str, orders: Sequence[Order]) -> bool:
        """Tell one leader. Returns whether it was reached."""
        request = pb.EndMemberSessionsRequest()
        for order in orders:
            request.members.add(group_id=order.group_id, member_id=order.member_id, group_epoch=order.group_epoch)
        try:
            await self._transport.call(leader, _END, request, CALL_S)
        except TransportError as error:
            if error.retriable:
                self._removals.failed(leader, orders)
                return False
            log.debug("a leader takes no orders to end members' sessions", address=leader, why=str(error))
            self._told(REFUSED, len(orders))
        else:
            self._told(TOLD, len(orders))
        return True
