"""A ShareFetch over more partitions than are looked at in one go: it walks through them and lets others act in between.

What `fetch` does in one step is done here in turns (CM-97): first a look without locks at what there is, then,
when that is enough, slice after slice is locked, read, acquired from and unlocked, until the records are enough. No
fetch lock is held while others act, but for a read from the store. So between two slices anything may happen: every
step looks anew at the share-partitions it finds, and at whether somebody still waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kip932.ids import SharePartitionKey
from partition_leader.share.core.fetch_policy import Step
from partition_leader.share.fetch import ShareFetchOperation
from shard_runtime.rpc.bounds import Turns

#: Sessions of more partitions than this are walked through in turns.
WIDE: Final = 500
#: Partitions looked at, and read from, without letting go of the event loop: some 5 ms each.
LOOK_SLICE: Final = 500
READ_SLICE: Final = 200
#: A share-partition that is made by the look costs as much as looking at so many.
_MADE: Final = 4


class WideShareFetch(ShareFetchOperation):
    """As its parent, over many partitions. Its walk goes on until it is done, however long that takes: when the
    deadline passes meanwhile, this walk is the last attempt."""

    _walk: asyncio.Task[None] | None = None
    _woken = False
    _waits = False

    def start(self) -> None:
        """Begin the first walk. Waiters come first: what changes behind the walk brings another one."""
        if self._budget.asks_for_nothing:
            self._complete()
            return
        self._parked = True
        self._arm()
        self._woken = True
        self._walk = asyncio.get_running_loop().create_task(self._run(), name="wide-share-fetch")

    def attempt(self) -> None:
        """Walk, or once more after the present walk."""
        self._woken = True
        if not self._done and self._walk is None:
            self._walk = asyncio.get_running_loop().create_task(self._run(), name="wide-share-fetch")

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
        """Be woken by every partition."""
        self._waits = True
        for first in range(0, len(self._keys), LOOK_SLICE):
            if self._done:
                return
            self._partitions.wait(self, self._keys[first : first + LOOK_SLICE])
            await asyncio.sleep(0)

    async def _attempt(self) -> None:
        lockable, available = await self._look()
        if self._done:
            return
        room = self._parameters.share.room_bytes
        step = self._budget.next_step(len(self._results), lockable, available, room, self._expired)
        if step is Step.READ:
            await self._take_in_turns(self._budget.bytes_each(lockable, room))
        elif step is Step.ANSWER:
            self._complete()

    async def _look(self) -> tuple[int, list[int]]:
        """How many share-partitions could be locked, and the bytes of those that have some. Makes those not there."""
        lockable, available = 0, []
        turns = Turns(LOOK_SLICE)
        for key in self._keys:
            await turns.step(1 if self._partitions.has(key) else _MADE)
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
                if self._done or self._budget.is_spent:
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
            if not self._done:  # answered meanwhile: a late read acquires nothing
                self._acquire_from(reads)
        finally:
            self._unlock(reads)

    def _stop_waiting(self) -> None:
        self._partitions.stop_waiting_in_turns(self, self._keys)
