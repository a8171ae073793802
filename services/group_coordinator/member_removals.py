"""Notifies partition leaders of removed members, so that they end the members' share sessions (GC-39a, GC-39b).

If an order is lost, the member's locks simply expire.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from group_coordinator.core.commands import MemberExpired
from kip932.internal.v1 import end_member_sessions_pb2 as pb
from kip932.internal.v1 import member_sessions_service_pb2 as service_pb
from kip932.rpc.transport import Method, Transport
from shard_runtime.clock import Clock
from shard_runtime.rpc.peer_notices import CALL_S, PeerNotices

#: How long an order is worth sending: the default duration of a lock.
WORTH_MS: Final = 30_000
_END: Final[Method[pb.EndMemberSessionsRequest, pb.EndMemberSessionsResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['MemberSessionsService'].full_name}/EndMemberSessions",
    pb.EndMemberSessionsRequest,
    pb.EndMemberSessionsResponse,
)


class Order(NamedTuple):
    """An order to end a removed member's sessions. `key`: its group and id; `newness`: the group epoch after the
    removal, which was at `at_ms`."""

    key: tuple[str, str]
    newness: int
    at_ms: int


class MemberRemovals:
    """Sends the orders. `leaders` returns the internal addresses of all nodes that lead partitions; `count` counts
    orders by outcome."""

    def __init__(
        self,
        transport: Transport,
        leaders: Callable[[], Collection[str]],
        clock: Clock,
        count: Callable[[str, int], None],
    ) -> None:
        self._transport = transport
        self._leaders = leaders
        self._clock = clock
        self._orders: PeerNotices[Order] = PeerNotices(
            "member-removals", clock, WORTH_MS, self._send, count, is_gone=lambda leader: leader not in leaders()
        )
        self.start = self._orders.start
        self.stop = self._orders.stop

    def removed(self, expired: MemberExpired) -> None:
        """Order the end of a member's sessions, after the store confirmed its removal. Never blocks, never raises."""
        order = Order((expired.group_id, expired.member.member_id), expired.group_epoch, self._clock.now_ms())
        for leader in self._leaders():
            self._orders.add(leader, order)

    async def _send(self, leader: str, orders: Sequence[Order]) -> Sequence[Order]:
        request = pb.EndMemberSessionsRequest()
        for (group_id, member_id), group_epoch, _ in orders:
            request.members.add(group_id=group_id, member_id=member_id, group_epoch=group_epoch)
        await self._transport.call(leader, _END, request, CALL_S)
        return ()
