"""One at a time for each share-partition, in order of arrival [SC-99 R]."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kip932.ids import SharePartitionKey


class KeyLocks:
    """A lock for each key that somebody holds, with those who wait for it."""

    def __init__(self) -> None:
        self._held: dict[SharePartitionKey, deque[asyncio.Future[None]]] = {}

    @property
    def busy(self) -> int:
        """How many keys are held."""
        return len(self._held)

    def take(self, key: SharePartitionKey) -> bool:
        """Hold the key's lock from now on, unless somebody holds it."""
        if key in self._held:
            return False
        self._held[key] = deque()
        return True

    def give_back(self, key: SharePartitionKey) -> None:
        """Pass the lock on to who came next."""
        waiters = self._held[key]
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        del self._held[key]

    @asynccontextmanager
    async def hold(self, key: SharePartitionKey) -> AsyncIterator[None]:
        """Hold the key's lock; waits for those who came before."""
        if not self.take(key):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held[key].append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self.give_back(key)  # it had come to us already
                raise
        try:
            yield
        finally:
            self.give_back(key)
