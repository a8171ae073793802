"""Writers: bytes that Kafka's own classes write, parts, and what cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_listener.messages.apis import Api, api
from kafka_listener.messages.errors import UnwritableMessageError

TOPIC_ID = bytes(range(16))


def golden() -> Iterator[tuple[str, str, int, Any, str]]:
    """Messages, and the bytes that the classes of Kafka 4.4.0 write for them."""
    versions = api("ApiVersions").response
    yield "ApiVersions", "request", 3, api("ApiVersions").request("app", "1.0"), "04617070 04312e30 00"
    keys = [versions.ApiVersion(0, 0, 13), versions.ApiVersion(78, 1, 2)]
    value = versions(35, keys, 5, [], 9, [versions.FinalizedFeatureKey("share.version", 1, 1)])
    yield "ApiVersions", "response", 0, value, "0023 00000002 0000 0000 000d 004e 0001 0002"
    with_tags = "0023 03 0000 0000 000d 00 004e 0001 0002 00 00000005 02 01 08 0000000000000009"
    yield "ApiVersions", "response", 4, value, f"{with_tags} 02 14 02 0e 73686172652e76657273696f6e 0001 0001 00"
    yield "Metadata", "request", 0, api("Metadata").request(), "00000000"
    yield "Metadata", "request", 4, api("Metadata").request(topics=None), "ffffffff 01"


def golden_of_groups() -> Iterator[tuple[str, str, int, Any, str]]:
    """The same, of share groups."""
    heartbeat, fetch = api("ShareGroupHeartbeat").response, api("ShareFetch")
    assignment = heartbeat.Assignment([heartbeat.TopicPartitions(TOPIC_ID, [0, 5])])
    start = "00000000 0000 00 026d 00000003 00001388"
    one = f"02 {TOPIC_ID.hex()} 03 00000000 00000005 00"
    yield (
        "ShareGroupHeartbeat",
        "response",
        1,
        heartbeat(0, 0, None, "m", 3, 5_000, assignment),
        f"{start} 01 {one} 00 00",
    )
    yield "ShareGroupHeartbeat", "response", 1, heartbeat(0, 0, None, "m", 3, 5_000, None), f"{start} ff 00"
    batch = fetch.request.AcknowledgementBatch(10, 11, [1, 2])
    topic = fetch.request.FetchTopic(TOPIC_ID, [fetch.request.FetchPartition(1, [batch])])
    value = fetch.request("g", "m", 1, 500, 1, 9, 8, 7, topics=[topic])
    start = "0267 026d 00000001 000001f4 00000001 00000009 00000008 00000007"
    one = f"02 {TOPIC_ID.hex()} 02 00000001 02 000000000000000a 000000000000000b 03 01 02 00 00 00"
    yield "ShareFetch", "request", 1, value, f"{start} {one} 01 00"
    ranges = [fetch.response.AcquiredRecords(10, 19, 1), fetch.response.AcquiredRecords(25, 25, 2)]
    data = fetch.response.PartitionData(2, records=b"rr", acquired_records=ranges)
    topics = [fetch.response.ShareFetchableTopicResponse(TOPIC_ID, [data])]
    value = fetch.response(acquisition_lock_timeout_ms=30_000, responses=topics)
    acquired = "03 000000000000000a 0000000000000013 0001 00 0000000000000019 0000000000000019 0002 00"
    one = f"02 {TOPIC_ID.hex()} 02 00000002 0000 00 0000 00 00000000 00000000 00 03 7272 {acquired} 00 00"
    yield "ShareFetch", "response", 2, value, f"00000000 0000 00 00007530 {one} 01 00"


def golden_of_records() -> Iterator[tuple[str, str, int, Any, str]]:
    """The same, with a tagged struct and a tagged array in the newer version."""
    produce = api("Produce").response
    leader = produce.LeaderIdAndEpoch(4, 6)
    partition = produce.PartitionProduceResponse(1, 6, -1, error_message="moved", current_leader=leader)
    topics = [produce.TopicProduceResponse(name="t", partition_responses=[partition])]
    value = produce(topics, node_endpoints=[produce.NodeEndpoint(4, "h", 9092)])
    start = "00000001 0001 74 00000001 00000001 0006"
    yield "Produce", "response", 3, value, f"{start} ffffffffffffffff ffffffffffffffff 00000000"
    offsets = "ffffffffffffffff ffffffffffffffff ffffffffffffffff"
    one = f"02 02 74 02 00000001 0006 {offsets} 01 06 6d6f766564 01 00 09 00000004 00000006 00 00"
    yield "Produce", "response", 12, value, f"{one} 00000000 01 00 0d 02 00000004 02 68 00002384 00 00"


@pytest.mark.rule("KL-30", "KL-32")
@pytest.mark.parametrize(
    ("name", "direction", "version", "value", "data"), [*golden(), *golden_of_groups(), *golden_of_records()]
)
def test_messages_have_the_bytes_of_kafkas_own_classes(
    name: str, direction: str, version: int, value: Any, data: str
) -> None:
    assert b"".join(getattr(api(name), f"encode_{direction}")(version, value)).hex() == data.replace(" ", "")


def parts(one: Api, version: int, records: Any) -> list[bytes]:
    partition = one.response.PartitionData(records=records)
    topic = one.response.FetchableTopicResponse(partitions=[partition])
    return one.encode_response(version, one.response(responses=[topic]))


@pytest.mark.rule("KL-32")
@pytest.mark.parametrize("version", [11, 12])
def test_records_become_parts_of_their_own_and_are_not_copied(version: int) -> None:
    fetch = api("Fetch")
    one, two = b"1" * 1_000, memoryview(b"2" * 10)
    assert parts(fetch, version, one)[1] is one
    assert [id(part) for part in parts(fetch, version, [one, two])[1:3]] == [id(one), id(two)]
    whole = fetch.decode_response(version, b"".join(parts(fetch, version, [one, two])))
    assert whole.responses[0].partitions[0].records == one + two


@pytest.mark.rule("KL-32")
@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize(
    ("records", "held"), [(None, None), (b"", b""), ([], b""), ([b""], b""), (b"x", b"x"), ((), b"")]
)
def test_no_records_and_one_byte_of_them_differ(version: int, records: Any, held: bytes | None) -> None:
    data = b"".join(parts(api("Fetch"), version, records))
    assert api("Fetch").decode_response(version, data).responses[0].partitions[0].records == held


@pytest.mark.rule("KL-32")
def test_fields_that_a_version_does_not_have_are_left_out() -> None:
    coordinators = [api("FindCoordinator").response.Coordinator("g", 1)]
    value = api("FindCoordinator").response(node_id=7, coordinators=coordinators, error_message="why")
    for version, held in ((0, (7, [], "")), (1, (7, [], "why")), (4, (0, coordinators, ""))):
        data = b"".join(api("FindCoordinator").encode_response(version, value))
        read = api("FindCoordinator").decode_response(version, data)
        assert (read.node_id, read.coordinators, read.error_message) == held


@pytest.mark.rule("KL-32")
def test_tagged_fields_with_their_defaults_are_left_out() -> None:
    request = api("Fetch").request
    plain = b"".join(api("Fetch").encode_request(15, request()))
    state = request.ReplicaState(-1, -1)
    assert b"".join(api("Fetch").encode_request(15, request(replica_state=state, cluster_id=None))) == plain
    state.replica_epoch = 3
    data = b"".join(api("Fetch").encode_request(15, request(replica_state=state)))
    assert data == plain[:-1] + bytes.fromhex("01 01 0d ffffffff 0000000000000003 00")


@pytest.mark.rule("KL-32")
@pytest.mark.parametrize(
    ("version", "fields", "found"),
    [
        (12, {"cluster_id": "x" * 32_768}, "32768 bytes"),
        (4, {"topics": None}, "NoneType"),
        (4, {"max_bytes": 1 << 31}, "FetchRequest 4 cannot be written"),
        (4, {"min_bytes": None}, "integer"),
        (11, {"rack_id": None}, "NoneType"),
        (11, {"rack_id": b"rack"}, "encode"),
        (11, {"rack_id": "x" * 32_768}, "FetchRequest 11 cannot be written"),
        (13, {"topics": [api("Fetch").request.FetchTopic(topic_id=b"short")]}, "a uuid has 5 bytes"),
        (12, {"topics": [1]}, "FetchRequest 12 cannot be written"),
    ],
)
def test_what_a_field_cannot_hold_is_not_written(version: int, fields: dict[str, Any], found: str) -> None:
    with pytest.raises(UnwritableMessageError, match=found):
        api("Fetch").encode_request(version, api("Fetch").request(**fields))


def test_a_message_of_many_values_is_joined_to_several_parts_in_their_order_also_in_a_tagged_array() -> None:
    produce = api("Produce").response
    partitions = [produce.PartitionProduceResponse(index=number, error_message="why") for number in range(6_000)]
    endpoints = [produce.NodeEndpoint(node_id=number, host=f"h{number}", port=9) for number in range(6_000)]
    topics = [produce.TopicProduceResponse(name=name, partition_responses=partitions) for name in ("a", "b")]
    value = produce(responses=topics, throttle_time_ms=7, node_endpoints=endpoints)
    parts = api("Produce").encode_response(12, value)
    assert len(parts) > 2
    assert api("Produce").decode_response(12, b"".join(parts)) == value


def test_a_message_is_written_in_steps_and_whole_when_they_end() -> None:
    metadata = api("Metadata").response
    value = metadata(topics=[metadata.MetadataResponseTopic(name=f"t{number}") for number in range(50)])
    parts: list[bytes] = []
    steps = sum(1 for _ in api("Metadata").response_steps(9, value, parts))
    assert steps >= 50
    assert parts == api("Metadata").encode_response(9, value)


def test_a_value_that_cannot_be_written_is_found_in_its_step() -> None:
    metadata = api("Metadata").response
    value = metadata(topics=[metadata.MetadataResponseTopic(name="t"), metadata.MetadataResponseTopic(name=7)])
    steps = api("Metadata").response_steps(9, value, [])
    next(steps)
    with pytest.raises(UnwritableMessageError, match="MetadataResponse 9"):
        next(steps)
