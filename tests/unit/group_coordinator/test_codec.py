"""Records come back from the group log as they were written."""

from __future__ import annotations

import pytest

from group_coordinator.codec import CAUSE_COLD, GroupLogCodec
from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import UNKNOWN_NAME, Initializing, Lifecycle, TopicState
from kip932.records.v1 import group_log_pb2 as pb
from tests.support.group_driver import persisted

T, U, V = (bytes([number]) * 16 for number in (1, 2, 3))
LIFECYCLE = Lifecycle(
    {
        T: TopicState(T, "t", 2, {2: Initializing(0, 9, 5, 7), 3: Initializing(0, 11, 5, 7)}, (0, 1)),
        U: TopicState(U, "u", 1, {0: Initializing(-1, None, 5, 7)}),
    },
    {V: "v"},
)
RECORDS: list[tuple[str, r.Record]] = [
    ("10", r.MemberMetadata("g", "m", None, "client", "127.0.0.1", ("a", "b"))),
    ("10", r.MemberMetadata("g", "m", "rack", "client", "127.0.0.1", ())),
    ("11", r.GroupMetadata("g", 7, -5, 3)),
    ("12", r.TargetMetadata("g", 7, 1_700_000_000_000, {T: (0,)})),
    ("12", r.TargetMetadata("g", 7, 0, {}, "shared:3")),
    ("13", r.TargetMember("g", "m", {T: (0, 1), U: (3,)})),
    ("13", r.TargetMember("g", "m", {})),
    ("14", r.CurrentAssignment("g", "m", 4, 3, r.STABLE, {T: (0, 1)})),
    ("15", r.StateMetadata("g", LIFECYCLE)),
    ("15", r.StateMetadata("g", Lifecycle())),
    ("14", r.Tombstone(r.CURRENT, "g", "m", "expired")),
    ("11", r.Tombstone(r.GROUP, "g")),
    ("15", r.StateMetadata("g", Lifecycle(deleting={V: UNKNOWN_NAME}, dropping=True))),
    ("90", r.DeletedGroup("g", 7, 1_700_000_000_000)),
    ("90", r.Tombstone(r.DELETED, "g")),
    ("91", r.ServedTime(86_400_000)),
    ("11", r.GroupMetadata("g", 7, -5, 0, 0)),
]


@pytest.mark.rule("CM-16", "GC-59a", "GC-63", "GC-69a", "GC-73", "X6", "X7", "OP-7", "OP-8")
@pytest.mark.parametrize(("kind", "record"), RECORDS)
def test_a_record_comes_back_without_what_is_kept_in_memory_only(kind: str, record: r.Record) -> None:
    codec = GroupLogCodec()
    found, data = codec.encode(record, 1_234)
    assert found == kind
    assert codec.decode(found, data) == persisted(record)
    assert pb.GroupRecord.FromString(data).append_time_ms == 1_234


@pytest.mark.rule("CM-18")
def test_a_cold_copy_is_marked_and_reads_as_the_record_itself() -> None:
    codec = GroupLogCodec()
    record = r.GroupMetadata("g", 7, -5, 3)
    kind, data = codec.encode(r.ColdCopy(record), 1)
    assert pb.GroupRecord.FromString(data).cause == CAUSE_COLD
    assert codec.decode(kind, data) == record


@pytest.mark.rule("CM-16")
def test_what_this_build_does_not_know_is_skipped_and_broken_bytes_are_not() -> None:
    codec = GroupLogCodec()
    assert codec.decode("92", b"") is None
    assert codec.decode("11", pb.GroupRecord(record_version=1).SerializeToString()) is None
    with pytest.raises(ValueError, match="not a GroupRecord"):
        codec.decode("11", b"\xff\xff")
    with pytest.raises(ValueError, match="expected group_metadata"):
        codec.decode("11", pb.GroupRecord(member_metadata=pb.ShareGroupMemberMetadata()).SerializeToString())
