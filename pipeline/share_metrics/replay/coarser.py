"""Merges windows into larger ones, so that rows are passed over once for tables of several sizes (PM-114). Pure.

Event time never falls within a stream, so a larger window is the sum of the smaller ones in it, and ends as the last
of them does. The size of a larger window is a multiple of the smaller one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TypeVar

from share_metrics.replay.progress_rows import Window
from share_metrics.replay.replay import Tally

W = TypeVar("W")


def coarser_windows(windows: Mapping[int, Window], window_us: int) -> dict[int, Window]:
    """The progress of one share-partition in windows of `window_us`; `windows` are smaller ones, by their starts."""
    found: dict[int, Window] = {}
    for at_us, parts in _within(windows, window_us):
        found[at_us] = merged = Window(0, 0)
        for part in parts:
            merged.sums, merged.present = merged.sums + part.sums, merged.present + part.present
            merged.newest |= part.newest
            merged.era = merged.era if part.era is None else part.era
            merged.gone = part.gone
    return found


def coarser_tallies(tallies: Mapping[int, Tally], window_us: int) -> dict[int, Tally]:
    """The counts of one share-partition's replay in windows of `window_us`, without `ends`."""
    found: dict[int, Tally] = {}
    for at_us, parts in _within(tallies, window_us):
        found[at_us] = merged = Tally()
        for part in parts:
            merged.released_lb += part.released_lb
            merged.accepted_lb += part.accepted_lb
            merged.archived_lb += part.archived_lb
            if part.in_flight_batches is not None:
                merged.in_flight_batches = part.in_flight_batches
                merged.in_flight_width_lb = part.in_flight_width_lb
            merged.incomplete |= part.incomplete
            merged.histogram = [one + more for one, more in zip(merged.histogram, part.histogram, strict=True)]
            merged.latencies_ms += part.latencies_ms
            merged.waits = _waits(part, at_us + window_us, window_us)
    return found


def _waits(last: Tally, end_us: int, window_us: int) -> tuple[tuple[int, int], ...] | None:
    """The records that are still delayed at the end of the larger window, by its last smaller one."""
    if last.waits is None:
        return None
    waits: dict[int, int] = {}
    for until_us, records in last.waits:
        if until_us > end_us:
            rounded = -(-until_us // window_us) * window_us
            waits[rounded] = waits.get(rounded, 0) + records
    return tuple(sorted(waits.items()))


def _within(windows: Mapping[int, W], window_us: int) -> Iterator[tuple[int, list[W]]]:
    """The starts of the larger windows, each with the smaller ones in it, in order."""
    ordered = sorted(windows.items(), key=lambda one: one[0])
    for number, own in groupby(ordered, key=lambda one: one[0] // window_us):
        yield number * window_us, [window for _, window in own]
