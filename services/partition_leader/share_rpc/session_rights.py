"""Frees what members may no longer hold when access control entries change (PL-531).

Requests that come later are refused by their own check. What is left are records that members hold already, and
fetches that wait for records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from kip932.acls import ANONYMOUS, ResourceType
from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey
from partition_leader.sessions.core.session import SessionKey
from partition_leader.share_partition.partitions import SharePartitions
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many decisions are made before other tasks get a turn: about 2 ms.
_SLICE: Final = 500

Refusal = Callable[[CallContext, bytes], KafkaError | None]


class SessionRights:
    """The callers of this leader's sessions, as long as access control is on.

    `refusal` returns the error for a caller that may not read a topic. `conclude` answers the parked fetches of a
    session.
    """

    def __init__(self, partitions: SharePartitions, refusal: Refusal, conclude: Callable[[SessionKey], None]) -> None:
        self._partitions = partitions
        self._refusal = refusal
        self._conclude = conclude
        self._callers: dict[SessionKey, CallContext] = {}
        self._sweep: asyncio.Task[None] | None = None
        self._again = False

    def note(self, key: SessionKey, caller: CallContext) -> None:
        """Note who sent the newest request of a session."""
        if caller.rights is not None:
            self._callers[key] = caller

    def forget(self, key: SessionKey) -> None:
        """Forget a session that has ended."""
        self._callers.pop(key, None)

    def changed(self) -> None:
        """Check all sessions against the present entries, in steps."""
        self._again = True
        if self._callers and (self._sweep is None or self._sweep.done()):
            self._sweep = asyncio.get_running_loop().create_task(self._check_all(), name="session-rights")

    async def close(self) -> None:
        """End the check that is under way."""
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.gather(self._sweep, return_exceptions=True)

    async def _check_all(self) -> None:
        turns = Turns(_SLICE)
        while self._again:
            self._again = False
            topics: dict[str, frozenset[bytes]] = {}
            for key in list(self._callers):
                if key.group_id not in topics:
                    found = self._partitions.of_group(key.group_id)
                    topics[key.group_id] = frozenset(each.topic_id for each in found)
                    await turns.step(len(found))
                await turns.step(1 + len(topics[key.group_id]))
                caller = self._callers.get(key)  # the session may have ended meanwhile
                if caller is not None:
                    self._check(key, caller, topics[key.group_id])

    def _check(self, key: SessionKey, caller: CallContext, topics: Iterable[bytes]) -> None:
        if caller.may(ResourceType.GROUP, key.group_id):
            lost = {topic_id for topic_id in topics if self._refusal(caller, topic_id) is not None}
        else:
            lost = set(topics)
        if not lost:
            return
        held = [each for each in self._partitions.of_group(key.group_id) if each.topic_id in lost]
        self._conclude(key)
        self._free(key, held)
        log.info(
            "rights_of_member_lost",
            group=key.group_id,
            member=key.member_id,
            principal=caller.principal or ANONYMOUS,
            share_partitions=len(held),
            effect="the records that it holds there go to other members",
        )

    def _free(self, key: SessionKey, held: Iterable[SharePartitionKey]) -> None:
        self._partitions.later(held, lambda host: host.release(key.member_id))
