"""Frames of a backup's segments: they are read back as written, and any changed byte is noticed."""

from __future__ import annotations

import zlib

import pytest

from shard_runtime.record_log.protocol import StreamId
from shard_runtime.record_log.redis.stream_copies import RawEntry
from share_node.backup.format import (
    FRAME_HEAD,
    FormatError,
    Item,
    StoredHash,
    StoredString,
    StreamPage,
    crc,
    frame,
    item_of,
)

PAGE = StreamPage(
    "{gc:7}:log",
    [
        RawEntry(StreamId(3, 0), (b"t", b"C", b"r", b"", b"c", b"\0\1\2\3")),
        RawEntry(StreamId(2**63, 2**64 - 1), (b"t", b"S", b"r", bytes(range(256)), b"later", b"field")),
    ],
)
ITEMS: list[Item] = [
    PAGE,
    StreamPage("{gc:7}:log", [RawEntry(StreamId(1, 1), (b"r", b"x" * 10_000))]),
    StoredHash("{nodes}:names", {b"a": b"1", b"": b""}),
    StoredString("gc:config", b"50"),
]


def unframed(data: bytes) -> Item:
    length, expected = FRAME_HEAD.unpack(data[: FRAME_HEAD.size])
    body = data[FRAME_HEAD.size :]
    assert length == len(body)
    return item_of(body, expected)


def framed(plain: bytes) -> tuple[bytes, int]:
    body = b"\0" + plain
    return body, crc(body)


@pytest.mark.rule("CM-142")
@pytest.mark.parametrize("item", ITEMS)
def test_what_is_framed_is_read_again(item: Item) -> None:
    assert unframed(frame(item)) == item


@pytest.mark.rule("CM-142")
def test_a_frame_has_the_bytes_that_the_rule_says() -> None:
    body = b"\0" + b"\3" + b"\0\x09" + b"\0\0\0\1" + b"gc:config" + b"\0\0\0\2" + b"50"
    assert frame(StoredString("gc:config", b"50")) == len(body).to_bytes(4) + crc(body).to_bytes(4) + body
    entry = b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\0\7" + b"\0\2" + b"\0\0\0\1" + b"t" + b"\0\0\0\0"
    page = b"\0" + b"\1" + b"\0\x01" + b"\0\0\0\1" + b"s" + entry
    assert item_of(page, crc(page)) == StreamPage("s", [RawEntry(StreamId(5, 7), (b"t", b""))])
    assert crc(b"123456789") == 0xE3069283


def test_what_can_be_packed_is_packed() -> None:
    packed = frame(ITEMS[1])
    assert len(packed) < 200
    assert packed[FRAME_HEAD.size : FRAME_HEAD.size + 1] == b"\1"


@pytest.mark.rule("CM-142")
def test_every_changed_byte_is_noticed() -> None:
    data = frame(PAGE)
    for at in range(4, len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises(FormatError, match="its checksum is"):
            unframed(bytes(changed))


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (b"", "it cannot be read"),
        (b"\7" + b"\0\1" + b"\0\0\0\0" + b"k", "it is of kind 7, which this build does not know"),
        (b"\3" + b"\0\1" + b"\0\0\0\1" + b"k" + b"\0\0\0\5ab", "it ends 3 bytes too early"),
        (b"\3" + b"\0\1" + b"\0\0\0\1" + b"k" + b"\0\0\0\1abc", "2 bytes follow its end"),
        (b"\2" + b"\0\1" + b"\0\0\0\1" + b"k" + b"\0\0\0\1a", "it cannot be read"),
        (b"\3" + b"\0\1" + b"\0\0\0\1" + b"\xff" + b"\0\0\0\0", "it cannot be read"),
    ],
)
def test_a_body_that_was_written_wrong_is_refused(plain: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        item_of(*framed(plain))


def test_a_body_that_cannot_be_unpacked_is_refused() -> None:
    body = b"\1" + zlib.compress(b"\3")[:-1]
    with pytest.raises(FormatError, match="it cannot be read"):
        item_of(body, crc(body))
