"""The durable records of transactional ids (CM-151); `redis/transaction_store.py` implements this protocol.

The store compares and sets bytes. Only `transaction_coordinator` knows their meaning.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class StoredTransaction(NamedTuple):
    """A record as read; `record` is None when none is in force. `now_ms`: the store's clock. `damage`: what is wrong
    with the bytes; "" when they are intact. A damaged record must not be used."""

    record: bytes | None
    now_ms: int
    damage: str = ""


class TransactionPage(NamedTuple):
    """Some records with their transactional ids. They may not be durable: a fail-over may undo them. `next_cursor`:
    where the next page begins, "" at the end; `now_ms`: the store's clock. An id may be on two pages."""

    records: list[tuple[str, StoredTransaction]]
    next_cursor: str
    now_ms: int


class BadCursorError(ValueError):
    """No page returned this cursor, or the store's nodes have changed since: start over with ""."""


class TransactionStore(Protocol):
    """Reads and changes records. Every call raises StoreUnavailableError when no durable reply came in time; a change
    may then be in force."""

    async def read(self, transactional_id: str) -> StoredTransaction:
        """Return the record as it is durably stored: no fail-over undoes it."""
        ...

    async def change(
        self, transactional_id: str, before: bytes | None, record: bytes, expires_ms: int
    ) -> StoredTransaction | None:
        """Replace the record `before` (None: there was none) by `record`, which must contain something random.

        Returns `record`, which is now durable and is kept for `expires_ms` (0: for ever); or None when another record
        is in force: then read that and decide again. Repeating the call is safe.
        """
        ...

    async def page(self, cursor: str) -> TransactionPage:
        """Return some of the records, from `cursor` on ("": from the beginning). A record that exists from the first
        page to the last is in at least one of them. Raises BadCursorError."""
        ...
