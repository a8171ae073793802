"""Why members gave records up: the reasons of a share-partition, how to combine them, and their limit (PL-942, SC-117).

The share coordinator, the partition leader, tools and the pipeline all use this module, so that a replayed log means
the same to all of them. Pure.

For each offset at or above the start offset the reason with the highest (delivery count, text) wins, whichever came
first: so combining is idempotent and does not depend on the order, as with state batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

#: The most bytes of one reason, and of all that a share-partition keeps, in UTF-8.
REASON_BYTES_MAX: Final = 1_024
REASONS_BYTES_MAX: Final = 256 * 1_024
#: The most ranges that a share-partition keeps.
FAILURES_MAX: Final = 5_000
#: How much of each reason is kept when all together exceed their limit: its first line, up to this many bytes.
SHORT_BYTES_MAX: Final = 200


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
    """Combine all into a sorted tuple without overlap, from `start_offset` on (−1: from the first), within the limits
    of PL-942 (d). Neighbours with equal count and reason are joined. O(n log n)."""
    return _limited(_combined([*current, *new], start_offset))


def _combined(failures: Iterable[Failure], start_offset: int) -> list[Failure]:
    waiting = sorted(
        one._replace(first_offset=max(one.first_offset, start_offset))
        for one in failures
        if start_offset <= one.last_offset and one.first_offset <= one.last_offset
    )
    found: list[Failure] = []
    #: Those that cover the present offset, the highest (count, reason) on top.
    open_: list[tuple[int, _Reversed, int]] = []
    at, offset = 0, 0
    while at < len(waiting) or open_:
        if not open_:
            offset = max(offset, waiting[at].first_offset)
        while at < len(waiting) and waiting[at].first_offset <= offset:
            heappush(open_, (-waiting[at].delivery_count, _Reversed(waiting[at].reason), waiting[at].last_offset))
            at += 1
        count, text, last = open_[0]
        if last < offset:
            heappop(open_)
            continue
        if at < len(waiting):
            last = min(last, waiting[at].first_offset - 1)
        _append(found, Failure(offset, last, -count, text.text))
        offset = last + 1
    return found


class _Reversed:
    """A text that is less than those before it in order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text

    __hash__ = None  # type: ignore[assignment]  # never a key


def _append(found: list[Failure], one: Failure) -> None:
    if found and found[-1].last_offset + 1 == one.first_offset and found[-1][2:] == one[2:]:
        found[-1] = found[-1]._replace(last_offset=one.last_offset)
    else:
        found.append(one)


def _limited(failures: list[Failure]) -> tuple[Failure, ...]:
    if len(failures) * REASON_BYTES_MAX <= REASONS_BYTES_MAX:
        return tuple(failures)
    if sum(len(one.reason.encode()) for one in failures) > REASONS_BYTES_MAX:
        short: list[Failure] = []
        for one in failures:
            _append(short, one._replace(reason=cut(one.reason.partition("\n")[0], SHORT_BYTES_MAX)))
        failures = short
    kept: list[Failure] = []
    size = 0
    for one in failures:
        size += len(one.reason.encode())
        if size > REASONS_BYTES_MAX or len(kept) == FAILURES_MAX:
            break
        kept.append(one)
    return tuple(kept)
