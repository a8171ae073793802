"""Deliveries made of answers: the way for one stretch of one batch gives what the general way gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.api.v1.record_batch_pb2 import FetchedBatch, Record, RecordBatch
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.ids import TopicIdPartition
from sharegroups.aio.share_messages import delivered
from sharegroups.core.record_batch import Acquired, Extent, select

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
    found = delivered("t", PARTITION, SESSION, 7, part)
    expected = select([Acquired(first, last, 4)], [Extent(base, count, is_control)])
    assert found.slices == expected.slices
    assert found.records == expected.records
    assert found.delivery.ranges == expected.ranges
    assert found.delivery.unacknowledged == expected.records
    assert len(found.batches) == len({piece.batch for piece in expected.slices})
