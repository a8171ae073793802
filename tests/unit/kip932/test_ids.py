"""Identifiers as text and back, and which shard owns a key."""

from __future__ import annotations

import pytest

from kip932.errors import InvalidRequestError
from kip932.ids import (
    SharePartitionKey,
    TopicIdPartition,
    java_hash,
    parse_share_key,
    parse_topic_id,
    shard_index,
    state_shard,
    topic_id_text,
    valid_topic_name,
)

TOPIC = bytes(range(16))
TEXT = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.rule("SC-1")
def test_a_topic_id_is_22_characters_and_reads_back() -> None:
    assert topic_id_text(TOPIC) == TEXT
    assert parse_topic_id(TEXT) == TOPIC
    assert TopicIdPartition(TOPIC, 3).text == f"{TEXT}:3"


@pytest.mark.rule("SC-1")
@pytest.mark.parametrize("text", ["", TEXT[:-1], TEXT + "A", TEXT[:-1] + "=", TEXT[:-1] + "/", TEXT[:-1] + "\n"])
def test_what_is_no_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22 characters of URL-safe base64"):
        parse_topic_id(text)


@pytest.mark.scenario("S-097")
@pytest.mark.rule("SC-1", "SC-2", "GC-131")
def test_a_share_key_is_read_from_the_right_as_a_group_may_hold_colons() -> None:
    key = SharePartitionKey("a:b:", TOPIC, 7)
    assert key.text == f"a:b::{TEXT}:7"
    assert parse_share_key(key.text) == key
    assert key.topic_partition == TopicIdPartition(TOPIC, 7)


@pytest.mark.scenario("S-097")
@pytest.mark.rule("SC-2", "GC-131")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{TEXT}:7", "has 2 parts"),
        (f" :{TEXT}:7", "blank group"),
        ("g:short:7", "not 22 characters"),
        (f"g:{TEXT}:x", "not a 32-bit integer"),
        (f"g:{TEXT}:2147483648", "not a 32-bit integer"),
        (f"g:{TEXT}:", "not a 32-bit integer"),
    ],
)
def test_what_is_no_share_key_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        parse_share_key(text)


@pytest.mark.scenario("S-097")
@pytest.mark.rule("SC-3")
@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_a_hash_is_javas_over_utf_16_code_units(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.scenario("S-097")
@pytest.mark.rule("SC-3", "GC-1")
@pytest.mark.parametrize(
    ("text", "hashed", "shard"),
    [
        ("G1:AAAAAAAAAAAAAAAAAAAAAQ:0", 2_082_049_366, 16),
        ("G1:AAAAAAAAAAAAAAAAAAAAAQ:1", 2_082_049_367, 17),
        ("G1:AAAAAAAAAAAAAAAAAAAAAQ:2", 2_082_049_368, 18),
        ("orders-group:ZnlX3hsTTxaS1Kh7kX1o2A:7", -1_174_821_681, 31),
        ("a:b:ZnlX3hsTTxaS1Kh7kX1o2A:0", 455_365_398, 48),
        ("grp-\u00e9:ZnlX3hsTTxaS1Kh7kX1o2A:0", -219_313_250, 0),
        ("\U0001f600:ZnlX3hsTTxaS1Kh7kX1o2A:0", -1_360_420_228, 28),
    ],
)
def test_a_share_partition_is_kept_by_the_shard_of_its_key(text: str, hashed: int, shard: int) -> None:
    assert java_hash(text) == hashed
    assert state_shard(parse_share_key(text), 50) == shard_index(text, 50) == shard


@pytest.mark.rule("SC-3", "GC-1")
def test_the_least_hash_has_no_absolute_value_and_goes_to_shard_0() -> None:
    assert shard_index("polygenelubricants", 7) == 0
    assert shard_index("Aa", 50) == 2112 % 50
    assert {shard_index(f"group-{number}", 4) for number in range(100)} == {0, 1, 2, 3}


@pytest.mark.rule("CM-21")
@pytest.mark.parametrize("name", ["t", "a.b_c-D9", "x" * 249, "..."])
def test_a_topic_may_have_such_a_name(name: str) -> None:
    assert valid_topic_name(name)


@pytest.mark.rule("CM-21")
@pytest.mark.parametrize("name", ["", ".", "..", "__consumer_offsets", "x" * 250, "a b", "ä", "t\n"])
def test_a_topic_may_not_have_such_a_name(name: str) -> None:
    assert not valid_topic_name(name)
