"""Frees what members may no longer hold when access control entries change (PL-531).

Later requests are refused by their own check. That leaves the records that members already hold, and fetches that wait
for records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog

from kip932.acls import ResourceType
from kip932.ids import SharePartitionKey
from partition_leader.sessions.core.session import SessionKey
from partition_leader.share_partition.partitions import SharePartitions
from shard_runtime.rpc.access import Rights
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many decisions are made before other tasks get a turn: about 5 ms, as a change makes each of them new.
_SLICE: Final = 250


class _Session:
    """Who sent a session's newest request, and the topics that its member may have records of or a fetch waiting for:
    those that its requests were allowed to fetch, also when it has forgotten their partitions since. `readable`: those
    that this caller was allowed by the entries of `version`."""

    __slots__ = ("readable", "rights", "topics", "version")

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self.topics: set[bytes] = set()
        self.readable: set[bytes] = set()
        self.version = rights.access.version

    def is_current(self, rights: Rights) -> bool:
        """Return whether `readable` holds for this caller, now."""
        known = self.rights
        return self.version == rights.access.version and (known.principal, known.host) == (
            rights.principal,
            rights.host,
        )


class SessionRights:
    """The callers of this leader's sessions, as long as access control is on.

    `name_of` returns a topic's name, "" when it is not known. `conclude` answers the parked fetches of a session; what
    its requests have acquired of these topics is no longer theirs to deliver.
    """

    def __init__(
        self,
        partitions: SharePartitions,
        name_of: Callable[[bytes], str],
        conclude: Callable[[SessionKey, Collection[bytes]], None],
    ) -> None:
        self._partitions = partitions
        self._name_of = name_of
        self._conclude = conclude
        self._sessions: dict[SessionKey, _Session] = {}
        self._sweep: asyncio.Task[None] | None = None
        self._again = False

    def note(self, key: SessionKey, caller: CallContext, topics: Iterable[bytes]) -> None:
        """Note who sent the newest request of a session, and the topics that it was allowed to fetch."""
        if caller.rights is None:
            return
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session(caller.rights)
        if not session.is_current(caller.rights):
            session.version, session.readable = caller.rights.access.version, set()
        session.rights = caller.rights
        allowed = set(topics)
        session.topics |= allowed
        session.readable |= allowed

    def readable(self, key: SessionKey, caller: CallContext) -> Collection[bytes]:
        """Return the topics that the caller was allowed to fetch by earlier requests of the session, if the entries are
        still the same: a session of 10,000 topics would take 20 ms for them with each request."""
        session = self._sessions.get(key)
        if session is None or caller.rights is None or not session.is_current(caller.rights):
            return ()
        return session.readable

    def forget(self, key: SessionKey) -> None:
        """Forget a session that has ended."""
        self._sessions.pop(key, None)

    def changed(self) -> None:
        """Check all sessions against the current entries, in steps."""
        self._again = True
        if self._sessions and (self._sweep is None or self._sweep.done()):
            self._sweep = asyncio.get_running_loop().create_task(self._check_all(), name="session-rights")

    async def close(self) -> None:
        """End the check that is in progress."""
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.gather(self._sweep, return_exceptions=True)

    async def _check_all(self) -> None:
        turns = Turns(_SLICE)
        while self._again:
            self._again = False
            for key in list(self._sessions):
                session = self._sessions.get(key)  # it may have ended meanwhile
                if session is not None:
                    await turns.step(1 + len(session.topics))
                    self._check(key)

    def _check(self, key: SessionKey) -> None:
        session = self._sessions.get(key)
        if session is None:
            return
        if session.rights.may(ResourceType.GROUP, key.group_id, None):
            lost = {topic_id for topic_id in session.topics if not self._may_read(session.rights, topic_id)}
        else:
            lost = set(session.topics)
        if not lost:
            return
        session.topics -= lost
        held = [each for each in self._partitions.of_group(key.group_id) if each.topic_id in lost]
        self._conclude(key, lost)
        self._free(key, held)
        log.info(
            "rights_of_member_lost",
            group=key.group_id,
            member=key.member_id,
            principal=session.rights.principal,
            share_partitions=len(held),
            effect="the records that it holds there go to other members",
        )

    def _may_read(self, rights: Rights, topic_id: bytes) -> bool:
        """Return whether the topic may be read; also True without a name: what a deleted topic had is dropped."""
        name = self._name_of(topic_id)
        return not name or rights.may(ResourceType.TOPIC, name, None)

    def _free(self, key: SessionKey, held: Iterable[SharePartitionKey]) -> None:
        self._partitions.later(held, lambda host: host.release(key.member_id))
