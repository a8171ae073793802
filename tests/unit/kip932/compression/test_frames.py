"""Frames of every compression, read within bounds: incomplete frames and too large ones are refused."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.compression.frames import PIECE_BYTES, MoreBytesError
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import CorruptMessageError

MIB = 1 << 20
PACKED = [kind for kind in Compression if kind is not Compression.NONE]
of_each_kind = pytest.mark.parametrize("kind", PACKED, ids=[kind.label for kind in PACKED])
CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=50), st.integers(1, 9000)),
)


def unpack(kind: Compression, packed: bytes, room: int = 64 * MIB) -> bytes:
    return b"".join(frames_of(kind).unpacked(packed, room))


@pytest.mark.rule("CM-116", "CM-112")
@of_each_kind
@given(content=CONTENTS, extra=st.binary(min_size=1, max_size=30), cut=st.integers(1, 30))
def test_a_frame_gives_back_its_content_and_is_refused_unless_whole(
    kind: Compression, content: bytes, extra: bytes, cut: int
) -> None:
    packed = frames_of(kind).compress(content, None)
    assert unpack(kind, packed, len(content)) == content
    if content:
        with pytest.raises(MoreBytesError):
            unpack(kind, packed, len(content) - 1)
        try:
            assert unpack(kind, packed[:-cut]) == b""
            assert kind is Compression.SNAPPY, "its frame has no end, so that a whole block may be missing"
        except CorruptMessageError:
            pass
    with pytest.raises((CorruptMessageError, MoreBytesError)):
        unpack(kind, packed + extra)


@of_each_kind
@given(packed=st.binary(max_size=200))
def test_any_bytes_are_answered_with_content_or_an_error(kind: Compression, packed: bytes) -> None:
    good = frames_of(kind).compress(bytes(500), None)
    for found in (packed, good[:20] + packed, good[:-1] + packed):
        try:
            unpack(kind, found, 10_000)
        except (CorruptMessageError, MoreBytesError):
            continue


@pytest.mark.rule("CM-112")
@of_each_kind
def test_a_bomb_is_left_off_where_the_room_ends(kind: Compression) -> None:
    """128 MiB of zeros, compressed as far as possible, are never all in memory."""
    bomb = frames_of(kind).compress(bytes(128 * MIB), None)
    assert len(bomb) < 8 * MIB
    sizes: list[int] = []
    tracemalloc.start()
    try:
        with pytest.raises(MoreBytesError):
            sizes.extend(map(len, frames_of(kind).unpacked(bomb, 8 * MIB)))
        assert 7 * MIB < sum(sizes) <= 8 * MIB
        assert max(sizes) <= PIECE_BYTES
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.rule("CM-116")
@of_each_kind
def test_a_frame_of_more_bytes_than_are_passed_on_at_once_is_read_whatever_the_sizes(kind: Compression) -> None:
    """An lz4 frame was called cut when the content of its first 64 KiB was a multiple of a piece."""
    content = b"\0\x01" * 10_000_000
    packed = frames_of(kind).compress(content, None)
    found = list(frames_of(kind).unpacked(packed, len(content)))
    assert b"".join(found) == content
    assert max(map(len, found)) <= PIECE_BYTES
    if kind is Compression.LZ4:
        assert len(packed) > 1 << 16
        with pytest.raises(CorruptMessageError, match="end inside their lz4 frame"):
            list(frames_of(kind).unpacked(packed[: 1 << 16], len(content)))
