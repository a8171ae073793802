"""No member is given a record that it cannot decompress, and refusing the record counts no delivery (PL-257)."""

from __future__ import annotations

import pytest

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import UnsupportedCompressionTypeError
from partition_leader.fetch.readable import BY_ALL, readable_kinds
from partition_leader.topic_log.core.batch import NewBatch
from tests.unit.partition_leader.share_partition.worlds import World, run, settle

BASE = readable_kinds(())


def of(kind: Compression, records: int = 2) -> NewBatch:
    plain = RecordBatch(records=[Record(value=b"v")] * records)
    if kind is Compression.NONE:
        return NewBatch(plain.SerializeToString(), records, 1_000)
    packed = frames_of(kind).compress(plain.SerializeToString(), None)
    data = RecordBatch(base_timestamp_ms=5, compression=kind, compressed_records=packed)
    return NewBatch(data.SerializeToString(), records, 1_000)


async def filled(world: World, *kinds: Compression) -> None:
    await world.log().append([of(kind) for kind in kinds], 10_000)


@pytest.mark.rule("PL-257", "CM-111")
def test_a_member_that_names_nothing_reads_plain_batches_and_gzip() -> None:
    assert {0, 1} == BASE
    assert readable_kinds((4, 2)) == {0, 1, 2, 4}
    assert readable_kinds((2, 3, 4)) == BY_ALL == set(Compression)
    assert readable_kinds((0, 99)) == {0, 1, 99}, "a member of a later version may read more"


@pytest.mark.rule("PL-257")
def test_a_fetch_ends_before_what_the_member_cannot_read_and_another_gets_that() -> None:
    async def scenario(world: World) -> None:
        await filled(world, Compression.NONE, Compression.GZIP, Compression.ZSTD, Compression.NONE)
        poor, rich = world.member("poor"), world.member("rich")
        assert await poor.fetch(0, readable=BASE).ranges() == [(0, 1, 1), (2, 3, 1)]
        refused = await poor.fetch(readable=BASE, max_wait_ms=9_000).error()
        assert isinstance(refused, UnsupportedCompressionTypeError)
        assert refused.message == (
            "the record at offset 4 is in a batch that is compressed with zstd, but this member reads none, gzip. Try: "
            "pip install 'sharegroups[zstd]' where it runs, with a version that has that extra; or leave the record to "
            "another member"
        )
        assert await rich.fetch(0, readable=readable_kinds((4,))).ranges() == [(4, 5, 1), (6, 7, 1)], (
            "its first delivery"
        )

    run(scenario)


@pytest.mark.rule("PL-257")
def test_a_refusal_counts_no_delivery_however_often_it_is_given() -> None:
    async def scenario(world: World) -> None:
        await filled(world, Compression.LZ4)
        poor = world.member("poor")
        for number in range(2 * world.config.delivery_count_limit):
            topics = () if number else (0,)
            assert isinstance(await poor.fetch(*topics, readable=BASE).error(), UnsupportedCompressionTypeError)
        assert world.host().core.overview().fetch_lock is None
        rich = world.member("rich")
        assert await rich.fetch(0).ranges() == [(0, 1, 1)]
        rich.accept(0, 1)
        await settle()
        await filled(world, Compression.GZIP)
        assert await poor.fetch(readable=BASE).ranges() == [(2, 3, 1)], (
            "records that another member finished must not block this one"
        )

    run(scenario)


@pytest.mark.rule("PL-257")
def test_other_partitions_are_served_beside_the_refused_one() -> None:
    async def scenario(world: World) -> None:
        await filled(world, Compression.SNAPPY)
        await world.produce(3, 1)
        answer = world.member().fetch(0, 1, readable=BASE)
        assert isinstance(await answer.error(0), UnsupportedCompressionTypeError)
        assert await answer.ranges(1) == [(0, 2, 1)]

    run(scenario)
