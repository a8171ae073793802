"""Thresholds at which a share-partition sweeps, joins or cuts its memory: they bound cost, but decide no outcome.

A host uses `LIMITS`. Tests use small ones, so that a history of a few records triggers every sweep.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Limits(NamedTuple):
    """`unwritten_spans`: spans in the dirty set before they are joined (PL-621). `lock_entries`: entries in a lock heap
    before stale ones are dropped (PL-303). `merged_batches`: batches in front of the first unfinished record before
    they are merged where possible (PL-915). `settled_changes`: changes in the number of batches and finished records
    before settled batches are joined (PL-935). `forgotten_batches`: removed batches that stay in the list before it is
    shortened."""

    unwritten_spans: int = 1_024
    lock_entries: int = 256
    merged_batches: int = 64
    settled_changes: int = 128
    forgotten_batches: int = 64


LIMITS: Final = Limits()
