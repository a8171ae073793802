"""Helpers for tests in which a share consumer's records become dead letters; they use the `World` of the
share-partition tests."""

from __future__ import annotations

import asyncio
from typing import Any

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.state_values import StoredStart
from partition_leader.topic_log.core.batch import NewBatch
from tests.unit.partition_leader.share_partition.letter_facts import DLQ
from tests.unit.partition_leader.share_partition.worlds import TOPIC, Member, World, key, settle

REJECT = 3


def configure(world: World, **fields: Any) -> None:
    """Configure the group's dead-letter queue; `fields` as for `ScriptedLetterFacts.queue`."""
    maximum = fields.pop("dead_letters_max", 5_000)
    world.facts.topics[DLQ] = 1_000
    world.letters.queue(**fields)
    world.configure(dlq_enabled=bool(world.letters.now.queue.topic), dead_letters_max=maximum)
    world.leader.topics_changed(frozenset())


async def rejected(world: World, count: int, partition: int = 0, **fields: Any) -> Member:
    """Configure the queue unless `keep` is given; then produce `count` records, fetch them and reject them. Return the
    member."""
    if "keep" not in fields:
        configure(world, **fields)
    await world.produce(count, partition)
    member = world.member(f"m{partition}")
    first, last, _ = (await member.fetch(partition).ranges(partition))[0]
    assert last - first + 1 == count
    assert await member.accept(first, last, partition, kind=REJECT).ack_error(partition) is None
    await settle()
    return member


def sent(world: World, request: int = -1) -> list[dict[str, str]]:
    """Return, for each dead letter in a request to the other node, the headers that the server added."""
    records = [
        record
        for topic in world.elsewhere.requests[request].topic_data
        for data in topic.partition_data
        for batch in data.batches
        for record in RecordBatch.FromString(batch.record_batch).records
    ]
    return [{head.key.rpartition("errors.")[2]: head.value.decode() for head in record.headers} for record in records]


def offsets(world: World, request: int = -1) -> list[int]:
    return [int(letter["offset"]) for letter in sent(world, request)]


def states(world: World, partition: int = 0) -> dict[int, int]:
    """Return the stored state of each offset of a share-partition, beginning with its start offset."""
    return {offset: state for offset, (_, state) in world.persister.stored[key(partition)].ranks.items()}


def start(world: World, partition: int = 0) -> int:
    return world.persister.stored[key(partition)].start


def counted(world: World, name: str, **labels: str) -> float:
    return world.registry.get_sample_value(name, {"group": "g", **labels}) or 0.0


async def unwritten(world: World) -> float:
    """Return how many dead letters the metrics show as not written after a round, in which the share coordinator
    returns the stored start offsets."""
    starts: dict[str, dict[int, int | StoredStart]] = {}
    for one, stored in world.persister.stored.items():
        starts.setdefault(one.group_id, {})[one.partition] = stored.start
    world.starts.groups = {TOPIC: starts}
    await world.leader.progress_round()
    return counted(world, "sharegroups_share_group_dead_letters_waiting", topic="t")


async def passes(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


def with_values(*values: bytes) -> NewBatch:
    records = [Record(key=b"k", value=value) for value in values]
    return NewBatch(RecordBatch(base_timestamp_ms=7, records=records).SerializeToString(), len(records), 7)
