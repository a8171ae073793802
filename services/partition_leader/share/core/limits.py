"""From how much on the memory of a share-partition is swept, joined or cut: they bound cost, and decide no outcome.

A host takes `LIMITS`. Tests take small ones, so that a history of a few records meets every sweep.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Limits(NamedTuple):
    """`unwritten_spans`: spans in the dirty set before they are joined (PL-621). `lock_entries`: entries of a heap of
    locks before those that do nothing are dropped (PL-303). `squeezed_batches`: batches passed by the first unfinished
    record before they are made one where they can be (PL-915). `settled_changes`: batches more, or records finished,
    before settled batches are joined (PL-935). `forgotten_batches`: places of batches below the start offset before
    the list is cut.
    """

    unwritten_spans: int = 1_024
    lock_entries: int = 256
    squeezed_batches: int = 64
    settled_changes: int = 128
    forgotten_batches: int = 64


LIMITS: Final = Limits()
