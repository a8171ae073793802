"""An entry as `state dump` prints it."""

from __future__ import annotations

import pytest

from kip932.records.v1.group_log_pb2 import GroupRecord
from shard_runtime.record_log.protocol import Entry, ShardKind, StreamId
from share_node.state.dump import describe

STREAM = "{gc:7}:log"


@pytest.mark.rule("CM-101", "CM-16")
def test_a_damaged_entry_is_shown_as_one_and_bytes_that_are_no_record_as_bytes() -> None:
    whole = Entry(StreamId(7, 1), "10", GroupRecord(append_time_ms=5).SerializeToString())
    shown = describe(STREAM, whole, ShardKind.GROUP)
    assert shown == {"stream": STREAM, "id": "7-1", "type": "10", "record": {"append_time_ms": "5"}}
    damaged = describe(STREAM, whole._replace(damage="its checksum differs"), ShardKind.GROUP)
    assert damaged == {**shown, "damaged": "its checksum differs"}
    broken = describe(STREAM, whole._replace(record=b"\xff\xff"), ShardKind.GROUP)
    assert isinstance(broken["record"], dict)
    assert broken["record"]["bytes"] == "ffff"
