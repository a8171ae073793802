"""The outcomes of transactions that applications received, and an operator's aborts: events of a run's history."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Event


@dataclass(frozen=True, slots=True)
class TransactionEnded(Event):
    """A transaction of the transactional id `name` is over for its application, which sent these records in it.
    `outcome`: "committed", "aborted", or UNKNOWN when the application never learned it."""

    name: str
    values: tuple[bytes, ...]
    outcome: str


@dataclass(frozen=True, slots=True)
class TransactionAborted(Event):
    """An operator aborted the open transaction of the transactional id `name`."""

    name: str
