"""Deliveries built from responses: one per range of a batch, split across polls."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.api.v1.record_batch_pb2 import FetchedBatch, Record, RecordBatch
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.ids import TopicIdPartition
from sharegroups.consuming.core.record_batch import Acquired, Extent, select
from sharegroups.consuming.share_messages import Locked, cut_off, delivered
from sharegroups.messages import Messages

PARTITION = TopicIdPartition(bytes(16), 3)
SESSION = cast(Any, SimpleNamespace())


def _batch(base: int, count: int, *, is_control: bool = False) -> FetchedBatch:
    records = [Record(value=b"%d" % (base + delta)) for delta in range(count)]
    return FetchedBatch(
        base_offset=base,
        count=count,
        is_control=is_control,
        batch=RecordBatch(records=records).SerializeToString(),
    )


@pytest.mark.rule("CL-22", "CL-23", "PL-250", "PL-804")
@given(base=st.integers(0, 1 << 40), count=st.integers(1, 6), data=st.data(), is_control=st.booleans())
def test_one_stretch_of_one_batch_is_cut_as_any_answer_is(
    base: int, count: int, data: st.DataObject, is_control: bool
) -> None:
    first = data.draw(st.integers(base - 2, base + count + 1))
    last = data.draw(st.integers(first, first + count + 3))
    part = ShareFetchResponse.PartitionResult(records=[_batch(base, count, is_control=is_control)])
    part.acquired_records.add(first_offset=first, last_offset=last, delivery_count=4)
    found = delivered("t", PARTITION, Locked(SESSION, 7), part).delivered
    expected = select([Acquired(first, last, 4)], [Extent(base, count, is_control)])
    assert found.slices == expected.slices
    assert found.records == expected.records
    assert found.delivery.ranges == expected.ranges
    assert found.delivery.unacknowledged == expected.records
    assert len(found.batches) == len({piece.batch for piece in expected.slices})


@pytest.mark.rule("CL-139")
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    holes=st.lists(st.integers(0, 2), min_size=7, max_size=7),
    cuts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8)), min_size=1, max_size=5),
    most=st.integers(1, 9),
)
def test_an_answer_is_cut_between_batches_into_what_polls_return_and_nothing_is_lost(
    sizes: list[int], holes: list[int], cuts: list[tuple[int, int]], most: int
) -> None:
    part, at = ShareFetchResponse.PartitionResult(), 10
    for size, hole in zip(sizes, holes, strict=False):
        at += hole
        part.records.append(_batch(at, size))
        at += size
    first = 10
    for skipped, length in cuts:
        first += skipped
        part.acquired_records.add(first_offset=first, last_offset=first + length - 1, delivery_count=1 + length % 2)
        first += length
    whole = select(
        [Acquired(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records],
        [Extent(one.base_offset, one.count) for one in part.records],
    )
    made = delivered("t", PARTITION, Locked(SESSION, 7, 40, 30_000, ahead=True), part).delivered
    found = [made]
    while (left := cut_off(found[-1], most)) is not None:
        found.append(left)
    for one in found:
        assert one.session is SESSION
        assert (one.generation, one.acquired_ms, one.lock_ms, one.ahead) == (7, 40, 30_000, True)

    offsets = [message.offset() for one in found for message in Messages([one])]
    assert offsets == [
        part.records[piece.batch].base_offset + place
        for piece in whole.slices
        for place in range(piece.start, piece.stop)
    ]
    assert [message.value() for one in found for message in Messages([one])] == [b"%d" % offset for offset in offsets]
    assert _offsets(span for one in found for span in one.delivery.ranges) == _offsets(whole.ranges)
    assert sum(one.delivery.unacknowledged for one in found) == whole.records
    for one in found:
        last = sum(piece.stop - piece.start for piece in one.slices if piece.batch == len(one.batches) - 1)
        assert one.records - last < most, "a poll is full without its last batch"
    for one, after in pairwise(found):
        assert one.records >= most, "a poll is not full"
        assert one.batches[-1].base_offset < after.batches[0].base_offset, "no batch is in two of them"


def _offsets(spans: Iterable[tuple[int, int]]) -> list[int]:
    return [offset for first, last in spans for offset in range(first, last + 1)]
