"""Shows transactional ids' records with Kafka's state names, and filters them for ListTransactions (CM-157)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from transaction_coordinator.core.transaction import Cause, State, Transaction

EMPTY: Final = "Empty"
UNREADABLE: Final = "Unreadable"
#: `open_ms` of a record without an open transaction.
NOT_OPEN: Final = -1
_NAMES: Final = {
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
}
_COMPLETE: Final = {True: "CompleteCommit", False: "CompleteAbort"}
#: The states that a record can have, and two of Kafka's that no record has here; a filter may name each of them.
STATES: Final = frozenset({EMPTY, UNREADABLE, *_NAMES.values(), *_COMPLETE.values(), "Dead", "PrepareEpochFence"})


def state_name(known: Transaction) -> str:
    """Kafka's name for the record's state. Empty for a producer that has started and written nothing, even when an
    earlier transaction was aborted for it; any other record without a transaction shows how the last one ended."""
    if known.state is not State.EMPTY:
        return _NAMES[known.state]
    newest = known.ended[-1] if known.ended else None
    if newest is None or newest.cause in {Cause.SUCCESSOR, Cause.RENEWAL}:
        return EMPTY
    return _COMPLETE[newest.committed]


def open_ms(known: Transaction, now_ms: int) -> int:
    """The time since the record's transaction began, in ms of the store's clock; −1 when none is open or decided."""
    return NOT_OPEN if known.state is State.EMPTY else max(now_ms - known.started_ms, 0)


class Asked(NamedTuple):
    """A filter of the records to list; empty collections and −1 match all. `longer_than_ms`: open for longer than
    this."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = NOT_OPEN

    def passes(self, known: Transaction, now_ms: int) -> bool:
        """Return whether the record matches."""
        if self.states and state_name(known) not in self.states:
            return False
        if self.producer_ids and known.identity.producer_id not in self.producer_ids:
            return False
        return self.longer_than_ms < 0 or open_ms(known, now_ms) > self.longer_than_ms

    def matches_unreadable(self) -> bool:
        """Return whether to list a record that cannot be read: it might match, unless the states exclude it."""
        return not self.states or UNREADABLE in self.states
