"""Headers of requests and responses."""

from __future__ import annotations

import pytest

from kafka_listener.messages.apis import APIS, api
from kafka_listener.messages.errors import MalformedMessageError
from kafka_listener.messages.headers import (
    RequestHeader,
    read_header,
    read_response_head,
    request_head,
    response_head,
)

#: Metadata 1, correlation id 5, client id "rdkafka"; the same in version 9, with no tagged fields.
PLAIN = bytes.fromhex("0003 0001 00000005 0007") + b"rdkafka"
TAGGED = bytes.fromhex("0003 0009 00000005 0007") + b"rdkafka\0"


@pytest.mark.rule("KL-34")
def test_a_header_says_what_the_message_is_and_where_it_begins() -> None:
    assert read_header(PLAIN + b"body") == RequestHeader(3, 1, 5, "rdkafka", len(PLAIN))
    assert read_header(TAGGED + b"body") == RequestHeader(3, 9, 5, "rdkafka", len(TAGGED))


@pytest.mark.rule("KL-34")
def test_a_client_id_may_be_null() -> None:
    assert read_header(bytes.fromhex("0003 0001 00000005 ffff")).client_id is None


@pytest.mark.rule("KL-34", "KL-35")
def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = TAGGED[:-1] + bytes([1, 7, 2]) + b"xx" + b"body"
    assert read_header(frame).body_at == len(frame) - 4


@pytest.mark.rule("KL-34")
@pytest.mark.parametrize(
    "start", ["0003 00ff 00000009", "7fff 0000 00000009", "ffff 0000 00000009", "0003 ffff 00000009"]
)
def test_of_an_unknown_key_or_version_the_start_is_read(start: str) -> None:
    header = read_header(bytes.fromhex(start))
    assert (header.correlation_id, header.client_id, header.body_at) == (9, None, -1)


@pytest.mark.rule("KL-34")
@pytest.mark.parametrize("size", range(len(TAGGED)))
def test_a_cut_header_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessageError, match="header"):
        read_header(TAGGED[:size])


@pytest.mark.rule("KL-34")
@pytest.mark.parametrize(
    "rest", ["fffe", "8000", "0002 c328 00", "0000 01 00 05", "0000 01 00 ffffffffff", "0000 80 01"], ids=str
)
def test_a_damaged_header_is_malformed(rest: str) -> None:
    with pytest.raises(MalformedMessageError):
        read_header(bytes.fromhex(f"0003 0009 00000005 {rest}"))


@pytest.mark.rule("KL-34")
def test_responses_have_a_new_header_where_lengths_are_of_variable_size_but_for_api_versions() -> None:
    assert response_head(api("Metadata"), 8, 5).hex() == "00000005"
    assert response_head(api("Metadata"), 9, 5).hex() == "0000000500"
    assert response_head(api("ApiVersions"), 3, 5).hex() == "00000005"


@pytest.mark.rule("KL-34")
def test_what_a_client_writes_and_reads_fits() -> None:
    for one in APIS.values():
        for version in one.versions:
            head = request_head(one, version, 77, "a client")
            assert read_header(head + b"x") == RequestHeader(one.key, version, 77, "a client", len(head))
            frame = response_head(one, version, 78)
            assert read_response_head(one, version, frame + b"x") == (78, len(frame))
    assert request_head(api("Metadata"), 1, 5, None) == bytes.fromhex("0003 0001 00000005 ffff")


def test_a_cut_header_of_a_response_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match="header of a response"):
        read_response_head(api("Metadata"), 9, b"\0\0\0\5")
