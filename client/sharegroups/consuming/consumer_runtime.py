"""Builds the parts that a consumer runs in its event loop: transport, cluster, heartbeats, fetcher, stall watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from kip932.errors import (
    GroupAuthorizationFailedError,
    InvalidTopicError,
    KafkaError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)
from kip932.ids import EPOCH_JOIN
from kip932.rpc.transport import Transport
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.core.missing_rights import may_not_read
from sharegroups.connection.security import transport_for
from sharegroups.consuming.ack_outbox import PendingAck
from sharegroups.consuming.core.denied_rights import CREDENTIALS, DeniedRights, Resource
from sharegroups.consuming.core.membership import Membership
from sharegroups.consuming.fetcher import Fetcher
from sharegroups.consuming.heartbeats import Heartbeats
from sharegroups.consuming.member import Member
from sharegroups.consuming.metrics import ConsumerMetrics
from sharegroups.consuming.share_session import ShareSession
from sharegroups.consuming.stall_watch import StallWatch
from sharegroups.messages import Delivered

log = logging.getLogger(__name__)

#: How long the response to a leave may take, in seconds, if the leave is sent only at the deadline of `close` (CL-11).
_LEAVE_S: Final = 0.05


class ConsumerRuntime:
    """The running parts of a consumer. Create it inside the running event loop, at the first poll; `close` ends it."""

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
        self._failed = failed
        self._impossible: frozenset[str] = frozenset()
        self._group_id = member.group_id
        self._own_transport = transport is None
        self._transport = transport if transport is not None else transport_for(member.config)
        self.metrics = ConsumerMetrics(asyncio.get_running_loop().time())
        self.cluster = Cluster(self._transport, member.config)
        self._rights = DeniedRights()
        self._closing = False
        self.cluster.listen(self._check_topics)  # before the sessions, which forget a topic without metadata
        self.fetcher = Fetcher(
            member=member,
            cluster=self.cluster,
            metrics=self.metrics,
            settled=settled,
            failed=failed,
            gave_up=self._give_up,
            denied=self._denied,
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
            denied=self._member_denied,
            wake_owner=self.fetcher.wake,
        )
        self.watch = StallWatch(
            self.cluster, membership, self.heartbeats, member.group_id, member.config["bootstrap.servers"]
        )
        self.cluster.start()
        self.heartbeats.start()
        self.watch.start()

    def _check_topics(self) -> None:
        """Make the next poll raise an error for a subscribed name that is not a valid topic name, once per name
        (CL-93), and for a topic that this consumer is no longer authorized to describe. Before it has joined, its
        heartbeats report that."""
        names = self._membership.subscription
        errors = {name: self.cluster.errors[name] for name in names if name in self.cluster.errors}
        if self._membership.epoch > EPOCH_JOIN and self._membership.denied is None:
            self._denied(
                "metadata",
                {
                    ("topic", name): may_not_read(error, self._group_id, [name])
                    for name, error in errors.items()
                    if isinstance(error, TopicAuthorizationFailedError)
                },
            )
        impossible = {name: error for name, error in errors.items() if isinstance(error, InvalidTopicError)}
        for name in impossible.keys() - self._impossible:
            self._failed(impossible[name])
        if impossible.keys() - self._impossible:
            self.fetcher.wake()
        self._impossible = frozenset(impossible)

    def _member_denied(self, error: KafkaError | None) -> None:
        """Note whether the coordinator's last response refused this member for lack of permission or valid
        credentials."""
        if error is None:
            self._denied("coordinator", {})
            return
        if isinstance(error, SaslAuthenticationFailedError):
            self._denied("coordinator", {CREDENTIALS: error})
            return
        is_group = isinstance(error, GroupAuthorizationFailedError)
        resource = ("group", self._group_id) if is_group else ("membership", error.message)
        self._denied("coordinator", {resource: may_not_read(error, self._group_id, self._membership.subscription)})

    def _denied(self, source: Hashable, refused: Mapping[Resource, KafkaError] | None) -> None:
        """Note what `source` refuses now; None if it is no longer asked. The next poll raises the errors that are new
        (CL-143)."""
        if refused is None:
            self._rights.forget(source)
            return
        if self._closing:  # an answer to its leave allows nothing, and no poll follows that could raise an error
            return
        change = self._rights.note(source, refused)
        for error in change.errors:
            self._failed(error)
            self.fetcher.wake()
        for kind, name in change.allowed:
            if kind == "membership":  # its name is the text of the refusal
                what = "" if change.errors else f"join group {self._group_id!r}"
            elif (kind, name) == CREDENTIALS:
                what = "call its nodes"
            else:
                what = f"use {kind} {name!r}" if kind == "group" or name in self._membership.subscription else ""
            if what:
                log.info("this consumer may %s again, and continues", what)

    def _give_up(self, error: KafkaError) -> None:
        """Leave the group, log why, and make every poll raise the error (CL-111)."""
        if self._membership.fatal is not None:
            return
        explained = type(error)(
            f"{error.message}. This consumer leaves group {self._group_id!r}, so that its partitions go to others; "
            "create a new consumer once it can read the records."
        )
        log.error("%s", explained)
        self._membership.give_up(explained)
        self.heartbeats.wake()

    async def close(self, budget_s: float) -> None:
        """Close sessions, leave the group and stop everything, within about `budget_s` seconds (CL-28)."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + budget_s
        self._closing = True
        try:
            await self.watch.close()
            await self.fetcher.close(budget_s)
            self._membership.leave(int(deadline_s * 1000))
            async with asyncio.timeout_at(max(deadline_s, loop.time()) + _LEAVE_S):
                await self.heartbeats.wait_left()
        except TimeoutError:
            self._membership.give_up_leaving()  # the coordinator will expire the member
        finally:
            await self.heartbeats.close()
            await self.cluster.close()
            if self._own_transport:
                await self._transport.close()
