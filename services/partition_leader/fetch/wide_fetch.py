"""Runs a ShareFetch over very many partitions: it goes through them in slices and lets other tasks run in between.

`fetch` does each attempt in one step; here it takes many turns of the event loop (CM-97). Such a walk first checks all
share-partitions without locks. If there is enough to read, it then locks, reads, acquires from and unlocks one slice
after another, until the budget is spent. It holds no fetch lock while other tasks run, except during a read from the
store. Between two slices anything may happen, so each step checks its share-partitions again, and whether the fetch is
still wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kip932.ids import SharePartitionKey
from partition_leader.fetch.core.fetch_policy import Step
from partition_leader.fetch.fetch import ShareFetchOperation
from shard_runtime.rpc.bounds import Turns

#: A fetch over more partitions than this goes through them in slices.
WIDE: Final = 500
#: How many partitions are checked, and how many are read from, in one turn of the event loop: about 5 ms each.
CHECK_SLICE: Final = 500
READ_SLICE: Final = 200
#: Creating a share-partition costs as much as checking this many.
_MAKE_COST: Final = 4


class WideShareFetch(ShareFetchOperation):
    """A fetch like its parent class, over many partitions. An attempt is a walk, and a walk is never cut short: if the
    deadline passes during a walk, that walk is the last attempt."""

    _walk: asyncio.Task[None] | None = None
    _woken = False
    _waits = False

    def start(self) -> None:
        """Start the first walk. It registers as a waiter on all partitions before it checks them, so a change in a
        partition that it has already passed causes another walk."""
        if self._budget.asks_for_nothing:
            self._complete()
            return
        self._parked = True
        self._arm()
        self._woken = True
        self._walk = asyncio.get_running_loop().create_task(self._run(), name="wide-share-fetch")

    def attempt(self) -> None:
        """Walk now or, if a walk is running, once more after it."""
        self._woken = True
        if not self._done and self._walk is None:
            self._walk = asyncio.get_running_loop().create_task(self._run(), name="wide-share-fetch")

    def acknowledged(self) -> None:
        """Do nothing: a walk does not wait for the acknowledgements, so their outcome is no reason for another one
        (PL-218)."""

    # --- the walk

    async def _run(self) -> None:
        try:
            if not self._waits:
                await self._wait()
            while self._woken and not self._done:
                self._woken = False
                await self._attempt()
        finally:
            self._walk = None

    async def _wait(self) -> None:
        """Register as a waiter on every partition, a slice at a time."""
        self._waits = True
        for first in range(0, len(self._keys), CHECK_SLICE):
            if self._done:
                return
            self._partitions.wait(self, self._keys[first : first + CHECK_SLICE])
            await asyncio.sleep(0)

    async def _attempt(self) -> None:
        if self._waits_for_quota():
            return
        lockable, available = await self._count_available()
        if self._done:
            return
        room = self._parameters.share.room_bytes
        step = self._budget.next_step(len(self._results), lockable, available, room, self._expired)
        if step is Step.READ:
            await self._take_in_turns(self._budget.bytes_each(lockable, room))
        elif step is Step.ANSWER:
            self._complete()

    async def _count_available(self) -> tuple[int, list[int]]:
        """Return how many share-partitions could be locked, and the bytes available in those that have any. Creates the
        share-partitions that do not exist yet."""
        lockable, available = 0, []
        turns = Turns(CHECK_SLICE)
        for key in self._keys:
            await turns.step(1 if self._partitions.has(key) else _MAKE_COST)
            if self._done:
                break
            if key in self._results:
                continue
            host = self._obtain(key)
            if host is not None and host.lockable():
                lockable += 1
                if found := host.bytes_available():
                    available.append(found)
        return lockable, available

    async def _take_in_turns(self, max_bytes: int) -> None:
        """Lock, read and acquire a slice at a time, until the budget is spent."""
        try:
            for first in range(0, len(self._keys), READ_SLICE):
                if self._done or self._budget.is_spent or self._comes_alone:
                    break
                await self._take_slice(self._keys[first : first + READ_SLICE], max_bytes)
                await asyncio.sleep(0)
        finally:
            self._complete()

    async def _take_slice(self, keys: Sequence[SharePartitionKey], max_bytes: int) -> None:
        reads = self._lock(self._lockable(keys))
        try:
            if not self._read_cached(reads, max_bytes):
                self._reading = asyncio.current_task()
                try:
                    await self._read_missing(reads, max_bytes)
                finally:
                    self._reading = None
            if not self._done:  # else it was answered during the read, and a late read acquires nothing (PL-213)
                self._acquire_from(reads)
        finally:
            self._unlock(reads)

    def _stop_waiting(self) -> None:
        self._partitions.stop_waiting_in_turns(self, self._keys)
