"""The order of a backup, the size of its pages, and gaps that a trim leaves."""

from __future__ import annotations

import pytest

from kip932.ids import topic_id_text
from shard_runtime.cluster.metadata import MetadataImage, TopicCreated, TopicDeleted
from shard_runtime.record_log.protocol import ShardId, ShardKind, StreamId
from share_node.backup.taking import READ_ORDER, PageSize, StreamReading, deleted_meanwhile, pause_s, topic_shards

ONE, TWO = b"\0" * 15 + b"\1", b"\0" * 15 + b"\2"


@pytest.mark.rule("CM-141")
def test_what_refers_to_something_is_read_before_it() -> None:
    """Share-group state refers to offsets in topics and to epochs of its group."""
    assert READ_ORDER == (ShardKind.SHARE_STATE, ShardKind.GROUP, ShardKind.TOPIC)


@pytest.mark.rule("CM-141")
def test_pages_grow_slowly_and_are_bounded_by_the_largest_entry_so_far() -> None:
    size = PageSize()
    assert size.count == 16
    for expected in (32, 64, 128, 256, 500, 500):
        size.learn(100)
        assert size.count == expected
    size.learn(1024 * 1024 // 8)
    assert size.count == 8
    size.learn(100)
    assert size.count == 8, "the next large one may come at any time"
    size.learn(10 * 1024 * 1024)
    assert size.count == 1


def test_a_stream_is_read_through_its_last_id() -> None:
    reading = StreamReading(StreamId(3, 0), StreamId(3, 9), trims_matter=True)
    assert (reading.after, reading.done) == (StreamId(2, 2**64 - 1), False)
    assert reading.page(StreamId(3, 0), (StreamId(3, 0), StreamId(3, 5)))
    assert (reading.after, reading.done) == (StreamId(3, 5), False)
    assert reading.page(StreamId(3, 0), (StreamId(3, 6), StreamId(3, 9)))
    assert reading.done
    assert StreamReading(StreamId(3, 1), StreamId(3, 0), trims_matter=True).done


@pytest.mark.rule("CM-141")
def test_a_trim_past_what_was_read_is_a_gap_and_one_behind_it_is_none() -> None:
    reading = StreamReading(StreamId(3, 2), StreamId(9, 9), trims_matter=True)
    assert reading.page(StreamId(3, 2), (StreamId(3, 2), StreamId(3, 5)))
    assert reading.page(StreamId(3, 5), (StreamId(4, 0), StreamId(4, 5))), "the last entry that was read is there still"
    assert not reading.page(StreamId(6, 0), (StreamId(6, 0), StreamId(6, 1))), "whole epochs may have gone between"


@pytest.mark.rule("CM-141")
def test_a_trim_before_the_first_page_is_a_gap() -> None:
    assert not StreamReading(StreamId(3, 2), StreamId(9, 9), trims_matter=True).page(StreamId(3, 3), None)
    assert StreamReading(StreamId(3, 2), StreamId(9, 9), trims_matter=True).page(
        StreamId(3, 2), (StreamId(3, 2), StreamId(3, 2))
    )


def test_entries_that_went_before_they_were_read_are_a_gap_also_when_nothing_is_left() -> None:
    reading = StreamReading(StreamId(3, 2), StreamId(3, 9), trims_matter=True)
    assert reading.page(StreamId(3, 2), (StreamId(3, 2), StreamId(3, 5)))
    assert not reading.page(StreamId(3, 5), None)


def test_of_a_topic_log_anything_may_be_trimmed() -> None:
    reading = StreamReading(StreamId(3, 2), StreamId(3, 9), trims_matter=False)
    assert reading.page(StreamId(3, 8), (StreamId(3, 8), StreamId(3, 8)))
    assert reading.page(StreamId(4, 0), None)
    assert reading.done


def test_the_partitions_of_all_topics_are_read_and_deleted_ones_left_out() -> None:
    listed = MetadataImage().apply(1, (TopicCreated("a", ONE, 2), TopicCreated("b", TWO, 1)))
    one, two = topic_id_text(ONE), topic_id_text(TWO)
    assert topic_shards(listed) == [
        ShardId(ShardKind.TOPIC, f"{one}:0"),
        ShardId(ShardKind.TOPIC, f"{one}:1"),
        ShardId(ShardKind.TOPIC, f"{two}:0"),
    ]
    assert deleted_meanwhile(listed, listed) == []
    assert deleted_meanwhile(listed, listed.apply(2, (TopicDeleted(TWO, "b"),))) == [two]


def test_the_rate_holds_over_all_that_was_read() -> None:
    assert pause_s(10_000, 1.0, None) == 0
    assert pause_s(10_000, 1.0, 5_000) == 1.0
    assert pause_s(10_000, 3.0, 5_000) == 0
