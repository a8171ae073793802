"""The durable records of transactional ids (CM-151); `redis/transaction_store.py` implements this protocol.

The store compares and sets bytes. What they mean is for `transaction_coordinator` alone.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class StoredTransaction(NamedTuple):
    """A record as read; `record` None: there is none. `now_ms`: the store's clock. `damage` says what is wrong with the
    bytes, "" when they are intact: a damaged record must not be used."""

    record: bytes | None
    now_ms: int
    damage: str = ""


class TransactionPage(NamedTuple):
    """Some records with their transactional ids, as read in passing: a fail-over may take them back. `next_cursor`:
    where to go on, "" at the end; `now_ms`: the store's clock. An id may be in two pages."""

    records: list[tuple[str, StoredTransaction]]
    next_cursor: str
    now_ms: int


class BadCursorError(ValueError):
    """The cursor is none that a page named, or the store's nodes are others since: begin anew, with ""."""


class TransactionStore(Protocol):
    """Calls raise StoreUnavailableError when no durable answer came in time. A change may then be in force."""

    async def look(self, transactional_id: str) -> StoredTransaction:
        """The record. What is returned is durable: no fail-over takes it back."""
        ...

    async def change(
        self, transactional_id: str, before: bytes | None, record: bytes, expires_ms: int
    ) -> StoredTransaction | None:
        """Replace the record `before` (None: there was none) by `record`, which must hold something random.

        Returned: `record`, which is durable now and kept for `expires_ms` (0: for ever); or None, when another record
        is in force: look, and decide anew. Repeating it is safe.
        """
        ...

    async def page(self, cursor: str) -> TransactionPage:
        """Some of the records, from `cursor` on, "" from the beginning. What is there all the while is in one of the
        pages. Raises BadCursorError."""
        ...
