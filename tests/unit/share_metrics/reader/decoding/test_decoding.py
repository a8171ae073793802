"""Entries as the services write them, decoded into rows; and bytes that no service writes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import Initializing, Lifecycle, TopicState
from kip932.failures import Failure
from kip932.ids import SharePartitionKey, topic_id_text
from kip932.records.v1 import share_state_log_pb2 as pb
from kip932.state_batches import (
    CAUSE_ACK,
    CAUSE_ADMIN,
    CAUSE_COLD,
    CAUSE_DLQ,
    CAUSE_INIT,
    CAUSE_LOCK_EXPIRY,
    CAUSE_SESSION_RELEASE,
    ArchivedRange,
    StateBatch,
    WriteStats,
)
from partition_leader.topic_log.codec import batch_entry, marker_entry
from partition_leader.topic_log.core.batch import LogBatch
from shard_runtime.record_log.redis.codec import claim_record, noop_record
from share_coordinator.core.records import ShareSnapshot, ShareTombstone, ShareUpdate
from share_metrics.reader import EntryId, Gap, Kind, schema_of
from share_metrics.reader.decoding import RawEntry, decode, decode_page, gap_row, to_batch, values
from share_metrics.reader.decoding.values import topic_text
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, UNHURRIED, snapshot, state_entry, update

AT = EntryId(5, 1)
LOG = f"{{tp:{topic_id_text(TOPIC)}:3}}:log"


def filled(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.rule("PM-16", "PM-20", "X1")
def test_a_snapshot_becomes_a_row() -> None:
    stats = WriteStats(CAUSE_ACK, n_accept=10, max_dc=2, sum_dc=12, hwm=130, speo=121)
    batches = [StateBatch(111, 112, 0, 1, 9_000), StateBatch(115, 115, 0, 1)]
    record = snapshot(110, 3, epoch=4, batches=batches, stats=stats, write_ms=2_000)
    row = filled(decode(Kind.SHARE_STATE, state_entry(AT, record, 1_234)))
    assert row.pop("bytes")
    assert row == {
        "stream": STREAM, "entry_id": "5-1", "epoch": 5, "seq": 1, "ts": 1_234_000, "record_type": "snapshot",
        "group_id": "G1", "topic_id": topic_id_text(TOPIC), "partition": 0, "state_epoch": 1, "leader_epoch": 1,
        "snapshot_epoch": 4, "start_offset": 110, "generation": 0, "delivery_complete_count": 3, "create_ts": 1_000_000,
        "write_ts": 2_000_000, "state_batches": ((111, 112, 0, 1, 9_000_000), (115, 115, 0, 1, None)),
        "cause": CAUSE_ACK, "n_accept": 10, "max_dc": 2, "sum_dc": 12, "hwm": 130, "speo": 121,
    }  # fmt: skip


@pytest.mark.rule("PM-16")
@pytest.mark.parametrize("until_ms", [-1, 253_402_300_800_000])
def test_an_instant_that_is_no_time_is_quarantined_as_other_times_are(until_ms: int) -> None:
    row = decode(Kind.SHARE_STATE, state_entry(AT, update(1, batches=[StateBatch(2, 3, 0, 1, until_ms)])))
    assert row["record_type"] == "malformed"
    assert f"{until_ms} ms since 1970 is not a time" in str(row["error"])


@pytest.mark.rule("PM-20", "X2", "X3", "X4", "X5", "X8", "X9", "X10")
@pytest.mark.parametrize(
    "cause",
    [CAUSE_ACK, CAUSE_SESSION_RELEASE, CAUSE_LOCK_EXPIRY, CAUSE_DLQ, CAUSE_ADMIN, CAUSE_INIT, CAUSE_COLD],
)
def test_what_a_write_did_comes_back_from_snapshots_and_updates(cause: int) -> None:
    stats = WriteStats(
        cause, n_accept=1, n_release=2, n_reject=3, n_timeout=4, n_limit=5, n_given_back=13, max_dc=6, sum_dc=7,
        hwm=8, speo=9, write_id=10, delivery_limit=11,
        archived=(ArchivedRange(12, 13, 14, 1), ArchivedRange(15, 15, 16, 2)),
    )  # fmt: skip
    for record in (snapshot(110, stats=stats), update(110, stats=stats)):
        row = decode(Kind.SHARE_STATE, state_entry(AT, record))
        assert {name: row[name] for name in stats._fields} == stats._asdict()


@pytest.mark.rule("PM-20")
def test_records_without_the_fields_of_extensions_are_rows_too() -> None:
    """Another implementation of the KIP would write such records."""
    row = decode(Kind.SHARE_STATE, state_entry(AT, snapshot(110, 3), 0))
    assert (row["record_type"], row["start_offset"], row["ts"]) == ("snapshot", 110, None)
    assert all(row[name] is None for name in WriteStats._fields if name != "cause")
    letter, data = GroupLogCodec().encode(r.Tombstone(r.MEMBER, "g", "m"), 0)
    row = decode(Kind.GROUP, RawEntry("{gc:0}:log", AT, letter, data))
    assert (row["record_type"], row["tombstone"], row["ts"], row["reason"]) == ("member", True, None, None)


@pytest.mark.rule("PM-16", "PM-20", "X11", "SC-117", "PM-78")
def test_reasons_of_failures_come_back_and_light_rows_have_none() -> None:
    """Of PM-16, only that reasons change none of its columns."""
    failures = (Failure(111, 112, 1, "ValueError: a\n  in pay"), Failure(114, 114, 2, "<b>\u202e\x1b[31m" + "é" * 400))
    for record in (snapshot(110, 3), update(112)):
        plain = decode_page(Kind.SHARE_STATE, [state_entry(AT, record)])
        with_reasons = (
            record._replace(failures=failures)
            if isinstance(record, ShareUpdate)
            else replace(record, failures=failures)
        )
        found = decode_page(Kind.SHARE_STATE, [state_entry(AT, with_reasons)])
        assert plain.to_pylist()[0]["failures"] is None
        assert found.to_pylist()[0]["failures"] == [one._asdict() for one in failures]
        for page in (found, decode_page(Kind.SHARE_STATE, [state_entry(AT, with_reasons)], light=True)):
            others = ["bytes", "failures", "state_batches"]
            assert page.drop_columns(others).equals(plain.drop_columns(others))
        assert page.column("failures").null_count == 1


@pytest.mark.rule("PM-78")
def test_light_rows_have_everything_but_their_state_batches() -> None:
    entries = [
        state_entry(AT, snapshot(110, 3, batches=[StateBatch(111, 112, 0, 1)], stats=WriteStats(CAUSE_ACK, hwm=130))),
        state_entry(AT, update(112, batches=[StateBatch(113, 113, 2, 1)])),
        state_entry(AT, ShareTombstone(KEY)),
        RawEntry(STREAM, AT, "C", claim_record(1, 2, "h:1", "n", 1_234)),
        RawEntry(STREAM, AT, "S", b"\xff"),
    ]
    light = decode_page(Kind.SHARE_STATE, entries, light=True)
    assert light.schema.equals(schema_of(Kind.SHARE_STATE))
    assert light.column("state_batches").null_count == len(entries)
    full = decode_page(Kind.SHARE_STATE, entries)
    assert full.column("state_batches").null_count == 3
    assert light.drop_columns(["state_batches"]).equals(full.drop_columns(["state_batches"]))


@pytest.mark.rule("PM-16")
def test_absent_numbers_are_null() -> None:
    row = decode(Kind.SHARE_STATE, state_entry(AT, update(-1, -1)))
    assert row["start_offset"] is None
    assert row["delivery_complete_count"] is None
    assert row["n_accept"] is None
    assert "state_epoch" not in row
    value = pb.ShareSnapshot(state_epoch=-1, leader_epoch=-1, start_offset=-1, delivery_complete_count=-1)
    key = pb.ShareStateRecord(key=pb.ShareStateRecord.Key(group_id="G1", topic_id=TOPIC), snapshot=value)
    row = decode_page(Kind.SHARE_STATE, [RawEntry(STREAM, AT, "S", key.SerializeToString())]).to_pylist()[0]
    absent = ("ts", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count", "create_ts", "write_ts")
    assert [row[name] for name in absent] == [None] * len(absent)


def test_a_tombstone_has_its_key_only() -> None:
    row = decode(Kind.SHARE_STATE, state_entry(AT, ShareTombstone(KEY)))
    assert (row["record_type"], row["group_id"]) == ("tombstone", "G1")
    assert "start_offset" not in row


@pytest.mark.rule("PM-17", "X1", "X7")
@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            r.MemberMetadata("g", "m", "rack", "c", "h", ("a", "b")),
            {"record_type": "member", "member_id": "m", "rack_id": "rack", "subscribed_topic_names": ["a", "b"]},
        ),
        (r.MemberMetadata("g", "m", None, "c", "h", ()), {"rack_id": None, "client_id": "c", "client_host": "h"}),
        (r.GroupMetadata("g", 7, -5, 3), {"record_type": "group", "group_epoch": 7, "member_count": 3}),
        (r.TargetMetadata("g", 7, 0, {}), {"record_type": "target_meta", "assignment_epoch": 7, "member_id": None}),
        (
            r.TargetMember("g", "m", {TOPIC: (0, 1)}),
            {"record_type": "target_member", "assigned": [(topic_id_text(TOPIC), [0, 1])]},
        ),
        (
            r.CurrentAssignment("g", "m", 4, 3, r.STABLE, {TOPIC: (2,)}),
            {
                "record_type": "current",
                "member_epoch": 4,
                "previous_member_epoch": 3,
                "member_state": 0,
                "assigned": [(topic_id_text(TOPIC), [2])],
            },
        ),
        (
            r.StateMetadata("g", Lifecycle({TOPIC: TopicState(TOPIC, "t", 2, {}, (0, 1))}, {})),
            {"record_type": "state", "initialized": [(topic_id_text(TOPIC), "t", [0, 1])], "deleting": []},
        ),
        (
            r.StateMetadata(
                "g", Lifecycle({TOPIC: TopicState(TOPIC, "t", 2, {3: Initializing(9, 1)})}, {bytes(16): "old"})
            ),
            {
                "initializing": [(topic_id_text(TOPIC), "t", [3])],
                "initialized": [],
                "deleting": [(topic_id_text(bytes(16)), "old")],
            },
        ),
        (
            r.Tombstone(r.GROUP, "g"),
            {"record_type": "group", "member_id": None, "tombstone": True, "reason": None},
        ),
        (
            r.Tombstone(r.MEMBER, "g", "m", "expired"),
            {"record_type": "member", "tombstone": True, "reason": "expired"},
        ),
        (r.ColdCopy(r.GroupMetadata("g", 7, -5, 3)), {"record_type": "group", "cause": 64}),
        (r.DeletedGroup("g", 7, 9), {"record_type": "deleted_group", "group_epoch": 7, "tombstone": False}),
        (r.Tombstone(r.DELETED, "g"), {"record_type": "deleted_group", "tombstone": True}),
    ],
)
def test_group_records_become_rows(record: r.Record, expected: dict[str, object]) -> None:
    letter, data = GroupLogCodec().encode(record, 1_234)
    row = decode(Kind.GROUP, RawEntry("{gc:0}:log", AT, letter, data))
    assert {name: row[name] for name in expected} == expected
    assert (row["ts"], row["group_id"]) == (1_234_000, "g")
    assert decode_page(Kind.GROUP, [RawEntry("{gc:0}:log", AT, letter, data)]).num_rows == 1


@pytest.mark.rule("PM-18", "X1")
def test_a_batch_of_a_topic_log_is_known_by_its_place_only() -> None:
    batch = LogBatch(40, 49, 700, b"payload", 1_234, 1_200, -1, -1, -1, False, False, 0)
    entry = batch_entry(5, batch)
    raw = RawEntry(LOG, EntryId(*entry.id), entry.kind, entry.record)
    row = decode(Kind.LOG_META, raw)
    assert (row["bytes"], row["ts"]) == (700, 1_234_000)
    assert (row["topic_id"], row["partition"]) == (topic_id_text(TOPIC), 3)
    assert (row["base_offset"], row["last_offset"], row["record_count"], row["log_end_offset"]) == (40, 49, 10, 50)
    marker = marker_entry(5, 50, 1_234)
    row = decode(Kind.LOG_META, RawEntry(LOG, EntryId(*marker.id), marker.kind, marker.record))
    assert (row["record_type"], row["log_end_offset"]) == ("marker", 50)


@pytest.mark.rule("PM-13", "X1")
@pytest.mark.parametrize("kind", list(Kind))
def test_claims_and_no_ops_are_rows_of_their_own(kind: Kind) -> None:
    stream = LOG if kind is Kind.LOG_META else STREAM
    claim = decode(kind, RawEntry(stream, AT, "C", claim_record(1, 2, "h:1", "n", 1_234)))
    assert (claim["record_type"], claim["ts"]) == ("claim", 1_234_000)
    noop = decode(kind, RawEntry(stream, AT, "N", noop_record(1_234)))
    assert (noop["record_type"], noop["ts"]) == ("noop", 1_234_000)


@pytest.mark.rule("PM-13")
def test_types_and_versions_of_a_later_build_are_counted() -> None:
    later = pb.ShareStateRecord(record_version=1).SerializeToString()
    for entry in (RawEntry(STREAM, AT, "Z", b"?"), RawEntry(STREAM, AT, "U", later)):
        row = decode(Kind.SHARE_STATE, entry)
        assert row["record_type"] == "unknown"
        assert "later build" in row["error"]


@pytest.mark.rule("PM-5", "PM-68")
@pytest.mark.parametrize(
    "entry",
    [
        RawEntry(STREAM, AT, "S", b"\xff\xff\xff"),
        RawEntry(STREAM, AT, "U", state_entry(AT, snapshot(1)).record),
        RawEntry(STREAM, AT, "S", pb.ShareStateRecord(snapshot=pb.ShareSnapshot()).SerializeToString()),
        RawEntry(STREAM, AT, "T", pb.ShareStateRecord(append_time_ms=2**62).SerializeToString()),
        RawEntry(STREAM, AT, "C", b"\x01"),
    ],
)
def test_bytes_that_are_no_record_are_quarantined(entry: RawEntry) -> None:
    row = decode(Kind.SHARE_STATE, entry)
    assert row["record_type"] == "malformed"
    assert row["error"]
    assert row["raw"] == entry.record
    assert "group_id" not in row


LATER = b"\xfa\x3f\x03new"  # field 1023, which this build does not know
INT = st.integers(0, 2**31 - 1)
LONG = st.integers(0, 2**63 - 1)
OFFSET = st.integers(-1, 2**63 - 1)
COUNT = st.integers(-1, 2**31 - 1)
TIME = st.sampled_from([0, 1, 1_000, 253_402_300_799_999])
KEYS = st.builds(SharePartitionKey, st.text(max_size=5), st.sampled_from([TOPIC, bytes(16)]), INT)
BATCHES = st.lists(st.builds(StateBatch, LONG, LONG, st.integers(0, 4), INT, TIME), max_size=3).map(tuple)
SOME = st.none() | INT
ANY = st.none() | LONG
ARCHIVED = st.lists(st.builds(ArchivedRange, LONG, LONG, INT, INT), max_size=2).map(tuple)
STATS = st.builds(WriteStats, INT, SOME, SOME, SOME, SOME, SOME, SOME, SOME, ANY, ANY, ANY, ANY, SOME, ARCHIVED)
FAILURES = st.lists(st.builds(Failure, LONG, LONG, INT, st.text(max_size=9)), max_size=2).map(tuple)
SNAPSHOTS = st.builds(
    ShareSnapshot, KEYS, INT, COUNT, COUNT, INT, OFFSET, COUNT, TIME, TIME, BATCHES, INT, INT, INT, STATS,
    failures=FAILURES,
)  # fmt: skip
UPDATES = st.builds(ShareUpdate, KEYS, INT, COUNT, INT, OFFSET, COUNT, BATCHES, STATS, FAILURES)
WRITTEN = st.builds(
    state_entry,
    st.builds(EntryId, INT, LONG),
    SNAPSHOTS | UPDATES | st.builds(ShareTombstone, KEYS),
    st.sampled_from([0, 1_000]),
)


def at_us(time_ms: int) -> int | None:
    return time_ms * 1_000 or None


@pytest.mark.rule("PM-16", "PM-20", "PM-68")
@UNHURRIED
@given(SNAPSHOTS | UPDATES, st.sampled_from([b"", LATER]))
def test_a_record_comes_back_as_it_was_written(record: ShareSnapshot | ShareUpdate, unknown: bytes) -> None:
    entry = state_entry(AT, record, 1_234)
    row = decode(Kind.SHARE_STATE, entry._replace(record=entry.record + unknown))
    assert "error" not in row
    key = (row["group_id"], row["topic_id"], row["partition"])
    assert key == (record.key.group_id, topic_id_text(record.key.topic_id), record.key.partition)
    for name in ("snapshot_epoch", "leader_epoch", "start_offset", "delivery_complete_count"):
        written = getattr(record, name)
        assert row[name] == (None if written < 0 else written), name
    assert row["state_batches"] == tuple((*batch[:4], at_us(batch[4])) for batch in record.batches)
    assert {name: row[name] for name in WriteStats._fields} == record.stats._asdict() | {
        "archived": record.stats.archived or None
    }
    if isinstance(record, ShareSnapshot):
        assert row["state_epoch"] == (None if record.state_epoch < 0 else record.state_epoch)
        assert (row["create_ts"], row["write_ts"]) == (at_us(record.create_ms), at_us(record.write_ms))


@st.composite
def spoilt(draw: st.DrawFn) -> RawEntry:
    """A valid entry that was then cut, changed, doubled or given a different type letter."""
    entry = draw(WRITTEN)
    data = bytearray(entry.record)
    how = draw(st.sampled_from(["cut", "change", "twice", "letter"]))
    if how == "cut":
        del data[draw(st.integers(0, len(data))) :]
    elif how == "change":
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    elif how == "twice":
        data += draw(WRITTEN).record
    letter = draw(st.sampled_from("SUTCNZ")) if how == "letter" else entry.letter
    return entry._replace(record=bytes(data), letter=letter)


@pytest.mark.rule("PM-13", "PM-68")
@UNHURRIED
@given(st.lists(WRITTEN | spoilt(), max_size=5), st.booleans())
def test_a_page_has_a_row_for_each_entry_that_is_decoded_alone(entries: list[RawEntry], light: bool) -> None:
    batch = decode_page(Kind.SHARE_STATE, entries, light=light)
    batch.validate(full=True)
    alone = [decode_page(Kind.SHARE_STATE, [entry], light=light).to_pylist()[0] for entry in entries]
    assert batch.to_pylist() == alone
    assert batch.column("entry_id").to_pylist() == [str(entry.id) for entry in entries]


@UNHURRIED
@given(st.sampled_from(list(Kind)), st.sampled_from("SUTCNBMXZ0"), st.binary(max_size=60))
def test_no_bytes_break_a_page(kind: Kind, letter: str, data: bytes) -> None:
    stream = LOG if kind is Kind.LOG_META else STREAM
    batch = decode_page(kind, [RawEntry(stream, AT, {"0": "10"}.get(letter, letter), data)])
    assert batch.num_rows == 1
    batch.validate(full=True)


@pytest.mark.rule("PM-75")
@pytest.mark.parametrize("kind", list(Kind))
def test_every_batch_has_the_very_schema_of_its_kind(kind: Kind) -> None:
    """For a batch of records, an empty one, and one with a gap: Spark compares only the first batch with the declared
    schema."""
    stream = LOG if kind is Kind.LOG_META else STREAM
    claim = RawEntry(stream, AT, "C", claim_record(1, 2, "h:1", "n", 1_234))
    batches = [decode_page(kind, [claim]), decode_page(kind, [])]
    batches.append(to_batch(kind, [gap_row(Gap(stream, EntryId(1, 1), AT, 1, "missing"))]))
    if kind is Kind.SHARE_STATE:
        batches += [decode_page(kind, [state_entry(AT, snapshot(1)), state_entry(AT, update(2))])]
        assert batches[-1].column("ts")[0].as_py() == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert schema_of(kind).field("state_batches").type.value_field.name == "element"
    assert all(batch.schema.equals(schema_of(kind), check_metadata=True) for batch in batches)
    assert schema_of(kind) is schema_of(kind)
    assert schema_of(kind).field("ts").type == pa.timestamp("us", tz="UTC")


@pytest.mark.rule("PM-79")
def test_the_text_of_a_topic_id_is_made_once_for_all_rows_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []

    def text(topic_id: bytes) -> str:
        made.append(topic_id)
        return topic_id_text(topic_id)

    monkeypatch.setattr(values, "topic_id_text", text)
    topic_text.cache_clear()
    topics = [b"topic %010d" % number for number in (1, 2)]
    keys = [SharePartitionKey("g", topic, 0) for topic in topics * 5]
    entries = [state_entry(EntryId(1, seq), update(seq, key=key)) for seq, key in enumerate(keys)]
    batch = decode_page(Kind.SHARE_STATE, entries)
    assert batch.column("topic_id").to_pylist() == [topic_id_text(key.topic_id) for key in keys]
    assert made == topics
    topic_text.cache_clear()


@pytest.mark.rule("PM-5", "PM-11")
@pytest.mark.parametrize("kind", list(Kind))
def test_an_id_beyond_the_columns_breaks_no_page(kind: Kind) -> None:
    at, stream = EntryId(2**64 - 1, 2**63), LOG if kind is Kind.LOG_META else STREAM
    row = decode_page(kind, [RawEntry(stream, at, "C", claim_record(1, 2, "h:1", "n", 1_234))]).to_pylist()[0]
    assert (row["record_type"], row["epoch"], row["seq"]) == ("malformed", 2**63 - 1, 2**63 - 1)
    assert str(at) in row["error"]
    gap = to_batch(kind, [gap_row(Gap(stream, EntryId(1, 1), at, 1, "missing"))]).to_pylist()[0]
    assert (gap["entry_id"], gap["seq"]) == (str(at), 2**63 - 1)


@pytest.mark.rule("PM-11")
def test_a_gap_is_a_row_too() -> None:
    gap = Gap(STREAM, EntryId(1, 4), EntryId(2, 0), 3, "trimmed")
    row = to_batch(Kind.GROUP, [gap_row(gap)]).to_pylist()[0]
    assert (row["record_type"], row["entry_id"], row["stream"]) == ("gap", "2-0", STREAM)
    assert json.loads(row["error"])["lost"] == 3
