"""Readers: what they refuse, what they skip, and what a message may cost."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_listener.messages.apis import APIS, Api, api
from kafka_listener.messages.errors import MalformedMessageError, TooManyElementsError
from kafka_listener.messages.wire import ELEMENTS_MAX, TAGS_MAX, varint
from tests.support.kafka_values import damaged, full

METADATA, FETCH, SHARE_FETCH = api("Metadata"), api("Fetch"), api("ShareFetch")
#: Damaged messages of one test of all APIs.
FUZZED = 20_000


def encoded(one: Api, version: int, value: Any) -> bytes:
    return b"".join(one.encode_request(version, value))


def refused(found: str, one: Api, version: int, data: str) -> None:
    with pytest.raises(MalformedMessageError, match=found):
        one.decode_request(version, bytes.fromhex(data))


@pytest.mark.rule("KL-33")
def test_bytes_after_a_request_are_passed_over_and_after_a_response_refused() -> None:
    data = encoded(METADATA, 9, METADATA.request())
    assert METADATA.decode_request(9, data + bytes(2)) == METADATA.request()
    answer = b"".join(METADATA.encode_response(9, METADATA.response()))
    with pytest.raises(MalformedMessageError, match="MetadataResponse 9: 2 bytes are left over"):
        METADATA.decode_response(9, answer + bytes(2))


@pytest.mark.rule("KL-33")
def test_every_cut_message_is_refused() -> None:
    for one in APIS.values():
        for version in {one.versions.start, one.versions[-1]}:
            for decode, encode, direction in (
                (one.decode_request, one.encode_request, "request"),
                (one.decode_response, one.encode_response, "response"),
            ):
                data = b"".join(encode(version, full(one, direction, version)))
                for size in range(len(data)):
                    with pytest.raises(MalformedMessageError):
                        decode(version, data[:size])


def test_a_message_begins_where_its_header_ends() -> None:
    data = encoded(METADATA, 9, METADATA.request(topics=None))
    assert METADATA.decode_request(9, b"head" + data, 4).topics is None


@pytest.mark.rule("KL-33")
@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, "00000002 0000"),  # two topics in two bytes, each takes two at least
        (1, "7fffffff 0000"),
        (9, "04 0100 00"),  # three topics in three bytes, each takes two at least
        (9, "ffffffff07 00"),
    ],
)
def test_a_count_above_the_bytes_left_is_refused_before_a_list_is_made(version: int, data: str) -> None:
    refused("elements announced, in the", METADATA, version, data)


@pytest.mark.rule("KL-33")
def test_a_null_is_refused_where_none_may_be() -> None:
    refused("topics is null", METADATA, 0, "ffffffff")
    refused("topics.name is null", METADATA, 1, "00000001 ffff")
    refused("topics.name is null", METADATA, 9, "02 00 00 00 00 00 00")
    assert METADATA.decode_request(1, bytes.fromhex("ffffffff")).topics is None


@pytest.mark.rule("KL-33")
def test_a_negative_length_other_than_that_of_null_is_refused() -> None:
    refused("length -2", METADATA, 1, "fffffffe")
    refused("length -2", METADATA, 1, "00000001 fffe")
    refused("length -32768", api("FindCoordinator"), 0, "8000")


@pytest.mark.rule("KL-33")
def test_text_that_is_not_utf_8_is_refused() -> None:
    refused("utf-8", api("FindCoordinator"), 0, "0002 c328")


@pytest.mark.rule("KL-33")
def test_a_string_above_the_largest_is_refused() -> None:
    request = api("EndTxn").request
    data = encoded(api("EndTxn"), 3, request(transactional_id="x" * 32767))
    assert api("EndTxn").decode_request(3, data).transactional_id == "x" * 32767
    longer = varint(32769) + b"x" * 32768 + data[-12:]
    with pytest.raises(MalformedMessageError, match="32768 bytes announced"):
        api("EndTxn").decode_request(3, longer)


@pytest.mark.rule("KL-33")
def test_a_length_of_more_than_five_bytes_is_refused() -> None:
    refused("five bytes", METADATA, 9, "ffffffffffff01")


@pytest.mark.rule("KL-33")
def test_a_tagged_field_has_its_announced_size() -> None:
    data = encoded(FETCH, 12, FETCH.request(cluster_id="abc"))
    assert data.endswith(bytes([1, 0, 4, 4]) + b"abc")
    assert FETCH.decode_request(12, data).cluster_id == "abc"
    with pytest.raises(MalformedMessageError, match="tagged field cluster_id has 4 bytes where 3 were announced"):
        FETCH.decode_request(12, data[:-5] + bytes([3, 4]) + b"abc")


@pytest.mark.rule("KL-35")
def test_unknown_tagged_fields_are_skipped_in_any_order() -> None:
    data = encoded(FETCH, 12, FETCH.request(cluster_id="abc"))
    start, field = data[:-7], data[-6:]
    for tags in ([b"\x05\x02xx", field], [field, b"\x05\x02xx"], [b"\xac\x02\x00", field, b"\x7f\x01x"]):
        assert FETCH.decode_request(12, start + bytes([len(tags)]) + b"".join(tags)).cluster_id == "abc"
    assert FETCH.decode_request(12, start + b"\x02" + field + field.replace(b"abc", b"xyz")).cluster_id == "xyz"


@pytest.mark.rule("KL-35")
def test_structs_of_fixed_size_may_have_unknown_tagged_fields() -> None:
    response = api("ApiVersions").response
    plain = b"".join(
        api("ApiVersions").encode_response(3, response(api_keys=[response.ApiVersion(1, 2, 3), response.ApiVersion(4)]))
    )
    tagged = plain.replace(bytes([0, 1, 0, 2, 0, 3, 0]), bytes([0, 1, 0, 2, 0, 3, 1, 9, 2, 7, 7]))
    assert len(tagged) == len(plain) + 4
    assert api("ApiVersions").decode_response(3, tagged) == api("ApiVersions").decode_response(3, plain)


@pytest.mark.rule("KL-35")
def test_more_tagged_fields_than_a_byte_counts_are_refused() -> None:
    data = encoded(METADATA, 9, METADATA.request())[:-1]
    assert METADATA.decode_request(9, data + bytes([TAGS_MAX]) + b"\x09\0" * TAGS_MAX) == METADATA.request()
    with pytest.raises(MalformedMessageError, match="tagged fields"):
        METADATA.decode_request(9, data + varint(TAGS_MAX + 1) + b"\x09\0" * (TAGS_MAX + 1))
    tagged = encoded(FETCH, 12, FETCH.request())[:-1]
    with pytest.raises(MalformedMessageError, match="tagged fields"):
        FETCH.decode_request(12, tagged + varint(TAGS_MAX + 1) + b"\x09\0" * (TAGS_MAX + 1))


@pytest.mark.rule("KL-32")
@pytest.mark.parametrize("version", [3, 9])
def test_records_are_not_copied(version: int) -> None:
    produce = api("Produce")
    topics = produce.request.TopicProduceData
    partition = produce.request.PartitionProduceData(records=b"records")
    data = encoded(produce, version, produce.request(topic_data=[topics(partition_data=[partition])]))
    records = produce.decode_request(version, data).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert (records.obj, bytes(records)) == (data, b"records")


def many_of_the_smallest() -> Iterator[tuple[Api, int, bytes]]:
    """Messages of as many elements as go into a megabyte, for whose values Python needs a lot of memory."""
    count = 1 << 20
    yield api("AlterClientQuotas"), 1, varint(count // 3 + 1) + b"\1\1\0" * (count // 3) + b"\0\0"
    yield api("Produce"), 9, b"\0\0\1\0\0\0\1" + varint(count // 3 + 1) + b"\1\1\0" * (count // 3) + b"\0"
    yield api("DeleteGroups"), 2, varint(count + 1) + b"\1" * count + b"\0"
    yield METADATA, 0, (count // 2).to_bytes(4) + b"\0\0" * (count // 2)
    topics = b"\2" + bytes(16) + b"\2" + bytes(4) + b"\2" + bytes(16)
    yield SHARE_FETCH, 1, b"\1\1" + bytes(24) + topics + varint(count + 1) + b"\1" * count + b"\0\0\0\1\0"
    tags = varint(1 << 14) + (b"\1" + bytes([TAGS_MAX]) + b"\x09\0" * TAGS_MAX) * ((1 << 14) - 1)
    yield METADATA, 9, tags + b"\0\0\0\0"


@pytest.mark.rule("KL-36")
@pytest.mark.parametrize(
    ("one", "version", "data"), [*many_of_the_smallest()], ids=lambda value: getattr(value, "name", "")
)
def test_elements_of_a_message_are_bounded(one: Api, version: int, data: bytes) -> None:
    one.decode_request(version, encoded(one, version, one.request()))  # compiled before memory is measured
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessageError, match=f"more than {ELEMENTS_MAX} elements"):
            one.decode_request(version, data)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.rule("KL-36")
def test_the_largest_message_is_read() -> None:
    delete = api("DeleteGroups")
    request = delete.request(groups_names=[""] * ELEMENTS_MAX)
    assert delete.decode_request(2, encoded(delete, 2, request)) == request
    request.groups_names.append("")
    with pytest.raises(MalformedMessageError, match="elements"):
        delete.decode_request(2, encoded(delete, 2, request))


@pytest.mark.rule("KL-18")
def test_a_reader_that_is_to_read_few_elements_stops_at_more() -> None:
    delete = api("DeleteGroups")
    request = delete.request(groups_names=["g"] * 10)
    data = encoded(delete, 2, request)
    assert delete.decode_request(2, data, 0, 10) == request
    with pytest.raises(TooManyElementsError, match="DeleteGroupsRequest 2: the message has more than 9 elements"):
        delete.decode_request(2, data, 0, 9)


@pytest.mark.rule("KL-36")
def test_sixteen_numbers_count_as_one_element() -> None:
    request = api("Fetch").request
    numbers = [7] * (ELEMENTS_MAX - 1) * 16
    for extra, found in ([], None), ([7] * 16, "elements"):
        value = request(forgotten_topics_data=[request.ForgottenTopic(topic="t", partitions=numbers + extra)])
        data = encoded(api("Fetch"), 7, value)
        if found is None:
            assert api("Fetch").decode_request(7, data).forgotten_topics_data[0].partitions == numbers
        else:
            with pytest.raises(MalformedMessageError, match=found):
                api("Fetch").decode_request(7, data)


def fuzz(decode: Callable[[int, bytes], Any], version: int, data: bytes, rng: random.Random) -> bool:
    """Decode a damaged message; any other error than MalformedMessageError fails the test."""
    try:
        decode(version, damaged(data, rng))
    except MalformedMessageError:
        return False
    return True


@pytest.mark.rule("KL-33")
def test_random_cut_and_damaged_messages_are_read_or_refused() -> None:
    rng = random.Random(20261127)
    made = [
        (getattr(one, f"decode_{direction}"), version, b"".join(getattr(one, f"encode_{direction}")(version, value)))
        for one in APIS.values()
        for direction in ("request", "response")
        for version in {one.versions.start, rng.choice(one.versions), one.versions[-1]}
        for value in [full(one, direction, version)]
    ]
    read = sum(fuzz(*rng.choice(made), rng) for _ in range(FUZZED))
    assert FUZZED // 10 < read < FUZZED * 2 // 3
