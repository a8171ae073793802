"""Requests cut out of a connection's bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.core.frames import FRAME_MIN_BYTES, Frames, FrameSizeError

REQUESTS = st.lists(st.binary(min_size=FRAME_MIN_BYTES, max_size=40), max_size=8)


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.rule("KL-1")
@given(REQUESTS, st.lists(st.integers(0, 200), max_size=20), st.binary(max_size=3))
def test_any_cutting_of_the_bytes_gives_the_same_requests(requests: list[bytes], cuts: list[int], rest: bytes) -> None:
    data = b"".join(map(sized, requests)) + rest
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    frames, found = Frames(1_000), []
    for begin, end in itertools.pairwise(places):
        frames.feed(data[begin:end])
        while (frame := frames.take()) is not None:
            found.append(frame)
    assert (found, frames.buffered) == (requests, len(rest))


@pytest.mark.rule("KL-1")
@pytest.mark.parametrize("size", [-(2**31), -1, 0, FRAME_MIN_BYTES - 1, 101, 2**30, 2**31 - 1])
def test_a_size_that_no_request_has_is_refused_before_the_request_comes(size: int) -> None:
    frames = Frames(100)
    frames.feed(size.to_bytes(4, "big", signed=True))
    for found in (frames.size, frames.take):
        with pytest.raises(FrameSizeError, match="expected 8 to 100"):
            found()


@pytest.mark.rule("KL-1")
def test_a_request_of_the_largest_size_is_taken_and_its_size_is_known_early() -> None:
    frames = Frames(100)
    frames.feed((100).to_bytes(4, "big")[:3])
    assert (frames.size(), frames.take()) == (None, None)
    frames.feed((100).to_bytes(4, "big")[3:])
    assert (frames.size(), frames.take()) == (100, None)
    frames.feed(bytes(100))
    assert frames.take() == bytes(100)
    frames.feed(b"more")
    frames.clear()
    assert frames.buffered == 0
