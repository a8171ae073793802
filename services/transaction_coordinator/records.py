"""Reads and changes the records of transactional ids in the store (CM-151). The core decides the changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from kip932.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaStorageError,
)
from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.record_log.transaction_store import BadCursorError, StoredTransaction, TransactionStore
from shard_runtime.rpc.bounds import Turns
from transaction_coordinator.codec import UnknownRecordError, read_record, record_bytes
from transaction_coordinator.core.transaction import State, Transaction

#: Computes the next record from the current one (None when there is none) and the store's clock, in ms. Returns the
#: same object when nothing is to be written.
Decide = Callable[[Transaction | None, int], Transaction | None]

#: The maximum number of attempts at one change; an attempt fails when another change to the record comes first.
_ATTEMPTS: Final = 30
#: The longest pause between two attempts, in seconds.
_PAUSE_S: Final = 0.05
#: How many records of a page are decoded before other tasks get to run.
_SLICE: Final = 20


class ReadRecord(NamedTuple):
    """A record (None when there is none), and the store's clock when it was read or written."""

    transaction: Transaction | None
    now_ms: int


class Page(NamedTuple):
    """Some records by transactional id, each with its error if it cannot be read; the next page's cursor, "" at the
    end; and the store's clock."""

    records: dict[str, Transaction | KafkaStorageError]
    next_cursor: str
    now_ms: int


class TransactionRecords:
    """Reads and changes the records; keeps nothing in memory. `expiration_ms`: how long an unused record is kept
    (transactional.id.expiration.ms)."""

    def __init__(self, store: TransactionStore, rng: Random, expiration_ms: int) -> None:
        self._store = store
        self._rng = rng
        self._expiration_ms = expiration_ms

    async def read(self, transactional_id: str) -> ReadRecord:
        """Read a record; no fail-over can undo what is read.

        Raises CoordinatorNotAvailableError or KafkaStorageError.
        """
        stored = await self._read(transactional_id)
        return ReadRecord(_value(transactional_id, stored), stored.now_ms)

    async def change(self, transactional_id: str, decide: Decide) -> ReadRecord:
        """Decide on the current record and write the decision; try again when another change came first.

        The returned record is durable. Raises what `decide` raises. Also raises CoordinatorNotAvailableError (the
        change may be in force), KafkaStorageError, or ConcurrentTransactionsError if other changes came first in every
        attempt.
        """
        for attempt in range(_ATTEMPTS):
            stored = await self._read(transactional_id)
            known = _value(transactional_id, stored)
            wanted = decide(known, stored.now_ms)
            if wanted is known or wanted is None:
                return ReadRecord(known, stored.now_ms)
            record = record_bytes(transactional_id, wanted, self._rng.getrandbits(64))
            expires_ms = self._expiration_ms if wanted.state is State.EMPTY else 0
            try:
                changed = await self._store.change(transactional_id, stored.record, record, expires_ms)
            except StoreUnavailableError as error:
                raise _away(transactional_id, error) from error
            if changed is not None:
                return ReadRecord(wanted, changed.now_ms)
            await asyncio.sleep(self._rng.random() * min(_PAUSE_S, 0.001 * 2**attempt))
        raise ConcurrentTransactionsError(
            f"the record of transactional id {transactional_id!r} was changed by others {_ATTEMPTS} times; try again"
        )

    async def page(self, cursor: str) -> Page:
        """Read one page of records; a fail-over may undo what is read. Raises InvalidRequestError for an invalid
        cursor, CoordinatorNotAvailableError."""
        try:
            found = await self._store.page(cursor)
        except BadCursorError as error:
            raise InvalidRequestError(f"{error}. Begin again, without a cursor") from error
        except StoreUnavailableError as error:
            raise CoordinatorNotAvailableError(
                f"the store did not return its transactions ({error}); try again"
            ) from error
        turns, records = Turns(_SLICE), dict[str, Transaction | KafkaStorageError]()
        for transactional_id, stored in found.records:
            await turns.step()
            try:
                known = _value(transactional_id, stored)
            except KafkaStorageError as error:
                records[transactional_id] = error
            else:
                assert known is not None
                records[transactional_id] = known
        return Page(records, found.next_cursor, found.now_ms)

    async def _read(self, transactional_id: str) -> StoredTransaction:
        try:
            return await self._store.read(transactional_id)
        except StoreUnavailableError as error:
            raise _away(transactional_id, error) from error


def _value(transactional_id: str, stored: StoredTransaction) -> Transaction | None:
    if stored.record is None:
        return None
    why = stored.damage
    try:
        if not why:
            return read_record(stored.record)
    except UnknownRecordError as error:
        why = str(error)
    raise KafkaStorageError(
        f"the record of transactional id {transactional_id!r} cannot be used: {why}. Nothing was changed; inspect the "
        f"key {{txn:{transactional_id}}} of the store. If it is lost for good, delete the key: its open transaction is "
        "then aborted"
    )


def _away(transactional_id: str, error: StoreUnavailableError) -> CoordinatorNotAvailableError:
    return CoordinatorNotAvailableError(
        f"the store did not confirm the record of transactional id {transactional_id!r} in time ({error}); try again"
    )
