"""Records and the bytes of their entries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.failures import Failure
from kip932.records.v1 import share_state_log_pb2 as pb
from kip932.state_batches import ArchivedRange, StateBatch, WriteStats
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareTombstone, ShareUpdate
from tests.support.share_state import KEY

_INT32 = st.integers(-1, 2**31 - 1)
_INT64 = st.integers(-1, 2**63 - 1)
_BATCHES = st.lists(
    st.builds(
        StateBatch,
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.integers(0, 4),
        st.integers(0, 99),
        st.integers(0, 2**62),
    ),
    max_size=3,
).map(tuple)
_OPTIONAL = st.none() | st.integers(0, 2**31 - 1)
_ARCHIVED = st.builds(ArchivedRange, *[st.integers(0, 2**31 - 1)] * 4)
_STATS = st.builds(WriteStats, st.integers(0, 127), *[_OPTIONAL] * 12, st.lists(_ARCHIVED, max_size=2).map(tuple))
_FAILURES = st.lists(
    st.builds(Failure, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.text(max_size=9)),
    max_size=3,
).map(tuple)
_RECORD: st.SearchStrategy[ShareRecord] = st.one_of(
    st.builds(
        ShareSnapshot,
        st.just(KEY),
        *[_INT32] * 4,
        _INT64,
        _INT32,
        _INT64,
        _INT64,
        _BATCHES,
        *[_INT32] * 3,
        _STATS,
        _INT64,
        _INT64,
        _FAILURES,
    ),
    st.builds(ShareUpdate, st.just(KEY), *[_INT32] * 3, _INT64, _INT32, _BATCHES, _STATS, _FAILURES),
    st.builds(ShareTombstone, st.just(KEY._replace(group_id="a:b é"))),
)


@pytest.mark.rule("CM-16", "SC-34", "PL-702", "PM-20", "SC-117")
@given(_RECORD)
def test_a_record_comes_back_as_it_was(record: ShareRecord) -> None:
    kind, data = ShareStateCodec().encode(record, 1234)
    assert ShareStateCodec().decode(kind, data) == record
    assert pb.ShareStateRecord.FromString(data).append_time_ms == 1234


@pytest.mark.rule("PL-811")
def test_the_archived_records_of_state_that_an_older_build_wrote_begin_at_0() -> None:
    codec = ShareStateCodec()
    snapshot = ShareSnapshot(KEY, 1, 2, 3, 4, 5, 6, 7, 8, (), 9, 10, 11, archived_by_limit=9, archived_by_reject=10)
    kind, data = codec.encode(snapshot, 0)
    message = pb.ShareStateRecord.FromString(data)
    message.snapshot.ClearField("archived_by_limit")
    message.snapshot.ClearField("archived_by_reject")
    found = codec.decode(kind, message.SerializeToString())
    assert found == replace(snapshot, archived_by_limit=0, archived_by_reject=0)


@pytest.mark.rule("SC-117", "PL-942")
def test_without_reasons_an_entry_has_not_a_byte_more_and_an_older_build_reads_the_rest() -> None:
    codec, failure = ShareStateCodec(), Failure(3, 4, 1, "ValueError: no such user")
    plain = ShareUpdate(KEY, 0, 1, 2, 3, -1, (StateBatch(3, 4, 0, 1),))
    kind, data = codec.encode(plain._replace(failures=(failure,)), 0)
    message = pb.ShareStateRecord.FromString(data)
    message.update.ClearField("failures")
    assert message.SerializeToString() == codec.encode(plain, 0)[1]
    assert codec.decode(kind, message.SerializeToString()) == plain
    assert len(data) == len(codec.encode(plain, 0)[1]) + message.update.failures.add(**failure._asdict()).ByteSize() + 3


@pytest.mark.rule("CM-16")
def test_each_type_has_its_letter() -> None:
    update = ShareUpdate(KEY, 0, 1, 2, -1, -1, ())
    assert ShareStateCodec().encode(update, 0)[0] == "U"
    assert ShareStateCodec().encode(ShareTombstone(KEY), 0)[0] == "T"


@pytest.mark.rule("SC-51", "SR-26")
def test_later_types_and_versions_are_skipped() -> None:
    codec = ShareStateCodec()
    kind, data = codec.encode(ShareTombstone(KEY), 0)
    assert codec.decode("Z", b"anything") is None
    later = pb.ShareStateRecord.FromString(data)
    later.record_version = 1
    assert codec.decode(kind, later.SerializeToString()) is None


@pytest.mark.rule("CM-16")
@pytest.mark.parametrize(("kind", "data"), [("S", b"\xff\xff"), ("S", b""), ("U", None), ("S", None)])
def test_broken_entries_are_distinguished_from_unknown_ones(kind: str, data: bytes | None) -> None:
    tombstone = ShareStateCodec().encode(ShareTombstone(KEY), 0)[1]
    with pytest.raises(ValueError, match=f"an entry of type {kind}"):
        ShareStateCodec().decode(kind, tombstone if data is None else data)


@pytest.mark.rule("SC-42")
def test_an_absent_count_is_unknown() -> None:
    message = pb.ShareStateRecord(update=pb.ShareUpdate(start_offset=4))
    message.key.topic_id = KEY.topic_id
    record = ShareStateCodec().decode("U", message.SerializeToString())
    assert isinstance(record, ShareUpdate)
    assert record.delivery_complete_count == -1
