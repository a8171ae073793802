"""A producer's compression: type and level, and what is refused when the producer is made (CL-112)."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.api.v1.record_batch_pb2 import FetchedBatch, RecordBatch
from kip932.compression.kinds import Compression
from sharegroups import Producer
from sharegroups.config import producer_config
from sharegroups.connection import wire
from sharegroups.errors import ConfigError
from sharegroups.packing import PLAIN, Packing, packing_of
from sharegroups.producing.produced import ProducedRecord, encode
from tests.support.missing_codecs import without

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NAMES = [kind.label for kind in Compression]
LEVELS = {Compression.GZIP: (-1, 1, 9), Compression.LZ4: (1, 9, 12, 17), Compression.ZSTD: (-131_072, -5, 1, 22)}
TEXT = b"".join(b"%d bottles of beer on the wall, " % number for number in range(99)) * 20


def packing(**settings: Any) -> Packing:
    return packing_of(producer_config(None, settings))


@pytest.mark.rule("CL-112")
def test_types_and_levels_are_kafkas() -> None:
    assert packing() == PLAIN == Packing(Compression.NONE, None)
    found = {name: packing(compression_type=name) for name in NAMES}
    assert {name: one.kind.value for name, one in found.items()} == {
        "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4
    }  # fmt: skip
    assert {name: one.level for name, one in found.items()} == {
        "none": None, "gzip": -1, "snappy": None, "lz4": 9, "zstd": 3
    }  # fmt: skip
    with pytest.raises(ConfigError, match="expected one of none, gzip, snappy, lz4, zstd"):
        packing(compression_type="brotli")


@pytest.mark.rule("CL-112")
@pytest.mark.parametrize("kind", LEVELS, ids=[kind.label for kind in LEVELS])
def test_a_level_counts_and_its_range_is_kafkas(kind: Compression) -> None:
    name = f"compression.{kind.label}.level"
    for level in LEVELS[kind]:
        config = producer_config({"compression.type": kind.label, name: level}, {})
        assert packing_of(config) == Packing(kind, level)
    for level in (LEVELS[kind][0] - 1, LEVELS[kind][-1] + 1):
        with pytest.raises(ConfigError, match=rf"compression\.{kind.label}\.level is {level}; expected"):
            producer_config({"compression.type": kind.label, name: level}, {})


@pytest.mark.rule("CL-112")
def test_gzip_has_no_level_0() -> None:
    with pytest.raises(ConfigError, match=r"compression\.gzip\.level is 0; expected 1 to 9, or -1 for zlib's default"):
        packing(compression_type="gzip", compression_gzip_level=0)


@pytest.mark.rule("CL-112")
@pytest.mark.parametrize("other", ["none", "snappy", "lz4"])
def test_a_level_that_would_count_for_nothing_is_refused(other: str) -> None:
    with pytest.raises(ConfigError, match=rf"zstd\.level is set, but compression\.type is '{other}'.*type=zstd"):
        packing(compression_type=other, compression_zstd_level=3)


@pytest.mark.rule("CL-112", "CM-116")
@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd"])
def test_a_producer_without_the_library_is_refused_when_it_is_made(name: str) -> None:
    with without(name):
        with pytest.raises(
            ConfigError, match=rf"compression\.type is '{name}', and .* library .*pip install 'sharegroups\[{name}\]'"
        ):
            Producer(bootstrap_servers="127.0.0.1:1", compression_type=name)
        assert packing(compression_type="gzip").kind is Compression.GZIP


@pytest.mark.rule("CL-112")
def test_the_level_reaches_the_library() -> None:
    frame = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    for kind, level, expected in (
        (Compression.GZIP, 1, zlib.compress(TEXT, 1, wbits=31)),
        (Compression.GZIP, -1, zlib.compress(TEXT, 6, wbits=31)),
        (Compression.LZ4, 9, lz4.frame.compress(TEXT, compression_level=0, **frame)),
        (Compression.LZ4, 12, lz4.frame.compress(TEXT, compression_level=12, **frame)),
        (Compression.LZ4, 17, lz4.frame.compress(TEXT, compression_level=12, **frame)),
        (Compression.ZSTD, 3, zstd.compress(TEXT, 3)),
        (Compression.ZSTD, 19, zstd.compress(TEXT, 19)),
        (Compression.ZSTD, -50, zstd.compress(TEXT, -50)),
    ):
        assert Packing(kind, level).pack(TEXT) == expected, (kind, level)
    assert cramjam.snappy.decompress_raw(Packing(Compression.SNAPPY, None).pack(b"abc")[20:]).read() == b"abc"
    sizes = [len(Packing(Compression.LZ4, level).pack(TEXT)) for level in (9, 3, 12)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=100),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.rule("CM-116", "CM-41", "CL-112")
@given(records=RECORDS, kind=st.sampled_from(Compression), data=st.data())
def test_what_a_producer_packs_a_consumer_reads(
    records: list[ProducedRecord], kind: Compression, data: st.DataObject
) -> None:
    level = data.draw(st.sampled_from(LEVELS[kind])) if kind in LEVELS else None
    packed, latest_ms = encode(records, Packing(kind, level))
    assert RecordBatch.FromString(packed).compression == kind
    assert latest_ms == max(record[3] for record in records)
    decoded = wire.decode(FetchedBatch(base_offset=7, count=len(records), batch=packed))
    assert decoded.error is None
    found = [
        (
            record.key if record.HasField("key") else None,
            record.value if record.HasField("value") else None,
            [(one.key, one.value if one.HasField("value") else None) for one in record.headers],
            decoded.base_timestamp_ms + record.timestamp_delta_ms,
        )
        for record in decoded.records
    ]
    assert found == records
