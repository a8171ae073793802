"""One at a time for each share-partition, in order of arrival [SC-99 R]."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kip932.ids import SharePartitionKey


class KeyLocks:
    """A lock for each key that somebody holds or waits for."""

    def __init__(self) -> None:
        self._locks: dict[SharePartitionKey, asyncio.Lock] = {}
        self._users: dict[SharePartitionKey, int] = {}

    @property
    def busy(self) -> int:
        """How many keys are held or waited for."""
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: SharePartitionKey) -> AsyncIterator[None]:
        """Hold the key's lock; waits for those who came before."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
