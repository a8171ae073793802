"""No member is given a record that it cannot decompress, and refusing the record counts no delivery (PL-257)."""

from __future__ import annotations

import pytest

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import UnsupportedCompressionTypeError
from partition_leader.fetch.readable import BY_ALL, Readable, readable_kinds
from partition_leader.topic_log.core.batch import NewBatch
from tests.support.kafka_made import kafka_batch, values
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
    assert Readable(frozenset({0, 1}), kafka_batches=False) == BASE
    assert readable_kinds((4, 2)).compressions == {0, 1, 2, 4}
    assert readable_kinds((2, 3, 4), (2,)) == BY_ALL
    assert BY_ALL.compressions == set(Compression)
    later = readable_kinds((0, 99), (7,))
    assert later.compressions == {0, 1, 99}, "a member of a later version may read more"
    assert not later.kafka_batches


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


@pytest.mark.rule("CM-222", "PL-257")
def test_batches_of_kafkas_format_stay_for_a_member_that_reads_them() -> None:
    async def scenario(world: World) -> None:
        kafkas = [
            NewBatch(kafka_batch(values(b"a", b"b"), kind), 2, 1_001) for kind in (Compression.NONE, Compression.ZSTD)
        ]
        await world.log().append([of(Compression.NONE), *kafkas], 10_000)
        old, rich = world.member("old"), world.member("rich")
        all_kinds = readable_kinds((2, 3, 4))
        assert await old.fetch(0, readable=all_kinds).ranges() == [(0, 1, 1)]
        for _ in range(7):  # more than the delivery count limit
            refused = await old.fetch(readable=all_kinds).error()
            assert isinstance(refused, UnsupportedCompressionTypeError)
            assert refused.message == (
                "the record at offset 2 is in a batch of Kafka's format, which a client of Kafka's produced; this "
                "client does not read that format. Try: a newer version of this client, where it runs"
            )
        without_zstd = readable_kinds((2, 3), (2,))
        assert await rich.fetch(0, readable=without_zstd).ranges() == [(2, 3, 1)]
        refused = await rich.fetch(readable=without_zstd).error()
        assert isinstance(refused, UnsupportedCompressionTypeError)
        assert "offset 4 is in a batch that is compressed with zstd" in refused.message
        assert await rich.fetch(0, readable=readable_kinds((4,), (2,))).ranges() == [(4, 5, 1)]

    run(scenario)
