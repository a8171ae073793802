"""Ends the transactions that no producer or leader will ask about again (CM-155, CM-156).

A leader asks only about transactions that are open in its logs. A transaction is open in no log when the batches of its
partitions were refused, or when the node that wrote its last marker died before it recorded that. If its producer does
not come back either, its record would stay open, or decided, for ever. So each node goes through all records from time
to time; this module does only that.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

import structlog

from kip932.errors import KafkaError
from transaction_coordinator.core.transaction import Fate, Identity, State, Transaction
from transaction_coordinator.records import Page

log = structlog.get_logger(__name__)

#: How long a node waits from one round to the next, and from one page to the next, in seconds.
ROUND_S: Final = 600.0
PAGE_S: Final = 1.0
#: How long after its time-out a transaction is left to its producer and leaders, in ms.
GRACE_MS: Final = 60_000


class Transactions(Protocol):
    """The calls that the rounds make on a node's coordinator. They raise KafkaError."""

    async def page(self, cursor: str) -> Page:
        """Return one page of the records."""
        ...

    async def resolve(self, transactional_id: str, identity: Identity) -> tuple[Fate, int]:
        """Abort the transaction if it is past its time-out, and finish it if it is decided."""
        ...


class _Found(NamedTuple):
    transactional_id: str
    identity: Identity
    state: State


def is_forgotten(known: Transaction, now_ms: int) -> bool:
    """Return whether a transaction is still open or decided `GRACE_MS` after its time-out."""
    return known.state is not State.EMPTY and now_ms >= known.started_ms + known.timeout_ms + GRACE_MS


class ForgottenTransactions:
    """One node's rounds through all records; call `run` as a task."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def run(self) -> None:
        """Make rounds for ever."""
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await self.round()
            except KafkaError as error:  # the store is unavailable or its nodes changed; the next round starts over
                log.info("transaction_round_interrupted", cause=error.message, effect="the next round starts over")
            except Exception:
                log.exception("transaction_round_failed")

    async def round(self) -> None:
        """Check every record once, a page at a time. Raises KafkaError."""
        cursor = ""
        while True:
            page = await self._transactions.page(cursor)
            for transactional_id, known in page.records.items():
                if isinstance(known, Transaction) and is_forgotten(known, page.now_ms):
                    await self._resolve(_Found(transactional_id, known.identity, known.state))
            cursor = page.next_cursor
            if not cursor:
                return
            await asyncio.sleep(PAGE_S)

    async def _resolve(self, found: _Found) -> None:
        try:
            fate, _ = await self._transactions.resolve(found.transactional_id, found.identity)
        except KafkaError as error:
            log.info("forgotten_transaction_deferred", transactional_id=found.transactional_id, cause=error.message)
            return
        if fate is Fate.WAITS:  # the clocks may be wrong (CM-156); a later round comes back to it
            return
        log.warning(
            "forgotten_transaction_ended",
            transactional_id=found.transactional_id,
            producer_id=found.identity.producer_id,
            producer_epoch=found.identity.epoch,
            state=found.state.name.lower(),
            fate=fate.name.lower(),
        )
