"""Share state as Kafka's formatter writes it: our records, compared with the lines that a Kafka broker's tools
printed."""

from __future__ import annotations

import json

import pytest

from kip932.ids import parse_topic_id
from kip932.records.v1.share_state_log_pb2 import ShareSnapshot, ShareStateRecord, ShareUpdate
from kip932.records.v1.state_batch_pb2 import Failure, StateBatch
from shard_runtime.record_log.protocol import Entry, ShardKind, StreamId
from share_node.state.dump import describe
from share_node.state.reading import as_kafka_has_it

TOPIC = "F7er0OF_S6CW0x4ax6u5Ng"
KEY = ShareStateRecord.Key(group_id="tt-con", topic_id=parse_topic_id(TOPIC), partition=0)
NEW = ShareSnapshot(
    state_epoch=17, start_offset=-1, create_timestamp=1795397037330, write_timestamp=1795397037330, generation=3
)
RESET = ShareSnapshot(
    snapshot_epoch=1, state_epoch=8, delivery_complete_count=0,
    create_timestamp=1795396977390, write_timestamp=1795396977390,
)  # fmt: skip
MOVED = ShareUpdate(
    snapshot_epoch=1, leader_epoch=2, start_offset=4, delivery_complete_count=2, generation=7,
    state_batches=[StateBatch(first_offset=4, last_offset=5, delivery_state=4, delivery_count=4)],
)  # fmt: skip


def entry(kind: str, **value: ShareSnapshot | ShareUpdate) -> Entry:
    return Entry(StreamId(7, 1), kind, ShareStateRecord(key=KEY, append_time_ms=5, **value).SerializeToString())  # type: ignore[arg-type] # one of the two


@pytest.mark.rule("CT-96")
@pytest.mark.parametrize(
    ("stored", "line"),
    [
        (
            entry("S", snapshot=NEW),
            '{"key":{"type":0,"data":{"groupId":"tt-con","topicId":"F7er0OF_S6CW0x4ax6u5Ng","partition":0}},'
            '"value":{"version":0,"data":{"snapshotEpoch":0,"stateEpoch":17,"leaderEpoch":0,"startOffset":-1,'
            '"createTimestamp":1795397037330,"writeTimestamp":1795397037330,"stateBatches":[]}}}',
        ),
        (
            entry("S", snapshot=RESET),
            '{"key":{"type":0,"data":{"groupId":"tt-con","topicId":"F7er0OF_S6CW0x4ax6u5Ng","partition":0}},'
            '"value":{"version":0,"data":{"snapshotEpoch":1,"stateEpoch":8,"leaderEpoch":0,"startOffset":0,'
            '"deliveryCompleteCount":0,"createTimestamp":1795396977390,"writeTimestamp":1795396977390,'
            '"stateBatches":[]}}}',
        ),
        (
            entry("U", update=MOVED),
            '{"key":{"type":1,"data":{"groupId":"tt-con","topicId":"F7er0OF_S6CW0x4ax6u5Ng","partition":0}},'
            '"value":{"version":0,"data":{"snapshotEpoch":1,"leaderEpoch":2,"startOffset":4,"deliveryCompleteCount":2,'
            '"stateBatches":[{"firstOffset":4,"lastOffset":5,"deliveryState":4,"deliveryCount":4}]}}}',
        ),
        (
            entry("T"),
            '{"key":{"type":0,"data":{"groupId":"tt-con","topicId":"F7er0OF_S6CW0x4ax6u5Ng","partition":0}},'
            '"value":null}',
        ),
    ],
    ids=["new snapshot", "snapshot of a reset", "update", "tombstone"],
)
def test_records_are_written_as_kafka_writes_them(stored: Entry, line: str) -> None:
    assert json.dumps(as_kafka_has_it(stored), separators=(",", ":")) == line


@pytest.mark.rule("CT-96", "SC-117")
@pytest.mark.parametrize(("letter", "name", "kind"), [("S", "snapshot", ShareSnapshot), ("U", "update", ShareUpdate)])
def test_reasons_of_failures_are_shown_but_not_in_kafkas_form(
    letter: str, name: str, kind: type[ShareSnapshot] | type[ShareUpdate]
) -> None:
    reason = Failure(first_offset=4, last_offset=5, delivery_count=2, reason="KeyError: 'a'\x1b[2J")
    stored = entry(letter, **{name: kind(start_offset=4, failures=[reason])})
    line = json.dumps(describe("{sgs:7}:log", stored, ShardKind.SHARE_STATE))
    assert json.loads(line)["record"][name]["failures"] == [
        {"first_offset": "4", "last_offset": "5", "delivery_count": 2, "reason": "KeyError: 'a'\x1b[2J"}
    ]
    assert line.isprintable()
    assert as_kafka_has_it(stored) == as_kafka_has_it(entry(letter, **{name: kind(start_offset=4)}))


@pytest.mark.rule("CT-96")
def test_what_kafka_has_not_is_left_out_and_what_cannot_be_read_is_reported() -> None:
    assert as_kafka_has_it(entry("C")) is None
    assert as_kafka_has_it(entry("N")) is None
    for stored, why in (
        (entry("U", update=MOVED)._replace(damage="its checksum differs"), "its checksum differs"),
        (entry("Z"), "its type 'Z' is not known to this build"),
        (entry("S")._replace(record=b"\xff\xff"), "it cannot be read"),
    ):
        with pytest.raises(ValueError, match=why):
            as_kafka_has_it(stored)
