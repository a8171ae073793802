"""A member of a share group with its share session at one leader, as defined by the scenarios' FX-RPC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kip932.api.v1.delete_records_pb2 import DeleteRecordsRequest
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import unique

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
#: First offset, last offset, acknowledge types, and optionally delays of releases, and a reason.
AckBatch = (
    tuple[int, int, list[int]] | tuple[int, int, list[int], list[int]] | tuple[int, int, list[int], list[int], str]
)
Acks = Mapping[int, Sequence[AckBatch]]
Acquired = list[tuple[int, int, int]]


class Session:
    """One member's requests to one leader; `epoch` is the one for the next request."""

    def __init__(
        self,
        wire: Wire,
        group: str,
        member: str,
        topic_id: bytes,
        *,
        partitions: tuple[int, ...] = (0,),
        address: str | None = None,
    ) -> None:
        self.wire = wire
        self.group = group
        self.member = member
        self.topic_id = topic_id
        self.partitions = partitions
        self.address = address
        self.epoch = 0
        self.session_id: int | None = None

    async def fetch(
        self,
        acks: Acks | None = None,
        *,
        epoch: int | None = None,
        wait_ms: int = 5_000,
        min_bytes: int = 1,
        forget: tuple[int, ...] = (),
        change: Callable[[ShareFetchRequest], None] = lambda _: None,
        **fields: int | bool,
    ) -> ShareFetchResponse:
        """Send one ShareFetch, with the next epoch or the one given, acknowledgements by partition, and partitions to
        forget. `change` can add other topics; `fields` are request fields that differ from the usual ones."""
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=2**31 - 1,
            max_records=500,
            batch_size=500,
        )
        for name, value in fields.items():
            setattr(request, name, value)
        if forget:
            request.forgotten_topics_data.add(topic_id=self.topic_id, partitions=forget)
        opening = request.share_session_epoch == 0
        if not opening and self.session_id is not None:
            request.session_id = self.session_id
        if opening or acks:
            topic = request.topics.add(topic_id=self.topic_id)
            for partition in self.partitions if opening else acks or {}:
                _fill(topic.partitions.add(partition_index=partition), (acks or {}).get(partition, []))
        change(request)
        answer: ShareFetchResponse = await self.wire.call("ShareFetch", request, self.address)
        if answer.error_code == 0 and epoch != -1:
            self.epoch = request.share_session_epoch + 1
            if opening:
                self.session_id = answer.session_id
        return answer

    async def acknowledge(
        self,
        *batches: AckBatch,
        epoch: int | None = None,
        partition: int = 0,
        renew: bool = False,
        more: Acks | None = None,
    ) -> ShareAcknowledgeResponse:
        """Send one ShareAcknowledge for one partition, and for those in `more`; `renew` is its `is_renew_ack`."""
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
        )
        if request.share_session_epoch != 0 and self.session_id is not None:
            request.session_id = self.session_id
        if batches or more:
            topic = request.topics.add(topic_id=self.topic_id)
            if batches:
                _fill(topic.partitions.add(partition_index=partition), batches)
            for index, others in (more or {}).items():
                _fill(topic.partitions.add(partition_index=index), others)
        answer: ShareAcknowledgeResponse = await self.wire.call("ShareAcknowledge", request, self.address)
        if answer.error_code == 0 and epoch != -1:
            self.epoch += 1
        return answer

    async def ack(self, first: int, last: int, kind: int) -> int:
        """Acknowledge one range; returns the partition's error, after asserting that the request as a whole
        succeeded."""
        answer = await self.acknowledge((first, last, [kind]))
        assert answer.error_code == 0, answer.error_message
        return int(answer.responses[0].partitions[0].error_code)

    async def open(self) -> None:
        """Fetch with epoch 0 until every partition is reported, without error and empty (FX-RPC)."""
        async for _ in attempts():
            answer = await self.fetch(epoch=0, min_bytes=0)
            assert answer.error_code == 0, answer.error_message
            reported = [part for topic in answer.responses for part in topic.partitions]
            if len(reported) == len(self.partitions) and not any(part.error_code for part in reported):
                assert not any(part.acquired_records for part in reported)
                return
        raise AssertionError(f"the session was not opened: {answer}")

    async def open_with_records(self) -> None:
        """Open on partitions that hold records, and acquire some of them."""
        async for _ in attempts():
            if acquired(await self.fetch()):
                return
        raise AssertionError(f"{self.member} acquired nothing")

    async def acquire(self) -> Acquired:
        """Fetch until a record of the first partition is acquired, since a fetch may legally return nothing."""
        async for _ in attempts():
            found = acquired(await self.fetch())
            if found:
                return found
        raise AssertionError(f"{self.member} acquired nothing")


async def fx_rpc(wire: Wire, settings: dict[str, str] | None = None) -> tuple[Session, str]:
    """Set up FX-RPC: a topic of one partition, a group that starts at earliest, and a member with an open, empty
    session. Also returns the topic."""
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    if settings:
        await wire.set_group(group, settings)
    session = Session(wire, group, await wire.join(group, [topic]), topic_id)
    await session.open()
    return session, topic


async def holding(wire: Wire, first: int, last: int, settings: dict[str, str] | None = None) -> tuple[Session, str]:
    """Set up a member that has acquired `first`…`last`, one producer batch; all records below are accepted. Also
    returns the topic."""
    session, topic = await fx_rpc(wire, settings)
    if first:
        await wire.produce(session.topic_id, first)
        assert await session.acquire() == [(0, first - 1, 1)]
        assert await session.ack(0, first - 1, ACCEPT) == 0
    await wire.produce(session.topic_id, last - first + 1)
    assert await session.acquire() == [(first, last, 1)]
    return session, topic


async def another(session: Session, topic: str) -> Session:
    """Let a second member join the group; its session is not open yet."""
    member = await session.wire.join(session.group, [topic])
    return Session(session.wire, session.group, member, session.topic_id)


async def cut(wire: Wire, topic_id: bytes, before: int) -> None:
    """Send DeleteRecords before an offset of partition 0."""
    request = DeleteRecordsRequest(timeout_ms=10_000)
    request.topics.add(topic_id=topic_id).partitions.add(partition_index=0, offset=before)
    (found,) = (await wire.call("DeleteRecords", request)).topics[0].partitions
    assert (found.error_code, found.low_watermark) == (0, before)


def part(answer: Any) -> Any:
    """Return the only partition of a response."""
    (topic,) = answer.responses
    (found,) = topic.partitions
    return found


def acquired(answer: ShareFetchResponse) -> Acquired:
    """Return the acquired ranges over all partitions of the response."""
    assert answer.error_code == 0, answer.error_message
    found = []
    for topic in answer.responses:
        for one in topic.partitions:
            assert one.error_code == 0, one.error_message
            found += [(batch.first_offset, batch.last_offset, batch.delivery_count) for batch in one.acquired_records]
    return found


def offsets(answer: ShareFetchResponse) -> list[int]:
    """Return the offsets that the record data covers."""
    return [
        batch.base_offset + index
        for topic in answer.responses
        for one in topic.partitions
        for batch in one.records
        for index in range(batch.count)
    ]


async def all_of(session: Session, count: int) -> Acquired:
    """Fetch until `count` records are held in total; returns their ranges, adjoining ones merged."""
    found: Acquired = []
    async for _ in attempts():
        found += acquired(await session.fetch(wait_ms=300))
        if sum(last - first + 1 for first, last, _ in found) >= count:
            break
    joined: Acquired = []
    for first, last, times in sorted(found):
        if joined and joined[-1][1] + 1 == first and joined[-1][2] == times:
            joined[-1] = (joined[-1][0], last, times)
        else:
            joined.append((first, last, times))
    return joined


class Keeping:
    """Renews the locks of a range of records from construction until `end`."""

    def __init__(self, session: Session, first: int, last: int) -> None:
        self._session = session
        self._range = (first, last, [RENEW])
        self._over = asyncio.Event()
        self._renewals = asyncio.create_task(self._renew())

    async def end(self) -> None:
        """Stop renewing; no renewal is in flight afterwards, so the session's next epoch matches the leader's. Raises
        the error of a failed renewal."""
        self._over.set()
        await self._renewals

    async def _renew(self) -> None:
        while not self._over.is_set():
            assert part(await self._session.acknowledge(self._range, renew=True)).error_code == 0
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), 0.2)


def _fill(partition: Any, batches: Any) -> None:
    """Add each batch: first offset, last offset, acknowledge types, and optionally delays of releases, and a reason."""
    for first, last, kinds, *more in batches:
        partition.acknowledgement_batches.add(
            first_offset=first,
            last_offset=last,
            acknowledge_types=kinds,
            release_delays_ms=more[0] if more else (),
            reason=more[1] if len(more) > 1 else "",
        )
