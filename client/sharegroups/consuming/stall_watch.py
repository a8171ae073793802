"""If the cluster or topics of a consumer are unavailable, warns once per cause why it gets no records, and logs when a
lost cluster answers again.

It queries the cluster only while the consumer has no partitions; otherwise it uses the metadata that the client already
has.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final

from kip932.api.v1.metadata_pb2 import MetadataRequest
from kip932.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from kip932.ids import TopicIdPartition
from kip932.nearest_name import did_you_mean
from kip932.rpc.transport import TransportError
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.core.stall_diagnosis import (
    LEADERLESS,
    UNCOORDINATED,
    UNKNOWN,
    UNREACHABLE,
    StallTimer,
    Trouble,
)
from sharegroups.connection.signal import Signal
from sharegroups.consuming.core.membership import Membership
from sharegroups.consuming.heartbeats import Heartbeats

log = logging.getLogger(__name__)

#: A cluster that has not answered after this long, in seconds, counts as unreachable, so the warning is logged within 5
#: s.
_ASK_S: Final = 2.0
#: How long the search for a similar topic may delay the warning that one does not exist, in seconds.
_HINT_S: Final = 0.5


class StallWatch:
    """Watches one consumer for missing records, in parallel with its heartbeats. `where` is its bootstrap.servers."""

    def __init__(
        self, cluster: Cluster, membership: Membership, heartbeats: Heartbeats, group_id: str, where: str
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._heartbeats = heartbeats
        self._group_id = group_id
        self._where = where
        self._clock = asyncio.get_running_loop().time
        self._timer = StallTimer(self._clock())
        self._recheck = Signal()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching in the running loop."""
        self._cluster.listen(self._answered)
        self._cluster.on_failure(self._refresh_failed)
        self._task = asyncio.create_task(self._run(), name="watch")

    def heard(self, now_s: float) -> None:
        """Note that records arrived, at this time on the event loop's clock."""
        self._timer.heard(now_s)

    def _refresh_failed(self) -> None:
        """Note that no node answered a metadata refresh, for example one requested after a stream was lost."""
        self._timer.doubted(self._clock())
        self._recheck.set()

    def _answered(self) -> None:
        """Note that metadata arrived. If the loss of the cluster was logged, log its return too."""
        if (seconds := self._timer.answered(self._clock())) is not None:
            log.info("the cluster at %s answers again, %.0f s after the warning that it does not", self._where, seconds)

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            left_s = self._timer.due_s - self._clock()
            if left_s > 0:
                await self._recheck.wait(left_s)
                self._recheck.clear()
                continue  # records may have arrived meanwhile, which moves `due_s`
            if self._membership.has_left:
                self.heard(self._clock())  # no records are wanted, or poll() raises the reason
                continue
            asked = self._clock()
            answered = bool(self._membership.assignment) or await self._ask()
            if self._timer.due_s > asked:
                continue  # records arrived after all
            trouble = self._timer.examined(self._found(answered), self._clock())
            if trouble is not None:
                if trouble.kind == UNKNOWN:
                    trouble = replace(trouble, detail=await self._meant(trouble.topics))
                log.warning("%s", trouble.text(), extra={"trouble": trouble})

    async def _meant(self, unknown: tuple[str, ...]) -> str:
        """Return the hint at the topic that was probably meant; "" without one, or when the nodes do not say it."""
        try:
            async with asyncio.timeout(_HINT_S):
                response = await self._cluster.ask_any(wire.METADATA, MetadataRequest())
        except (KafkaError, TransportError, TimeoutError):
            return ""
        known = [topic.name for topic in response.topics if not topic.error_code]
        return next(filter(None, (did_you_mean(name, known) for name in unknown)), "")

    async def _ask(self) -> bool:
        """Refresh the metadata. Returns whether the refresh ended, with success or failure, within _ASK_S."""
        try:
            async with asyncio.timeout(_ASK_S):
                await self._cluster.wait_refreshed()
        except TimeoutError:
            return False
        return True

    def _found(self, answered: bool) -> Trouble | None:
        cluster = self._cluster
        if cluster.refusal is not None:
            return None  # poll() raises it (CL-158)
        if cluster.trouble or not answered:
            return Trouble(UNREACHABLE, self._where, detail=cluster.trouble or f"no answer within {_ASK_S:.0f} s")
        names = self._membership.subscription
        failed = {name: cluster.errors[name] for name in names if name in cluster.errors}
        # poll() raises the error for a missing permission (CL-143).
        failed = {name: why for name, why in failed.items() if not isinstance(why, TopicAuthorizationFailedError)}
        if unknown := tuple(name for name in failed if isinstance(failed[name], UnknownTopicOrPartitionError)):
            return Trouble(UNKNOWN, self._where, unknown)
        if failed:
            name, error = next(iter(failed.items()))
            return Trouble(error.name, self._where, (name,), str(error))
        return self._leaderless(names) or self._uncoordinated()

    def _uncoordinated(self) -> Trouble | None:
        why = self._heartbeats.unserved
        if not why or self._membership.assignment:
            return None
        return Trouble(UNCOORDINATED, self._where, detail=why, group=self._group_id)

    def _leaderless(self, names: tuple[str, ...]) -> Trouble | None:
        for name in names:
            topic = self._cluster.topics.get(name)
            numbers = range(topic.partitions) if topic is not None else range(0)
            without = [
                str(number)
                for number in numbers
                if topic is not None and self._cluster.leader(TopicIdPartition(topic.topic_id, number)) is None
            ]
            if without:
                return Trouble(LEADERLESS, self._where, (name,), ", ".join(without))
        return None
