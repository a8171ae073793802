"""Hand-made record batches compared with protobuf's own bytes."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import pytest

from kip932.api.v1.record_batch_pb2 import FetchedBatch, Header, Record, RecordBatch
from kip932.compression.kinds import Compression
from sharegroups.connection import wire
from sharegroups.packing import Packing
from sharegroups.producing.produced import ProducedRecord, encode, size_of, varint

_NOW = 1_700_000_000_123
_SHAPES: dict[str, list[ProducedRecord]] = {
    "nothing but a value": [(None, b"v" * 100, (), _NOW)] * 3,
    "values of every length around a varint's steps": [
        (None, b"v" * length, (), _NOW) for length in (0, 1, 120, 124, 125, 126, 127, 128, 16_378, 16_384, 3_000_000)
    ],
    "keys": [(b"k", b"v", (), _NOW), (b"", b"v", (), _NOW), (b"k" * 200, None, (), _NOW), (None, None, (), _NOW)],
    "headers": [
        (None, b"v", [("a", b"1"), ("a", None), ("ü", b"")], _NOW),
        (b"k", None, [("", b"x" * 300)], _NOW + 7),
    ],
    "times that grow, stay, shrink and come back": [
        (None, b"v", (), _NOW + delta) for delta in (0, 0, 1, 1, 127, 128, 100_000_000_000, -1, -_NOW, 0, 1)
    ],
    "times with a key": [(b"k", b"v", (), _NOW), (b"k", b"v", (), _NOW + 1), (b"k", b"v", (), _NOW - 1)],
    "a base time of zero": [(None, b"v", (), 0), (None, b"w", (), 5)],
    "a base time before 1970": [(None, b"v", (), -5), (None, b"w", (), 5)],
}


def by_protobuf(records: Sequence[ProducedRecord]) -> RecordBatch:
    batch = RecordBatch(base_timestamp_ms=records[0][3])
    for key, value, headers, timestamp_ms in records:
        batch.records.append(
            Record(
                key=key,
                value=value,
                headers=[Header(key=name, value=content) for name, content in headers],
                timestamp_delta_ms=timestamp_ms - records[0][3],
            )
        )
    return batch


@pytest.mark.rule("CM-41")
@pytest.mark.parametrize("records", _SHAPES.values(), ids=_SHAPES.keys())
def test_a_batch_has_the_bytes_that_protobuf_writes(records: list[ProducedRecord]) -> None:
    data, latest_ms = encode(records)
    assert data == by_protobuf(records).SerializeToString()
    assert latest_ms == max(timestamp_ms for *_, timestamp_ms in records)


@pytest.mark.rule("CM-41")
@pytest.mark.parametrize("records", _SHAPES.values(), ids=_SHAPES.keys())
def test_a_compressed_batch_holds_a_batch_of_nothing_but_the_records(records: list[ProducedRecord]) -> None:
    data, _ = encode(records, Packing(Compression.GZIP))
    outer = RecordBatch.FromString(data)
    assert (outer.base_timestamp_ms, outer.compression, len(outer.records)) == (records[0][3], 1, 0)
    inner = RecordBatch.FromString(gzip.decompress(outer.compressed_records))
    assert inner.records == by_protobuf(records).records
    assert inner.base_timestamp_ms == 0
    decoded = wire.decode(FetchedBatch(base_offset=7, count=len(records), batch=data))
    assert decoded.error is None
    assert decoded.records == inner.records


def test_varints_are_protobufs() -> None:
    for number in (0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63)):
        field = RecordBatch(base_timestamp_ms=number).SerializeToString()
        assert (b"\x08" + varint(number) if number else b"") == field


def test_the_buffer_counts_what_a_record_holds_and_a_little_more() -> None:
    assert size_of((None, None, (), _NOW)) == 24
    assert size_of((b"kk", b"vvv", [("name", b"12"), ("n", None)], _NOW)) == 24 + 2 + 3 + (4 + 2 + 4) + (1 + 4)
