"""Lengths of variable size, and tagged fields that are skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.messages.errors import MalformedMessageError
from kafka_listener.messages.wire import STRING_BYTES_MAX, TAGS_MAX, more_of_varint, skip_tags, string_varint, varint


@pytest.mark.rule("KL-33")
@given(st.integers(0, (1 << 31) - 1))
def test_a_length_of_variable_size_comes_back(value: int) -> None:
    data = varint(value)
    assert len(data) <= 5
    assert (more_of_varint(data, 1, data[0]) if data[0] > 127 else (data[0], 1)) == (value, len(data))


@pytest.mark.parametrize(
    ("value", "data"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), ((1 << 31) - 1, "ffffffff07")]
)
def test_lengths_have_seven_bits_a_byte_the_lowest_first(value: int, data: str) -> None:
    assert varint(value).hex() == data


@pytest.mark.rule("KL-33")
@pytest.mark.parametrize("data", ["ffffffff08", "ffffffff7f", "ffffffffff01", "808080808000"])
def test_a_length_of_more_than_31_bits_or_five_bytes_is_refused(data: str) -> None:
    held = bytes.fromhex(data)
    with pytest.raises(MalformedMessageError, match="five bytes"):
        more_of_varint(held, 1, held[0])


def test_a_string_has_a_largest_length() -> None:
    assert string_varint(STRING_BYTES_MAX + 1) == varint(STRING_BYTES_MAX + 1)
    with pytest.raises(ValueError, match="32768 bytes"):
        string_varint(STRING_BYTES_MAX + 2)


@pytest.mark.rule("KL-35")
def test_tagged_fields_are_skipped() -> None:
    data = bytes([0, 2, 9, 9]) + varint(300) + varint(200) + b"x" * 200 + b"rest"
    assert skip_tags(data, 0, 2) == len(data) - 4
    assert skip_tags(data, 3, 0) == 3


@pytest.mark.rule("KL-35")
def test_more_tagged_fields_than_a_byte_counts_are_refused() -> None:
    assert skip_tags(b"\0\0" * TAGS_MAX, 0, TAGS_MAX) == 2 * TAGS_MAX
    with pytest.raises(MalformedMessageError, match="tagged fields"):
        skip_tags(b"\0\0" * 200, 0, TAGS_MAX + 1)
