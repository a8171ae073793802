"""Delays of releases: which records of a request are delayed, for how long, and how a write stores that (PL-930 …
PL-936).

Owns the ends of the delays that one operation starts, and their place in the state batches of a write. Times are on the
leader's clock; the host converts them to wall-clock instants (PL-934).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kip932.ids import ACK_RELEASE, POLICY_DELAY, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core.backoff import Retries
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.transitions import DELAYED

#: Delayed offsets, and the end of their delay (ms).
Delay = tuple[Span, int]


def delay_of(given: int, count: int, retries: Retries) -> int:
    """Return the delay of released records in ms (0: none): the request's delay, or else the group's back-off."""
    return retries.delay_ms(count) if given == POLICY_DELAY else given


def given_runs(first: int, last: int, delays: Sequence[int], begin: int) -> Iterator[tuple[int, int, int]]:
    """(first, last, delay) of each stretch in `first`…`last` with one delay. `delays`: as in the request, for offsets
    from `begin` on."""
    if len(delays) <= 1:
        yield first, last, delays[0] if delays else POLICY_DELAY
        return
    at = first
    for offset in range(first + 1, last + 1):
        if delays[offset - begin] != delays[at - begin]:
            yield at, offset - 1, delays[at - begin]
            at = offset
    yield at, last, delays[at - begin]


def released_runs(
    types: bytes | bytearray, counts: Sequence[int], first: int, delays: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """(first, last, delivery count, delay) of each stretch of released records with one count and one delay. `types`
    and `counts` are those of the offsets from `first` on, `delays` those of the request for them."""
    at = types.find(ACK_RELEASE)
    while at >= 0:
        end = at + 1
        while end < len(types) and types[end] == ACK_RELEASE and counts[end] == counts[at]:
            end += 1
        for low, high, given in given_runs(first + at, first + end - 1, delays, first):
            yield low, high, counts[at], given
        at = types.find(ACK_RELEASE, end)


def with_delays(batches: Sequence[StateBatch], delays: Iterable[Delay]) -> list[StateBatch]:
    """Return the state batches of a write, with the end of the delay set on the delayed parts of Available ones; equal
    neighbours are joined (PL-703)."""
    result: list[StateBatch] = []
    waiting = sorted(delays)
    at = 0
    for batch in batches:
        while at < len(waiting) and waiting[at][0][1] < batch.first_offset:
            at += 1
        if batch.delivery_state != STATE_AVAILABLE:
            _append(result, batch)
            continue
        cursor, index = batch.first_offset, at
        while cursor <= batch.last_offset:
            span = waiting[index][0] if index < len(waiting) else None
            if span is None or span[0] > batch.last_offset:
                _append(result, batch._replace(first_offset=cursor))
                break
            if cursor < span[0]:
                _append(result, batch._replace(first_offset=cursor, last_offset=span[0] - 1))
            low, high = max(cursor, span[0]), min(span[1], batch.last_offset)
            if low <= high:
                _append(result, batch._replace(first_offset=low, last_offset=high, not_before_ms=waiting[index][1]))
            cursor = max(cursor, high + 1)
            index += 1
    return result


def _append(batches: list[StateBatch], batch: StateBatch) -> None:
    last = batches[-1] if batches else None
    if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        batches[-1] = last._replace(last_offset=batch.last_offset)
    else:
        batches.append(batch)


def delayed_in(window: Window, spans: Iterable[Span]) -> Iterator[Delay]:
    """The delayed records of these spans, with the ends of their delays."""
    for first, last in spans:
        for batch in window.overlapping(first, last):
            if not batch.delayed:
                continue
            for low, high, code, _, _, until_ms in batch.lock_runs(max(first, batch.first), min(last, batch.last)):
                if code == DELAYED:
                    yield (low, high), until_ms
