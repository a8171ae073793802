"""Notifies partition leaders of removed members, so that they end the members' share sessions (GC-39a, GC-39b).

Fire and forget: no caller waits for it, and when an order is lost, the member's locks run out by themselves. Orders are
gathered for a moment, sent to each leader in one call, and retried for half a minute.
"""

from __future__ import annotations

import asyncio
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

#: How long orders are gathered, in seconds: several members are often removed at about the same time.
GATHER_S: Final = 0.05
RETRY_S: Final = 0.5
CALL_S: Final = 3.0
REPORTED: Final = "reported"
REFUSED: Final = "refused"
DROPPED: Final = "dropped"
_END: Final[Method[pb.EndMemberSessionsRequest, pb.EndMemberSessionsResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['MemberSessionsService'].full_name}/EndMemberSessions",
    pb.EndMemberSessionsRequest,
    pb.EndMemberSessionsResponse,
)


class MemberRemovals:
    """Sends the orders, with one task and one more for each leader being called. `leaders` returns the internal
    addresses of all nodes that lead partitions; `told` counts orders by outcome."""

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
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._calling: dict[str, asyncio.Task[None]] = {}

    def removed(self, expired: MemberExpired) -> None:
        """Order the end of a member's sessions, after the store confirmed its removal. Never blocks, never raises."""
        order = Order(expired.group_id, expired.member.member_id, expired.group_epoch, self._clock.now_ms())
        self._removals.removed(order, self._leaders())
        self._wake.set()

    def start(self) -> None:
        """Start sending orders; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="member-removals")

    async def stop(self) -> None:
        """Stop; waiting orders are not sent."""
        tasks = [*self._calling.values()] + ([self._task] if self._task is not None else [])
        self._task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)
            self._wake.clear()
            try:
                self._round()
            except Exception:
                log.exception("session_end_round_failed")
                self._wake.set()
                await asyncio.sleep(RETRY_S)

    def _round(self) -> None:
        """Call all leaders that have waiting orders, except those being called: a leader that does not answer delays
        no other."""
        calls = self._removals.take(self._leaders(), self._clock.now_ms(), self._calling)
        for leader, orders in calls.items():
            call = asyncio.get_running_loop().create_task(self._call(leader, orders), name=f"member-removals {leader}")
            self._calling[leader] = call
        dropped, self._counted = self._removals.dropped - self._counted, self._removals.dropped
        if dropped:
            self._told(DROPPED, dropped)

    async def _call(self, leader: str, orders: Sequence[Order]) -> None:
        """Send one leader its orders; if it was not reached, wait `RETRY_S` before the next call to it."""
        try:
            if not await self._send(leader, orders):
                self._removals.failed(leader, orders)
                await asyncio.sleep(RETRY_S)
        finally:
            del self._calling[leader]
            if self._removals:
                self._wake.set()

    async def _send(self, leader: str, orders: Sequence[Order]) -> bool:
        request = pb.EndMemberSessionsRequest()
        for order in orders:
            request.members.add(group_id=order.group_id, member_id=order.member_id, group_epoch=order.group_epoch)
        try:
            await self._transport.call(leader, _END, request, CALL_S)
        except TransportError as error:
            if error.retriable:
                return False
            log.debug("session_end_orders_refused", address=leader, cause=str(error))
            self._told(REFUSED, len(orders))
        except Exception:
            log.exception("session_end_orders_failed", address=leader)
            return False
        else:
            self._told(REPORTED, len(orders))
        return True
