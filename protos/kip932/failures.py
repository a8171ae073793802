"""Why members gave records up: a share-partition's reasons, how to combine them, and their limit (PL-942, SC-117).

The share coordinator and the partition leader both use this module, so that a replayed log means the same to both.
Pure.

For each offset at or above the start offset the reason with the highest (delivery count, text) wins, whichever came
first: so combining is idempotent and does not depend on the order, as with state batches. Only beyond the limit it may.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

#: The most bytes of one reason, and of all that a share-partition keeps, in UTF-8.
REASON_BYTES_MAX: Final = 1_024
REASONS_BYTES_MAX: Final = 256 * 1_024
#: The most ranges that a share-partition keeps.
FAILURES_MAX: Final = 5_000
#: How much of each reason is kept when all together exceed their limit: its first line, up to this many bytes.
SHORT_BYTES_MAX: Final = 200
#: So few reasons are within the limits, however long each is.
_FEW: Final = REASONS_BYTES_MAX // REASON_BYTES_MAX
_REASON: Final = itemgetter(3)


class Failure(NamedTuple):
    """Offsets `first_offset`…`last_offset` (inclusive) that a member released or rejected when they had been delivered
    `delivery_count` times, with its reason."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: str


def cut(text: str, limit: int) -> str:
    """Return the text if it has at most `limit` bytes in UTF-8; otherwise as many characters of it as fit before an
    ellipsis. `limit` is at least 3."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "…"


def merge_failures(current: Sequence[Failure], new: Iterable[Failure], start_offset: int = -1) -> tuple[Failure, ...]:
    """Combine a result of this function, or an empty one, with `new` ones in any order, which may overlap.

    Returns a sorted tuple without overlap, from `start_offset` on (−1: from the first), within the limits of PL-942
    (d). Neighbours with equal count and reason are joined. One that ends before it begins is dropped. Only the part
    that `new` touches is combined again: O(m log m) for the m ranges involved, besides copying the rest.
    """
    kept = list(current[bisect_left(current, start_offset, key=_last_offset) :])
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    added = [
        one if one.first_offset >= start_offset else one._replace(first_offset=start_offset)
        for one in new
        if max(start_offset, one.first_offset) <= one.last_offset
    ]
    if not added:
        return tuple(kept)
    begin = bisect_left(kept, min(one.first_offset for one in added) - 1, key=_last_offset)
    end = bisect_right(kept, max(one.last_offset for one in added) + 1, lo=begin, key=_first_offset)
    kept[begin:end] = _combined([*kept[begin:end], *added])
    return _limited(kept)


def clip_failures(failures: Sequence[Failure], first_offset: int, last_offset: int) -> tuple[Failure, ...]:
    """Return the part of a result of `merge_failures` from `first_offset` to `last_offset`, both inclusive."""
    if not failures or last_offset < first_offset:
        return ()
    begin = bisect_left(failures, first_offset, key=_last_offset)
    end = bisect_right(failures, last_offset, lo=begin, key=_first_offset)
    return tuple(
        one._replace(first_offset=max(one.first_offset, first_offset), last_offset=min(one.last_offset, last_offset))
        for one in failures[begin:end]
    )


def _first_offset(failure: Failure) -> int:
    return failure.first_offset


def _last_offset(failure: Failure) -> int:
    return failure.last_offset


def _combined(failures: list[Failure]) -> list[Failure]:
    failures.sort()
    if any(right.first_offset <= left.last_offset for left, right in pairwise(failures)):
        return _sweep(failures)
    found: list[Failure] = []
    for one in failures:
        _append(found, one)
    return found


def _sweep(failures: list[Failure]) -> list[Failure]:
    """Combine sorted ranges from left to right; a heap holds those that cover the current offset, the winner on top.

    Each step ends where the top range ends or the next one begins, so there are at most 2n steps.
    """
    ranks = sorted({one[2:] for one in failures}, reverse=True)
    places = {rank: place for place, rank in enumerate(ranks)}
    found: list[Failure] = []
    open_: list[tuple[int, int]] = []
    index, offset, size = 0, failures[0].first_offset, len(failures)
    while index < size or open_:
        if not open_:
            offset = max(offset, failures[index].first_offset)
        while index < size and failures[index].first_offset <= offset:
            heappush(open_, (places[failures[index][2:]], failures[index].last_offset))
            index += 1
        place, last = open_[0]
        if last < offset:
            heappop(open_)
            continue
        if index < size:
            last = min(last, failures[index].first_offset - 1)
        _append(found, Failure(offset, last, *ranks[place]))
        offset = last + 1
    return found


def _append(found: list[Failure], one: Failure) -> None:
    if found:
        first, last, count, reason = found[-1]
        if last + 1 == one.first_offset and count == one.delivery_count and reason == one.reason:
            found[-1] = Failure(first, one.last_offset, count, reason)
            return
    found.append(one)


def _limited(failures: list[Failure]) -> tuple[Failure, ...]:
    if _bytes(failures) > REASONS_BYTES_MAX:
        failures = _shortened(failures)
        if _bytes(failures) > REASONS_BYTES_MAX:
            sizes = accumulate(map(_size, map(_REASON, failures)))
            failures = failures[: bisect_right(list(sizes), REASONS_BYTES_MAX)]
    return tuple(failures[:FAILURES_MAX])


def _bytes(failures: list[Failure]) -> int:
    """Return the bytes of all reasons; 0 if they are so few that they are within the limit, however long each is."""
    return 0 if len(failures) <= _FEW else _size("".join(map(_REASON, failures)))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _shortened(failures: list[Failure]) -> list[Failure]:
    """Cut each reason to its first line with text, and that to its limit; drop what has none."""
    found: list[Failure] = []
    end, before, text = -2, -1, ""
    for one in failures:
        first, last, count, reason = one
        if "\n" in reason or _size(reason) > SHORT_BYTES_MAX:
            reason = cut(reason.strip().partition("\n")[0], SHORT_BYTES_MAX)
            one = Failure(first, last, count, reason)  # noqa: PLW2901
            if not reason:
                continue
        if first == end + 1 and count == before and reason == text:
            found[-1] = Failure(found[-1].first_offset, last, count, reason)
        else:
            found.append(one)
            before, text = count, reason
        end = last
    return found
