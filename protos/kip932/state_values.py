"""The write and the summary of a share-partition's state, as leader, persister and share coordinator exchange them.

They are values without behaviour; `state_batches` combines batches.
"""

from __future__ import annotations

from typing import NamedTuple

from kip932.state_batches import NO_STATS, StateBatch, WriteStats


class StateWrite(NamedTuple):
    """One write of one share-partition, by its leader (PL-702). `batches`: the changed ranges, in any order.

    An epoch of −1 is not checked. A `start_offset` of −1 leaves the stored one unchanged.
    """

    state_epoch: int
    leader_epoch: int
    generation: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    stats: WriteStats = NO_STATS


class StateSpan(NamedTuple):
    """The offsets whose state batches a summary must contain (PL-825)."""

    first_offset: int
    last_offset: int


class DelayedAt(NamedTuple):
    """The time, in ms since 1970, for which a summary must count the records whose delay has not ended (PL-938)."""

    wall_ms: int


class StateSummary(NamedTuple):
    """Start offset, epochs and counts of a share-partition; the defaults are those of one without state (SC-50).

    `batches`: the state batches of the requested offsets, cut at their bounds (PL-825). `delayed`: the number of
    records whose delay has not ended; −1 when it was not requested, or an older build answered (PL-938).
    """

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = -1
    delivery_complete_count: int = -1
    archived_by_limit: int = -1
    archived_by_reject: int = -1
    batches: tuple[StateBatch, ...] = ()
    delayed: int = -1
