"""Ends the transactions that nobody else finds any more (CM-155, CM-156).

A leader asks only for what is open in its logs. A transaction that joined partitions whose batches were then refused,
or one whose last marker was written by a node that died before it said so, is open in no log. If its producer does not
come back either, its record would say for ever that it is open, or being ended. So each node goes through all records
from time to time; this module does nothing but that.
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
#: For how long after its time-out a transaction is left to those who should find it, in ms.
PATIENCE_MS: Final = 60_000


class Transactions(Protocol):
    """What a node's coordinator does. Calls raise KafkaError."""

    async def page(self, cursor: str) -> Page:
        """Some of the records."""
        ...

    async def look_after(self, transactional_id: str, identity: Identity) -> tuple[Fate, int]:
        """Abort what is past its time-out, finish what is decided."""
        ...


class _Found(NamedTuple):
    transactional_id: str
    identity: Identity
    state: State


def is_forgotten(known: Transaction, now_ms: int) -> bool:
    """Whether a transaction is open, or decided and not ended, for longer than anybody who knows of it lets it be."""
    return known.state is not State.EMPTY and now_ms >= known.started_ms + known.timeout_ms + PATIENCE_MS


class ForgottenTransactions:
    """One node's rounds; call `run` as a task."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def run(self) -> None:
        """Make rounds for ever."""
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await self.round()
            except KafkaError as error:  # the store is away, or its nodes are others: the next round begins anew
                log.info("round through the records of transactions cut short", reason=error.message)
            except Exception:
                log.exception("round through the records of transactions cut short")

    async def round(self) -> None:
        """Look at every record once, a page at a time. Raises KafkaError."""
        cursor = ""
        while True:
            page = await self._transactions.page(cursor)
            for transactional_id, known in page.records.items():
                if isinstance(known, Transaction) and is_forgotten(known, page.now_ms):
                    await self._look_after(_Found(transactional_id, known.identity, known.state))
            cursor = page.next_cursor
            if not cursor:
                return
            await asyncio.sleep(PAGE_S)

    async def _look_after(self, found: _Found) -> None:
        try:
            fate, _ = await self._transactions.look_after(found.transactional_id, found.identity)
        except KafkaError as error:
            log.info("forgotten transaction left for now", transactional_id=found.transactional_id, why=error.message)
            return
        if fate is Fate.WAITS:  # the clocks may be wrong (CM-156); a later round comes back to it
            return
        log.warning(
            "a transaction that nobody looked after is being ended",
            transactional_id=found.transactional_id,
            producer_id=found.identity.producer_id,
            producer_epoch=found.identity.epoch,
            state=found.state.name.lower(),
            fate=fate.name.lower(),
        )
