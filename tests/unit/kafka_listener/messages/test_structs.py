"""The classes of messages: names, defaults, equality."""

from __future__ import annotations

import pytest

from kafka_listener.messages.apis import APIS, api
from kafka_listener.messages.fields import entries
from kafka_listener.messages.structs import classes_of
from tests.support.kafka_values import DIRECTIONS


@pytest.mark.rule("KL-31")
def test_fields_have_kafkas_names_and_defaults() -> None:
    request = api("Fetch").request(min_bytes=1)
    assert (request.min_bytes, request.max_bytes, request.session_epoch, request.rack_id) == (1, 0x7FFFFFFF, -1, "")
    assert (request.cluster_id, request.topics, request.replica_state.replica_epoch) == (None, [], -1)
    response = api("ShareGroupHeartbeat").response()
    assert (response.throttle_time_ms, response.error_message, response.assignment) == (0, None, None)
    assert api("Metadata").request().allow_auto_topic_creation is True
    assert api("Metadata").request.MetadataRequestTopic().topic_id == bytes(16)


@pytest.mark.rule("KL-31")
def test_records_are_null_by_default_where_they_may_be() -> None:
    assert api("Fetch").response.PartitionData().records is None
    assert api("ShareFetch").response.PartitionData().records == b""


@pytest.mark.rule("KL-31")
def test_nested_structs_are_attributes_of_the_message() -> None:
    response = api("ShareFetch").response
    partition = response.PartitionData(3, error_code=6, acquired_records=[response.AcquiredRecords(1, 2, 3)])
    assert (partition.partition_index, partition.error_code, partition.acquired_records[0].delivery_count) == (3, 6, 3)
    assert repr(response.AcquiredRecords(1, 2, 3)) == (
        "ShareFetchResponse.AcquiredRecords(first_offset=1, last_offset=2, delivery_count=3)"
    )


def test_an_unknown_field_is_refused() -> None:
    response = api("ShareFetch").response
    with pytest.raises(TypeError, match="throttle_time"):
        response(throttle_time=1)
    with pytest.raises(AttributeError):
        response().throttle_time = 1


def test_arrays_and_structs_are_made_for_each_message() -> None:
    first, second = api("Fetch").response.PartitionData(), api("Fetch").response.PartitionData()
    first.current_leader.leader_id = 7
    first.aborted_transactions.append(1)
    assert (second.current_leader.leader_id, second.aborted_transactions) == (-1, [])


def test_structs_are_equal_when_their_fields_are() -> None:
    request, response = api("ShareFetch").request, api("ShareFetch").response
    assert request.ForgottenTopic(b"a" * 16, [1]) == request.ForgottenTopic(b"a" * 16, [1])
    assert request.ForgottenTopic(b"a" * 16, [1]) != request.ForgottenTopic(b"a" * 16, [2])
    assert request() != response()
    assert request() != 1


def test_a_field_that_cannot_be_an_attribute_is_refused() -> None:
    table = "Example 7 versions 0 flexible never\n  request\n    class int8\n  response\n    a int8\n"
    with pytest.raises(ValueError, match=r"ExampleRequest.*'class'"):
        classes_of(next(entries(table)).message("request"))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_message_has_its_class(direction: str) -> None:
    for one in APIS.values():
        value = getattr(one, direction)()
        assert type(value).__name__ == one.name + direction.capitalize()
        assert set(type(value).__slots__) == {field.name for field in one.message(direction).shape.fields}
