"""Two decoders, one result: for any bytes, the fast one gives exactly the batches of the Python one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.ids import SharePartitionKey
from kip932.records.v1 import share_state_log_pb2 as pb
from kip932.state_batches import ArchivedRange, StateBatch, WriteStats
from shard_runtime.record_log.redis.codec import claim_record, noop_record
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareTombstone, ShareUpdate
from share_metrics.reader import EntryId, Kind, Reader, ReadOptions, Store, schema_of
from share_metrics.reader.decoding import RawEntry, decode_page, fast
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, UNHURRIED, snapshot, state_entry, update

LATER = b"\xfa\x3f\x03new"  # field 1023, which this build does not know
INT = st.integers(0, 2**31 - 1)
LONG = st.integers(0, 2**63 - 1)
KEYS = st.builds(SharePartitionKey, st.text(max_size=5), st.sampled_from([TOPIC, bytes(16)]), INT)
UNTIL = st.sampled_from([0, 0, 1, 253_402_300_799_999]) | LONG
BATCHES = st.lists(st.builds(StateBatch, LONG, LONG, st.integers(0, 4), INT, UNTIL), max_size=3).map(tuple)
SOME = st.none() | INT
ANY = st.none() | LONG
ARCHIVED = st.lists(st.builds(ArchivedRange, LONG, LONG, INT, INT), max_size=2).map(tuple)
STATS = st.builds(WriteStats, INT, SOME, SOME, SOME, SOME, SOME, SOME, ANY, ANY, ANY, ANY, SOME, ARCHIVED)
OFFSET = st.integers(-1, 2**63 - 1)
COUNT = st.integers(-1, 2**31 - 1)
TIME = st.sampled_from([0, 1, 1_000, 253_402_300_799_999, 253_402_300_800_000, -1, 2**62])
RECORDS: st.SearchStrategy[ShareRecord] = st.one_of(
    st.builds(ShareSnapshot, KEYS, INT, COUNT, COUNT, INT, OFFSET, COUNT, TIME, TIME, BATCHES, INT, INT, INT, STATS),
    st.builds(ShareUpdate, KEYS, INT, COUNT, INT, OFFSET, COUNT, BATCHES, STATS),
    st.builds(ShareTombstone, KEYS),
)
WRITTEN = st.builds(state_entry, st.builds(EntryId, INT, LONG), RECORDS, st.sampled_from([0, 1_000, 2**60]))


@st.composite
def spoilt(draw: st.DrawFn) -> RawEntry:
    """A written entry that was then cut, changed, lengthened, doubled or given another letter."""
    entry = draw(WRITTEN)
    data = bytearray(entry.record)
    how = draw(st.sampled_from(["cut", "change", "later", "twice", "letter", "version"]))
    if how == "cut":
        del data[draw(st.integers(0, len(data))) :]
    elif how == "change":
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    elif how == "later":
        data += LATER
    elif how == "twice":
        data += draw(WRITTEN).record
    elif how == "version":
        data += pb.ShareStateRecord(record_version=1).SerializeToString()
    letter = draw(st.sampled_from("SUTCNZ")) if how == "letter" else entry.letter
    return entry._replace(record=bytes(data), letter=letter)


def same(entries: list[RawEntry], *, light: bool = False) -> None:
    quick, slow = fast.decode_fast(entries, light=light), decode_page(Kind.SHARE_STATE, entries, light=light)
    assert quick.schema.equals(schema_of(Kind.SHARE_STATE))
    quick.validate(full=True)
    assert quick.to_pylist() == slow.to_pylist()
    assert quick.equals(slow)


@pytest.mark.rule("PM-5", "PM-68")
@UNHURRIED
@given(st.lists(WRITTEN, max_size=6), st.booleans())
def test_both_decoders_give_equal_batches(entries: list[RawEntry], light: bool) -> None:
    same(entries, light=light)


@pytest.mark.rule("PM-68")
@UNHURRIED
@given(st.lists(WRITTEN | spoilt(), max_size=5))
def test_both_decoders_say_the_same_of_spoilt_bytes(entries: list[RawEntry]) -> None:
    same(entries)


@pytest.mark.rule("PM-13", "PM-68")
def test_a_page_of_everything_is_the_same_by_both() -> None:
    at = EntryId(5, 1)
    plain = [state_entry(at, snapshot(1, batches=[StateBatch(2, 3, 0, 1)])), state_entry(at, update(2))]
    odd = [
        RawEntry(STREAM, at, "C", claim_record(1, 2, "h:1", "n", 1_234)),
        RawEntry(STREAM, at, "N", noop_record(5)),
        RawEntry(STREAM, at, "Z", b"of a later build"),
    ]
    wrong = [RawEntry(STREAM, at, "S", b"\xff"), RawEntry(STREAM, at, "U", plain[0].record)]
    assert fast.is_installed()  # a development dependency; without it the test would compare Python with Python
    assert fast._plain([*plain, state_entry(at, ShareTombstone(KEY))], light=False).num_rows == 3
    same([*plain, *odd, *plain, state_entry(at, ShareTombstone(KEY)), *wrong, *plain])
    same([])


@pytest.mark.rule("PM-5", "PM-68")
@pytest.mark.parametrize("at", [EntryId(2**63, 1), EntryId(1, 2**63), EntryId(2**64 - 1, 2**64 - 1)])
def test_an_id_that_no_owner_gives_is_quarantined_by_both(at: EntryId) -> None:
    plain = [state_entry(EntryId(1, 1), snapshot(1)), state_entry(EntryId(2**63 - 1, 2**63 - 1), update(2))]
    same([*plain, state_entry(at, update(3)), *plain])
    batch = decode_page(Kind.SHARE_STATE, [*plain, state_entry(at, update(3))])
    assert batch.column("record_type").to_pylist() == ["snapshot", "update", "malformed"]
    assert batch.column("entry_id")[2].as_py() == str(at)


class PanicError(BaseException):
    """Raised by an extension on a bug of its own."""


@pytest.mark.rule("PM-5", "PM-68")
def test_a_mistake_of_the_package_costs_time_and_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(records: list[bytes]) -> None:
        raise PanicError

    monkeypatch.setattr(fast, "_handler", lambda: SimpleNamespace(list_to_record_batch=panic))
    same([state_entry(EntryId(1, 1), snapshot(1)), state_entry(EntryId(1, 2), update(2))])


@pytest.mark.rule("PM-5")
def test_auto_takes_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package `auto` means the Python decoder, and `fast` fails with the missing package's name."""
    made: list[str] = []
    monkeypatch.setattr(fast, "decode_fast", lambda rows, light: made.append("fast"))
    entries = [state_entry(EntryId(1, 1), snapshot(1))]
    with Store("redis://h:1") as store:
        for decoder in ("auto", "fast", "python"):
            Reader(store, Kind.SHARE_STATE, ReadOptions(decoder=decoder))._batch(entries)
        Reader(store, Kind.GROUP, ReadOptions(decoder="fast"))._batch([])
        assert made == ["fast", "fast"]
        monkeypatch.setitem(sys.modules, "ptars", None)
        assert Reader(store, Kind.SHARE_STATE)._batch(entries).num_rows == 1
        with pytest.raises(ValueError, match="needs the package ptars"):
            Reader(store, Kind.SHARE_STATE, ReadOptions(decoder="fast"))
