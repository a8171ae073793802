"""Builds what a consumer runs in its event loop: transport, cluster, heartbeats, fetcher, stall watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kip932.errors import KafkaError
from kip932.rpc.transport import Transport
from sharegroups.aio.ack_outbox import PendingAck
from sharegroups.aio.cluster import Cluster
from sharegroups.aio.fetcher import Fetcher
from sharegroups.aio.heartbeats import Heartbeats
from sharegroups.aio.member import Member
from sharegroups.aio.share_session import ShareSession
from sharegroups.aio.stall_watch import StallWatch
from sharegroups.core.membership import Membership
from sharegroups.messages import Delivered
from sharegroups.metrics import ConsumerMetrics
from sharegroups.security import transport_for


class ConsumerRuntime:
    """Create it inside the running event loop, at the first poll. `close` ends it."""

    def __init__(
        self,
        *,
        member: Member,
        membership: Membership,
        transport: Transport | None,
        settled: Callable[[PendingAck, KafkaError | None], None],
        failed: Callable[[KafkaError], None],
        expired: Callable[[Delivered], None],
        in_use: Callable[[ShareSession], bool],
    ) -> None:
        self._membership = membership
        self._own_transport = transport is None
        self._transport = transport if transport is not None else transport_for(member.config)
        self.metrics = ConsumerMetrics(asyncio.get_running_loop().time())
        self.cluster = Cluster(self._transport, member.config)
        self.fetcher = Fetcher(
            member=member,
            cluster=self.cluster,
            metrics=self.metrics,
            settled=settled,
            failed=failed,
            expired=expired,
            in_use=in_use,
        )
        self.heartbeats = Heartbeats(
            membership=membership,
            cluster=self.cluster,
            group_id=member.group_id,
            member_id=member.member_id,
            metrics=self.metrics,
            assigned=self.fetcher.assign,
            wake_owner=self.fetcher.wake,
        )
        self.watch = StallWatch(self.cluster, membership, member.config["bootstrap.servers"])
        self.cluster.start()
        self.heartbeats.start()
        self.watch.start()

    async def close(self, budget_s: float) -> None:
        """Close sessions, leave the group, stop everything, within about `budget_s` seconds (CL-28)."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + budget_s
        try:
            await self.watch.close()
            await self.fetcher.close(budget_s)
            self._membership.leave(int(deadline_s * 1000))
            async with asyncio.timeout_at(max(deadline_s, loop.time() + 0.05)):
                await self.heartbeats.wait_left()
        except TimeoutError:
            self._membership.give_up_leaving()  # the coordinator expires the member
        finally:
            await self.heartbeats.close()
            await self.cluster.close()
            if self._own_transport:
                await self._transport.close()
