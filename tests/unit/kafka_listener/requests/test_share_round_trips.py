"""Answers to share groups' requests as kio reads them, to the last byte, and requests as kio writes them."""

from __future__ import annotations

import asyncio
import datetime
import importlib
import io
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message
from kio.serial import entity_reader, entity_writer

from kafka_listener.messages.apis import api
from kafka_listener.ports import Broker, Paced
from kafka_listener.requests.table import HANDLERS
from kip932.api.v1 import (
    alter_share_group_offsets_pb2,
    delete_groups_pb2,
    delete_share_group_offsets_pb2,
    describe_share_group_offsets_pb2,
    list_groups_pb2,
    share_acknowledge_pb2,
    share_fetch_pb2,
    share_group_describe_pb2,
    share_group_heartbeat_pb2,
)
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from shard_runtime.rpc.binding import snake_case
from tests.unit.kafka_listener.requests.share_connections import Scripted

ID = "aaaaaaaaaaaaaaaa"
#: What the node answers, by API: full, with an error here and there.
RESULTS: dict[str, tuple[type[Message], str]] = {
    "ShareGroupHeartbeat": (
        share_group_heartbeat_pb2.ShareGroupHeartbeatResponse,
        f"member_id: 'm' member_epoch: 3 heartbeat_interval_ms: 5000 "
        f"assignment {{ topic_partitions {{ topic_id: '{ID}' partitions: [0, 1] }} }}",
    ),
    "ShareGroupDescribe": (
        share_group_describe_pb2.ShareGroupDescribeResponse,
        f"groups {{ group_id: 'g' group_state: 'Stable' members {{ member_id: 'm' client_id: 'c' "
        f"subscribed_topic_names: 't' assignment {{ topic_partitions {{ topic_id: '{ID}' topic_name: 't' }} }} }} }} "
        f"groups {{ group_id: 'h' error_code: ERROR_CODE_GROUP_ID_NOT_FOUND error_message: 'no' }}",
    ),
    "ListGroups": (
        list_groups_pb2.ListGroupsResponse,
        "groups { group_id: 'g' protocol_type: 'share' group_state: 'Empty' group_type: 'share' members: 0 }",
    ),
    "DeleteGroups": (
        delete_groups_pb2.DeleteGroupsResponse,
        "results { group_id: 'g' } results { group_id: 'h' error_code: ERROR_CODE_NON_EMPTY_GROUP }",
    ),
    "DescribeShareGroupOffsets": (
        describe_share_group_offsets_pb2.DescribeShareGroupOffsetsResponse,
        f"groups {{ group_id: 'g' topics {{ topic_name: 't' topic_id: '{ID}' partitions {{ start_offset: 5 lag: 7 }} "
        f"}} }} groups {{ group_id: 'h' error_code: ERROR_CODE_NOT_COORDINATOR error_message: 'no' }}",
    ),
    "AlterShareGroupOffsets": (
        alter_share_group_offsets_pb2.AlterShareGroupOffsetsResponse,
        f"responses {{ topic_name: 't' topic_id: '{ID}' partitions {{ }} }}",
    ),
    "DeleteShareGroupOffsets": (
        delete_share_group_offsets_pb2.DeleteShareGroupOffsetsResponse,
        f"responses {{ topic_name: 't' topic_id: '{ID}' }}",
    ),
    "ShareAcknowledge": (
        share_acknowledge_pb2.ShareAcknowledgeResponse,
        f"acquisition_lock_timeout_ms: 9 responses {{ topic_id: '{ID}' partitions {{ partition_index: 1 }} "
        f"partitions {{ error_code: ERROR_CODE_NOT_LEADER_OR_FOLLOWER "
        f"current_leader {{ leader_id: 2 leader_epoch: 8 }} }} }}",
    ),
    "ShareFetch": (
        share_fetch_pb2.ShareFetchResponse,
        f"acquisition_lock_timeout_ms: 9 responses {{ topic_id: '{ID}' partitions {{ records {{ base_offset: 4 "
        "count: 3 } acquired_records { first_offset: 4 last_offset: 6 delivery_count: 2 } } "
        "partitions { partition_index: 1 error_code: ERROR_CODE_NOT_LEADER_OR_FOLLOWER "
        "current_leader { leader_id: 2 leader_epoch: 8 } } }",
    ),
}
CASES = [
    (handler.api, version)
    for handler in HANDLERS.values()
    if handler.api in RESULTS
    for version in handler.versions_offered
]


def kio_class(name: str, version: int, direction: str) -> Any:
    module = importlib.import_module(f"kio.schema.{snake_case(name)}.v{version}.{direction}")
    return getattr(module, name + direction.capitalize())


def answered(name: str, version: int, request: Any) -> tuple[Message, Any]:
    """Return what was asked of the node, and the answer as kio reads it."""
    kind, text = RESULTS[name]
    result = text_format.Parse(text, kind())
    if isinstance(result, share_fetch_pb2.ShareFetchResponse):
        batch = RecordBatch(records=[Record(value=b"v")] * 3).SerializeToString()
        result.responses[0].partitions[0].records[0].batch = batch
    one, connection = api(name), Scripted(result, Broker(2, "b", 9094, "r"))

    async def answering() -> Any:
        return await HANDLERS[one.key].answer(request, version, connection)

    answer = asyncio.run(answering())
    data = b"".join(one.encode_response(version, answer.response if isinstance(answer, Paced) else answer))
    value, size = entity_reader(kio_class(name, version, "response"))(data, 0)
    assert size == len(data), "bytes are left over"
    [asked] = connection.requests
    return asked, value


@pytest.mark.rule("KL-70")
@pytest.mark.parametrize(("name", "version"), CASES)
def test_kio_reads_each_answer_to_the_last_byte(name: str, version: int) -> None:
    one = api(name)
    request = one.request(group_ids=["g", "h"]) if name == "ShareGroupDescribe" else one.request()
    _, value = answered(name, version, request)
    found = next(
        rows for field in ("responses", "groups", "results", "assignment") if (rows := getattr(value, field, None))
    )
    assert found
    if name == "ShareFetch":
        [topic] = value.responses
        fetched, moved = topic.partitions
        assert (len(fetched.acquired_records), moved.current_leader.leader_id) == (1, 2)
        assert [each.port for each in value.node_endpoints] == [9094]


#: Values of requests' fields, by kio's names and by ours: the same value for a field in all requests that have it.
WRITTEN: dict[str, Any] = {
    "group_id": "g", "member_id": "m", "group_ids": ("g", "h"), "groups_names": ("g",), "groups": (), "topics": (),
    "include_authorized_operations": True, "member_epoch": 3, "share_session_epoch": 4, "min_bytes": 1,
    "max_wait": datetime.timedelta(milliseconds=250), "max_records": 9, "batch_size": 8, "forgotten_topics_data": (),
}  # fmt: skip
ASKED = {name: value for name, value in WRITTEN.items() if value != () and name != "max_wait"} | {"max_wait_ms": 250}


@pytest.mark.rule("KL-70")
@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_request_that_kio_has_written_is_asked_of_the_node(name: str, version: int) -> None:
    kind, buffer = kio_class(name, version, "request"), io.BytesIO()
    entity_writer(kind)(buffer, kind(**{key: WRITTEN[key] for key in WRITTEN if key in kind.__dataclass_fields__}))
    asked, _ = answered(name, version, api(name).decode_request(version, buffer.getvalue()))
    written = kind.__dataclass_fields__.keys() | ({"max_wait_ms"} if "max_wait" in kind.__dataclass_fields__ else set())
    found = {field.name: value for field, value in asked.ListFields() if field.name in ASKED}
    assert found.keys() == written & ASKED.keys()
    for key, value in found.items():
        assert value == (list(ASKED[key]) if isinstance(ASKED[key], tuple) else ASKED[key])
