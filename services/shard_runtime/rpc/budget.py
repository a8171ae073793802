"""Bounds the bytes of requests and responses in flight at one node, and shares them between users, and between the
connections of each (CM-92).

Use it on one event loop. It counts and waits; its callers refuse calls and write the messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from shard_runtime.rpc.bounds import LargeWork

#: How long a call waits for room before it is throttled: asked to retry later.
WAIT_S: Final = 1.0
#: The time after which a throttled caller may retry, in milliseconds.
THROTTLE_MS: Final = 500
#: A user, or a connection, that holds more than this is heavy: the heavy ones share the budget.
_HEAVY_BYTES: Final = 256 * 1024
_DEFAULT_MIN: Final = 64 * 1024 * 1024
_DEFAULT_MAX: Final = 1024 * 1024 * 1024
_PART: Final = 8
#: A user's connections that are not heavy may exceed its share by one part of it in this many.
_EXTRA_PART: Final = 16
_FOR_EVER_S: Final = 1e6
_RESERVED_S: Final = 0.25
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_MEMORY_INFO: Final = "/proc/meminfo"


class Holder(NamedTuple):
    """Who holds bytes: a connection, and the user who calls over it. `user`: "" if it is not known; then the connection
    counts as a user of its own."""

    connection: str
    user: str = ""

    @property
    def owner(self) -> str:
        """Whose fair share it is: the user's, else the connection's."""
        return self.user or self.connection


class _Owner:
    """What one user holds over all of its connections. `heavy`: how many of them hold much."""

    __slots__ = ("heavy", "held", "holders")

    def __init__(self) -> None:
        self.held = self.heavy = self.holders = 0


class _Queue:
    """The calls of one user that wait for room, in order of arrival. `there_bytes`: those of them in memory."""

    __slots__ = ("calls", "there_bytes")

    def __init__(self) -> None:
        self.calls: dict[asyncio.Future[None], tuple[Holder, int]] = {}
        self.there_bytes = 0


class Budget:
    """A budget of `total_bytes` for all users and connections.

    The users share it first. One user may hold `total / (other heavy users + 2)`, and two thirds of all while no other
    one is heavy; so a new user always finds room. Its connections share that: each may hold `total / (other heavy
    connections of the user + other heavy users + 2)`. A connection that holds nothing may take all that its user may.
    The last eighth of the budget is for users that are not heavy, so that the heavy ones delay no small call, and a
    sixteenth beyond its share is for a user's connections that are not heavy. While nothing is held at all, one request
    may have everything. A connection without a known user is a user of its own.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes: Final = total_bytes
        self._for_heavy: Final = total_bytes - total_bytes // _PART
        self.used_bytes = 0
        self.throttled = 0
        self.on_throttled: Callable[[Holder], None] = lambda holder: None
        self.large_work: Final = LargeWork()
        self.suspects: set[Holder] = set()
        """Holders that a caller has marked; `give` removes one that has given everything back."""
        self._held: dict[Holder, int] = {}
        self._owners: dict[str, _Owner] = {}
        self._heavy_owners = 0
        self._waiting: dict[str, _Queue] = {}
        self._waiting_bytes = 0

    def held(self, holder: Holder) -> int:
        """Bytes that this user holds over this connection."""
        return self._held.get(holder, 0)

    def held_by(self, owner: str) -> int:
        """Bytes that this user holds over all connections; without a known user, those of this connection."""
        return self._owners.get(owner, _NOTHING).held

    def share(self, holder: Holder) -> int:
        """The most bytes this user may hold over this connection at present."""
        owner = self._owners.get(holder.owner, _NOTHING)
        others = owner.heavy - (self.held(holder) > _HEAVY_BYTES)
        return self.total_bytes // (others + self._others(owner) + 2)

    def room(self, holder: Holder) -> int:
        """Bytes this user may take in addition over this connection; 0 for none."""
        held, owner = self._held.get(holder, 0), self._owners.get(holder.owner, _NOTHING)
        free = self._for_heavy - self.used_bytes
        if free < _HEAVY_BYTES - owner.held:
            free = min(_HEAVY_BYTES - owner.held, self.total_bytes - self.used_bytes)
        others = self._others(owner)
        room = self.total_bytes // (owner.heavy - (held > _HEAVY_BYTES) + others + 2) - held
        room = min(room, free)
        if owner.held > held:  # over other connections, too
            share = self._user_share(owner)
            of_user = max(share - owner.held, min(share + share // _EXTRA_PART - owner.held, _HEAVY_BYTES - held))
            room = min(room, of_user)
        return 0 if room < 0 else room

    @property
    def is_short(self) -> bool:
        """Whether calls wait for room."""
        return bool(self._waiting)

    def above_share(self) -> dict[Holder, int]:
        """Return holder → bytes, for those above their share: it was larger when they took the bytes. For a user
        above its share: those that hold more than an equal part of it.

        When little is left, also include those that hold more than an equal part of the budget; otherwise many
        connections with a little each could keep everything.
        """
        equal, much = self.total_bytes, self._for_heavy - self.total_bytes // _PART
        if self.used_bytes > much:
            equal = much // len(self._held)  # so at least one connection has more
        return {
            holder: size
            for holder, size in self._held.items()
            if size > equal
            or (size > _HEAVY_BYTES and size > self.share(holder))
            or size > self._equal_part(self._owners[holder.owner])
        }

    def take(self, holder: Holder, size: int) -> bool:
        """Take `size` bytes if there is room. Returns whether they were taken; if so, give them back with `give`."""
        owner = self._owners.get(holder.owner, _NOTHING)
        # While nothing is held a heavy request may have all, or one as large as a small budget would never be served.
        whole = owner.held + size <= _HEAVY_BYTES or not self.used_bytes
        if self.used_bytes + size > (self.total_bytes if whole else self._for_heavy):
            return False
        held = self._held.get(holder, 0)
        if held and held + size > self.share(holder):
            return False
        if owner.held > held:  # over other connections, too
            share = self._user_share(owner)
            if owner.held + size > (share + share // _EXTRA_PART if held + size <= _HEAVY_BYTES else share):
                return False
        self.add(holder, size)
        return True

    def add(self, holder: Holder, size: int) -> None:
        """Take `size` bytes that are already in memory, even without room."""
        if not size:
            return
        held = self._held.get(holder, 0)
        owner = self._owners.get(holder.owner)
        if owner is None:
            owner = self._owners[holder.owner] = _Owner()
        owner.holders += not held
        owner.heavy += held <= _HEAVY_BYTES < held + size
        self._heavy_owners += owner.held <= _HEAVY_BYTES < owner.held + size
        self._held[holder] = held + size
        owner.held += size
        self.used_bytes += size

    def give(self, holder: Holder, size: int) -> None:
        """Give `size` bytes back; admit waiting calls (`_admit`)."""
        if not size:
            return
        held, owner = self._held[holder], self._owners[holder.owner]
        left = held - size
        owner.holders -= not left
        owner.heavy -= left <= _HEAVY_BYTES < held
        self._heavy_owners -= owner.held - size <= _HEAVY_BYTES < owner.held
        owner.held -= size
        self.used_bytes -= size
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]
            self.suspects.discard(holder)
            if not owner.holders:
                del self._owners[holder.owner]
        if self._waiting:
            self._admit()

    async def wait(self, holder: Holder, size: int, wait_s: float = WAIT_S, *, there: bool = True) -> bool:
        """Take `size` bytes, waiting up to `wait_s` for room. Returns whether they were taken.

        `there`: the bytes are in memory during the wait, so return False at once when too many such bytes already wait,
        or half as many of this user alone.
        """
        if self.take(holder, size):
            return True
        queue = self._waiting.get(holder.owner)
        waiting = size if there else 0
        if waiting and self._too_many_wait(queue, waiting):
            self.throttle(holder)
            return False
        if queue is None:
            queue = self._waiting[holder.owner] = _Queue()
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.calls[admitted] = holder, size
        queue.there_bytes += waiting
        self._waiting_bytes += waiting
        try:
            async with asyncio.timeout(wait_s):
                await admitted
        except TimeoutError:
            if admitted.done() and not admitted.cancelled():
                return True  # admitted in the same turn of the event loop: the bytes are already taken for it
            self.throttle(holder)
            return False
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.give(holder, size)  # it was admitted just as the call ended
            raise
        finally:
            self._waiting_bytes -= waiting
            queue.there_bytes -= waiting
            queue.calls.pop(admitted, None)
            if not queue.calls and self._waiting.get(holder.owner) is queue:
                del self._waiting[holder.owner]
        return True

    def throttle(self, holder: Holder) -> None:
        """Count a throttled call, and report it."""
        self.throttled += 1
        self.on_throttled(holder)

    def _others(self, owner: _Owner) -> int:
        """How many other users are heavy."""
        return self._heavy_owners - (owner.held > _HEAVY_BYTES)

    def _user_share(self, owner: _Owner) -> int:
        others = self._others(owner)
        return self.total_bytes // (others + 2) if others else self.total_bytes * 2 // 3

    def _is_full_for(self, owner: _Owner) -> bool:
        """Return whether this user may take nothing more, not even a small request over another connection."""
        share = self._user_share(owner)
        several = owner.holders > 1
        return self.used_bytes >= self.total_bytes or (several and owner.held >= share + share // _EXTRA_PART)

    def _equal_part(self, owner: _Owner) -> int:
        """What each connection of a user above its share would hold if all held the same and the user no more than its
        share; everything for other users."""
        share = self._user_share(owner)
        return self.total_bytes if owner.held <= share + share // _EXTRA_PART else share // owner.holders

    def _too_many_wait(self, queue: _Queue | None, waiting: int) -> bool:
        most = self.total_bytes // _PART
        if self._waiting_bytes and self._waiting_bytes + waiting > most:
            return True
        return queue is not None and queue.there_bytes > 0 and queue.there_bytes + waiting > most // 2

    def _admit(self) -> None:
        """Admit waiting calls that fit: one of each user in turn, and of each user in order of arrival. One that does
        not fit delays only later calls of its own user over its own connection."""
        turn = deque(self._waiting)
        while turn:
            owner = turn.popleft()
            queue = self._waiting[owner]
            if not self._admit_one(queue):
                continue
            del self._waiting[owner]
            if queue.calls:  # it comes after the others now, also next time
                self._waiting[owner] = queue
                turn.append(owner)

    def _admit_one(self, queue: _Queue) -> bool:
        """Admit the oldest of a user's calls that fits. Returns whether there was one."""
        passed: set[str] = set()
        for admitted, (holder, size) in queue.calls.items():
            if admitted.done() or holder.connection in passed:
                continue
            if self._is_full_for(self._owners.get(holder.owner, _NOTHING)):
                return False  # whichever connection asks: there may be hundreds
            if self.take(holder, size):
                del queue.calls[admitted]
                admitted.set_result(None)
                return True
            passed.add(holder.connection)
        return False


_NOTHING: Final = _Owner()


class Share:
    """One user's part of a budget over one connection, as a service sees it."""

    __slots__ = ("_budget", "holder")

    def __init__(self, budget: Budget, holder: Holder) -> None:
        self._budget = budget
        self.holder = holder

    @property
    def room_bytes(self) -> int:
        """Bytes that may be taken in addition; 0 for none."""
        return self._budget.room(self.holder)

    async def wait(self, size: int, wait_s: float) -> bool:
        """Take `size` bytes, waiting up to `wait_s` for room. Returns False when there was none."""
        return await self._budget.wait(self.holder, size, wait_s, there=False)

    async def turn(self, size: int) -> None:
        """Wait for a turn of the event loop to work on `size` bytes in one step (`LargeWork`)."""
        await self._budget.large_work.turn(size)

    def add(self, size: int) -> None:
        """Take bytes that are already in memory."""
        self._budget.add(self.holder, size)

    def give(self, size: int) -> None:
        """Give bytes back."""
        self._budget.give(self.holder, size)


class Reserved:
    """Room reserved for a stream's next message; otherwise all waiting streams would read one at the same moment."""

    __slots__ = ("_share", "_size", "_timer")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    async def until_room(self, size: int) -> None:
        """Wait for room for `size` bytes, without a time-out, and reserve it for a moment.

        Until this returns, do not read the stream: that stops its client from sending.
        """
        if await self._share.wait(size, _FOR_EVER_S):
            self._size = size
            self._timer = asyncio.get_running_loop().call_later(_RESERVED_S, self.came)

    def came(self) -> None:
        """Give the reserved room back: the message arrived and is counted itself, or it did not arrive soon."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._share.give(self._size)


#: For calls without a bound: those inside one process.
UNBOUNDED: Final = Share(Budget(1 << 62), Holder(""))


def default_bytes() -> int:
    """Return an eighth of the memory that this process may use, at least 64 MiB and at most 1 GiB.

    Each counted byte is in memory up to three times: as received, parsed, and in the response.
    """
    return min(_DEFAULT_MAX, max(_DEFAULT_MIN, memory_bytes() // _PART))


def memory_bytes(limits: tuple[str, ...] = _CGROUP_LIMITS, machine: str = _MEMORY_INFO) -> int:
    """Return the container's memory limit (cgroup v2, else v1), or the machine's memory when there is no limit or that
    is less."""
    total = 1 << 62
    try:
        words = Path(machine).read_text(encoding="utf-8").split()
        total = int(words[words.index("MemTotal:") + 1]) * 1024
    except (OSError, ValueError):
        pass
    for limit in limits:
        try:
            return min(total, int(Path(limit).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # no such file in this cgroup version, or "max"
            continue
    return total
