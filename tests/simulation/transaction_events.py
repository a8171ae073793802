"""What applications were told of their transactions, and what an operator aborted: events of a run's history."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Event


@dataclass(frozen=True, slots=True)
class TransactionEnded(Event):
    """A transaction of the transactional id `name` is over for its application, which gave it these records. `outcome`:
    "committed", "aborted", or UNKNOWN when it was never told."""

    name: str
    values: tuple[bytes, ...]
    outcome: str


@dataclass(frozen=True, slots=True)
class TransactionAborted(Event):
    """An operator aborted what was open under the transactional id `name`."""

    name: str
