"""Refuses numbers that no correct peer sends before they are stored (CM-82), since a stored number is trusted later.

The share coordinator does not know where a log ends, so it checks only that each number can have been reached by now.
The leader knows the log's end, and checks again when it loads the state (CM-83).
"""

from __future__ import annotations

from typing import Final

from kip932.errors import InvalidRequestError
from kip932.ids import SharePartitionKey
from kip932.state_batches import UNSET_OFFSET
from kip932.state_values import WriteState
from share_coordinator.core.share_state import ShareState

#: Leader epochs are seconds since this moment, or one above the last epoch (CM-12).
EPOCH_ZERO_MS: Final = 1_767_225_600_000
#: How many seconds a leader epoch may be ahead of this node's clock: two machines' clocks differ by less than a day,
#: and no shard is claimed more than once a second for a whole day.
EPOCH_AHEAD_S: Final = 86_400
#: A group's epoch grows by one with each assignment: at one a second it reaches this after 34 years. The values above
#: it, as many again, are left for a group that must exceed a stored epoch (GC-76).
STATE_EPOCH_MAX: Final = 2**30
#: How far a start offset may move in one request: nine years at a million records a second.
START_GROWTH_MAX: Final = 2**48
#: How far above the start offset a batch may end: a share-partition has at most 10,000 records in flight, and the holes
#: between them are at most those of one lost tail (CM-47).
BATCH_REACH_MAX: Final = 2**31 - 1
DELIVERY_COUNT_MAX: Final = 2**15 - 1


class ImplausibleError(InvalidRequestError):
    """A request has a value that no correct node sends; nothing was stored."""


def check_leader_epoch(key: SharePartitionKey, epoch: int, generation: int, stored: int, wall_ms: int) -> None:
    """Refuse a leader epoch too far in the future, which would fence the real leader. `stored`: the largest so far."""
    latest = max((wall_ms - EPOCH_ZERO_MS) // 1000, stored, 0) + EPOCH_AHEAD_S
    if epoch > latest or generation < 0:
        raise ImplausibleError(
            f"{key.text}: leader epoch {epoch} (generation {generation}) cannot come from a claim; expected 0 to "
            f"{latest}, by this node's clock and the stored {stored}, and a generation of at least 0. Compare this "
            "node's clock with the store's"
        )


def check_state_epoch_range(key: SharePartitionKey, epoch: int) -> None:
    """Refuse a state epoch that no group can have reached, and that none could exceed later."""
    if epoch > STATE_EPOCH_MAX:
        raise ImplausibleError(
            f"{key.text}: state epoch {epoch} cannot have been reached by any group; expected 0 to {STATE_EPOCH_MAX}"
        )


def check_start(key: SharePartitionKey, start_offset: int, state: ShareState | None) -> None:
    """Refuse a start offset that no log can have reached since the stored one."""
    stored = max(0, state.start_offset) if state is not None else 0
    if not UNSET_OFFSET <= start_offset <= stored + START_GROWTH_MAX:
        raise ImplausibleError(
            f"{key.text}: start offset {start_offset} cannot have been reached by the log since {stored}; expected "
            f"-1 to {stored + START_GROWTH_MAX}"
        )


def check_reach(write: WriteState, state: ShareState) -> None:
    """Refuse records further above the start offset than any share-partition can have in flight, and counts beyond
    their bounds."""
    low = max(0, write.start_offset if write.start_offset != UNSET_OFFSET else state.start_offset)
    high = low + BATCH_REACH_MAX
    for first, last, _, count, _ in write.batches:
        if first < 0 or last > high or count > DELIVERY_COUNT_MAX:
            raise _out_of_reach(f"{write.key.text}: state batch {first}-{last} (delivery count {count})", low)
    for first, last, count, _ in write.failures:
        if last > high or count > DELIVERY_COUNT_MAX:
            raise _out_of_reach(f"{write.key.text}: the failure of {first}-{last} (delivery count {count})", low)
    complete = write.delivery_complete_count
    if not -1 <= complete <= BATCH_REACH_MAX:
        raise ImplausibleError(
            f"{write.key.text}: {complete} completed deliveries above the start offset; expected -1 to "
            f"{BATCH_REACH_MAX}"
        )


def _out_of_reach(what: str, low: int) -> ImplausibleError:
    return ImplausibleError(
        f"{what} cannot be in flight above start offset {low}; expected offsets from 0 to {low + BATCH_REACH_MAX} and "
        f"a count up to {DELIVERY_COUNT_MAX}"
    )
