"""A share consumer that sends protocol messages to the real service of a `World` and reads its responses."""

from __future__ import annotations

import asyncio
from typing import Any

from kip932.api.v1 import delete_records_pb2 as delete_pb
from kip932.api.v1 import share_acknowledge_pb2 as ack_pb
from kip932.api.v1 import share_fetch_pb2 as fetch_pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, key

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
CONTEXT = NO_CALLER
Ack = tuple[int, int, int]


class Fetched:
    """The response to a ShareFetch of partition 0."""

    def __init__(self, response: fetch_pb.ShareFetchResponse) -> None:
        self.response = response
        parts = [one for topic in response.responses for one in topic.partitions]
        assert len(parts) <= 1
        part = parts[0] if parts else fetch_pb.ShareFetchResponse.PartitionResult()
        assert not part.acknowledge_error_code
        self.error = name(response.error_code)
        self.partition_error = name(part.error_code)
        self.acquired = [(each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records]
        self.batches = [(each.base_offset, each.base_offset + each.count - 1) for each in part.records]


class Consumer:
    """One member of the group; its first fetch opens a session for partition 0. `epoch`: the epoch of the next
    request."""

    def __init__(self, world: World, member_id: str, caller: CallContext = CONTEXT) -> None:
        self.world = world
        self.caller = caller
        self.member_id = member_id
        self.epoch = 0
        self.session_id: int | None = None

    async def fetch(self, **fields: Any) -> Fetched:
        """Send one ShareFetch. Without `max_wait_ms` it waits just long enough for the state to be loaded."""
        defaults: dict[str, Any] = {
            "max_wait_ms": 50,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        request = fetch_pb.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            session_id=None if self.epoch == 0 else self.session_id,
            **{**defaults, **fields},
        )
        if self.epoch == 0:
            request.topics.add(topic_id=TOPIC).partitions.add(partition_index=0)
        opens, self.epoch = self.epoch == 0, self.epoch + 1
        response = await self.world.leader.service.share_fetch(request, self.caller)
        if opens and response.HasField("session_id"):
            self.session_id = response.session_id
        return Fetched(response)

    def waiting(self, **fields: Any) -> asyncio.Task[Fetched]:
        """Send a ShareFetch that is parked for up to 20 s."""
        return asyncio.get_running_loop().create_task(self.fetch(**{"max_wait_ms": 20_000, **fields}))

    async def acquired(self, **fields: int) -> list[Ack]:
        """Send a ShareFetch, which must succeed; return the acquired ranges as (first offset, last offset, delivery
        count)."""
        fetched = await self.fetch(**fields)
        assert (fetched.error, fetched.partition_error) == ("NONE", "NONE")
        return fetched.acquired

    async def acknowledge(self, *acks: Ack, renew: bool = False) -> str:
        """Send one ShareAcknowledge of (first offset, last offset, type); return the partition's error."""
        request = ack_pb.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            session_id=self.session_id,
            is_renew_ack=renew,
        )
        part = request.topics.add(topic_id=TOPIC).partitions.add(partition_index=0)
        for first, last, kind in acks:
            part.acknowledgement_batches.add(first_offset=first, last_offset=last, acknowledge_types=[kind])
        self.epoch += 1
        response = await self.world.leader.service.share_acknowledge(request, self.caller)
        assert not response.error_code, response.error_message
        (result,) = [one for topic in response.responses for one in topic.partitions]
        return name(result.error_code)


async def delete_records(world: World, before: int) -> None:
    """Move the log start of partition 0, as an administrator does."""
    request = delete_pb.DeleteRecordsRequest(timeout_ms=5_000)
    request.topics.add(topic_id=TOPIC).partitions.add(partition_index=0, offset=before)
    response = await world.leader.service.delete_records(request, CONTEXT)
    assert [one.low_watermark for topic in response.topics for one in topic.partitions] == [before]


def name(code: ErrorCode.ValueType) -> str:
    return ErrorCode.Name(code).removeprefix("ERROR_CODE_")


def records(world: World) -> list[tuple[int, int, int, int]]:
    """Return the leader's records in flight: (first offset, last offset, state, delivery count)."""
    return [batch[:4] for batch in world.host().core.overview().records]


def memory(world: World) -> dict[str, object]:
    """Return everything that a refused request must not change: records, holders, offsets, writes, and the stored
    state."""
    core = world.host().core
    holders = {
        at: batch.lock_at(at) for batch in core._state.window.walk() for at in range(batch.first, batch.last + 1)
    }
    return {
        "overview": core.overview(),
        "holders": holders,
        "writes": writes(world),
        "stored": (stored := world.persister.stored[key()]) and (stored.start, dict(stored.ranks)),
    }


def writes(world: World) -> list[tuple[int, int, list[tuple[int, int, int, int]]]]:
    """Return start_offset, delivery_complete_count and state batches of every write that was stored."""
    return [
        (write.start_offset, write.delivery_complete_count, [batch[:4] for batch in write.batches])
        for write in world.persister.writes
    ]
