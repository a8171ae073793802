"""A lock for each share-partition, granted in order of arrival [SC-99 R]."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kip932.ids import SharePartitionKey


class KeyLocks:
    """Keeps the locks that are held now, each with its waiting callers."""

    def __init__(self) -> None:
        self._held: dict[SharePartitionKey, deque[asyncio.Future[None]]] = {}

    @property
    def busy(self) -> int:
        """How many keys are held."""
        return len(self._held)

    def take(self, key: SharePartitionKey) -> bool:
        """Take the key's lock if it is free. Returns whether it was taken; if so, call `give_back` later."""
        if key in self._held:
            return False
        self._held[key] = deque()
        return True

    def give_back(self, key: SharePartitionKey) -> None:
        """Pass the lock to the caller that has waited longest, or free it."""
        waiters = self._held[key]
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        del self._held[key]

    @asynccontextmanager
    async def hold(self, key: SharePartitionKey) -> AsyncIterator[None]:
        """Hold the key's lock, after all callers that arrived before."""
        if not self.take(key):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held[key].append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self.give_back(key)  # the lock was passed to this caller just before it was cancelled
                raise
        try:
            yield
        finally:
            self.give_back(key)
