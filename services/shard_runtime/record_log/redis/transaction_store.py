"""The records of transactional ids in a store (CM-151): compare-and-set, and reads that no fail-over undoes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Final

from kip932.entry_checksum import checksum
from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    Command,
    ErrorReply,
    Reply,
    StoreSettings,
    parse_replication,
)
from shard_runtime.record_log.redis.keys import TRANSACTION_PREFIX, transaction_id, transaction_key
from shard_runtime.record_log.redis.query_connection import QueryConnections
from shard_runtime.record_log.transaction_store import BadCursorError, StoredTransaction, TransactionPage

#: Bounds of a page: the keys that the store scans in one step, the steps, and the records after which no further step
#: is made. A page costs the store a few milliseconds, about one for each step.
_SCAN_KEYS: Final = 1_000
_STEPS_MAX: Final = 20
_PAGE_RECORDS: Final = 250
_BEGINNING: Final = "0"
_CURSOR_DIGITS: Final = 20
_TYPE: Final = "T"
_NOWHERE: Final = (0, 0)


class StoreTransactionStore:
    """`TransactionStore` over any store. `queries`: shared connections, which it does not close."""

    def __init__(self, queries: QueryConnections, settings: StoreSettings) -> None:
        self._queries = queries
        self._settings = settings

    async def read(self, transactional_id: str) -> StoredTransaction:
        """Return the record. The script also writes, so the WAIT after it proves that the record is durable."""
        key = transaction_key(transactional_id)
        now_ms, *found = await self._durable(key, ("EVALSHA", scripts.TRANSACTION_READ.digest, 1, key))
        if not found:
            return StoredTransaction(None, now_ms)
        record, proof = found
        return _stored(key, now_ms, record, proof)

    async def change(
        self, transactional_id: str, before: bytes | None, record: bytes, expires_ms: int
    ) -> StoredTransaction | None:
        """Compare and set. The call is repeated after a lost reply, for a bounded time."""
        key = transaction_key(transactional_id)
        digest = "" if before is None else hashlib.sha1(before, usedforsecurity=False).hexdigest()
        proof = checksum(key, _NOWHERE, _TYPE, record)
        command: Command = (
            "EVALSHA", scripts.TRANSACTION_CHANGE.digest, 1, key, digest, record, proof, expires_ms,
        )  # fmt: skip
        changed, now_ms, *_ = await self._durable(key, command)
        return StoredTransaction(record, now_ms) if changed else None

    async def page(self, cursor: str) -> TransactionPage:
        """Read a page, scanning one node after another. SCAN finds every key that exists from its beginning to its
        end."""
        nodes = await self._queries.nodes()
        node, _, at = cursor.rpartition("|") if cursor else (nodes[0], "", _BEGINNING)
        if node not in nodes or not (at.isascii() and at.isdecimal() and len(at) <= _CURSOR_DIGITS):
            raise BadCursorError(
                f"no page of transactions ended at {cursor[:100]!r}, or the store's nodes are others now"
            )
        keys: dict[str, None] = {}
        for _ in range(_STEPS_MAX):
            at, found = (await self._asked(node, ("SCAN", at, "MATCH", f"{TRANSACTION_PREFIX}*", "COUNT", _SCAN_KEYS)))[
                0
            ]
            at = at.decode()
            keys.update((key.decode(), None) for key in found if transaction_id(key) is not None)
            if at == _BEGINNING or len(keys) >= _PAGE_RECORDS:
                break
        (seconds, micros), *read = await self._asked(node, ("TIME",), *(("HMGET", key, "r", "c", "x") for key in keys))
        now_ms = int(seconds) * 1_000 + int(micros) // 1_000
        records = [
            (str(transaction_id(key.encode())), _stored(key, now_ms, record, proof or b""))
            for key, (record, proof, expires) in zip(keys, read, strict=True)
            if record is not None and (expires == b"0" or int(expires or 0) > now_ms)
        ]
        return TransactionPage(records, self._next_cursor(nodes, node, at), now_ms)

    @staticmethod
    def _next_cursor(nodes: Sequence[str], node: str, at: str) -> str:
        if at != _BEGINNING:
            return f"{node}|{at}"
        following = nodes[nodes.index(node) + 1 :]
        return f"{following[0]}|{_BEGINNING}" if following else ""

    async def _asked(self, node: str, *commands: Command) -> list[Reply]:
        """The replies of one node. Raises StoreUnavailableError, also for a refusal."""
        replies = (await self._queries.repeat_at(node, commands)).replies
        refused = next((reply for reply in replies if isinstance(reply, ErrorReply)), None)
        if refused is not None:
            raise StoreUnavailableError(f"store node {node}: reading records of transactions: it refused: {refused}")
        return replies

    async def _durable(self, key: str, command: Command) -> list[Reply]:
        """Return the reply once as many replicas as an append needs have what it wrote or read, under one history.

        A repeated change may find that it was already made: then the function answers as it did the first time.
        """
        wait, pause_ms = self._settings.append_replicas, self._settings.backoff_ms
        last = "no answer came in time"
        try:
            async with asyncio.timeout(self._settings.call_ms / 1000):
                while True:
                    try:
                        answered = await self._queries.once(key, (INFO_REPLICATION, command), wait)
                    except StoreUnavailableError as error:
                        last = str(error)
                    else:
                        before, reply = answered.replies
                        if isinstance(reply, ErrorReply):
                            raise StoreUnavailableError(f"{key}: the store refused: {reply}")
                        if answered.acked >= wait and parse_replication(before).history == answered.history:
                            return list(reply)
                        last = f"it is not on {wait} replicas as yet"
                    await asyncio.sleep(pause_ms / 1000)
                    pause_ms = min(pause_ms * 2, self._settings.backoff_max_ms)
                    await self._queries.refresh_nodes()
        except TimeoutError:
            raise StoreUnavailableError(f"{key}: {last}; a change of it may be in force") from None


def record_fields(key: str, record: bytes) -> dict[bytes, bytes]:
    """The fields that a backup holds for a record; they say that it does not expire."""
    return {b"r": record, b"c": checksum(key, _NOWHERE, _TYPE, record), b"x": b"0"}


def _stored(key: str, now_ms: int, record: bytes, proof: bytes) -> StoredTransaction:
    intact = proof == checksum(key, _NOWHERE, _TYPE, record)
    return StoredTransaction(record, now_ms, "" if intact else "its checksum does not fit its bytes")
