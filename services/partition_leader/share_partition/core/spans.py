"""Arithmetic on inclusive offset spans, plain (first, last) tuples, and on arrays of one byte per offset; no state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Final

from kip932.state_batches import StateBatch

Span = tuple[int, int]
ALL: Final = 255  # every bit of a mask
_DENSE: Final = 16


def normalized(spans: Iterable[Span], floor: int) -> list[Span]:
    """Sort the spans, join those that overlap or touch, and cut off everything below `floor`."""
    result: list[Span] = []
    end = floor - 2  # end of the last span in the result; nothing touches it yet
    for span in sorted(spans):
        first, last = span
        if first > end + 1 and first >= floor:
            result.append(span)
            end = last
        elif last > end and last >= floor:
            if result:
                result[-1] = (result[-1][0], last)
            else:
                result.append((floor, last))
            end = last
    return result


def split_at(first: int, last: int, start_offset: int) -> list[Span]:
    """Split the span in two where the start offset cuts it (PL-304)."""
    if first < start_offset <= last:
        return [(first, start_offset - 1), (start_offset, last)]
    return [(first, last)]


def is_dense(spans: Sequence[Span]) -> bool:
    """Return whether the ascending spans are so many and so short that it is better to process their whole stretch at
    once."""
    return len(spans) > 1 and spans[-1][1] - spans[0][0] < _DENSE * len(spans)


def differing(left: bytes | bytearray, right: bytes | bytearray) -> bytes:
    """Return left XOR right, which is zero where they are equal; computed on whole arrays as big integers."""
    return (int.from_bytes(left, "little") ^ int.from_bytes(right, "little")).to_bytes(len(left), "little")


def masked(values: bytes | bytearray, mask: bytes | bytearray) -> bytes:
    """Return the values where the mask is ALL, zero where it is zero."""
    return (int.from_bytes(values, "little") & int.from_bytes(mask, "little")).to_bytes(len(values), "little")


def borders(values: bytes | bytearray) -> bytes:
    """Return one byte for each value but the first: zero where it equals the one before it."""
    return differing(values[1:], values[:-1])


def mask_of(spans: Iterable[Span], first: int, last: int) -> bytearray:
    """Return a mask of the offsets `first`…`last`: ALL inside the spans, zero elsewhere."""
    mask = bytearray(last - first + 1)
    for low, high in spans:
        if low == high:  # single records are common: no slices
            mask[low - first] = ALL
        else:
            mask[low - first : high - first + 1] = bytes([ALL]) * (high - low + 1)
    return mask


def stretches(mask: bytes | bytearray, first: int) -> list[Span]:
    """Return the spans of offsets, from `first` on, where the mask is set. Its bytes are zero or one common value."""
    if 0 not in mask:
        return [(first, first + len(mask) - 1)] if mask else []
    edges = compress(range(first, first + len(mask) + 1), borders(b"\0" + mask + b"\0"))
    return [(begin, end - 1) for begin, end in zip(edges, edges, strict=True)]


def append_merged(batches: list[StateBatch], first: int, last: int, state: int, count: int) -> None:
    """Append a state batch, joined to its left neighbour when state and count are equal (PL-703)."""
    if batches:
        previous = batches[-1]
        if previous[1] + 1 == first and previous[2] == state and previous[3] == count:
            batches[-1] = StateBatch(previous[0], last, state, count)
            return
    batches.append(StateBatch(first, last, state, count))
