"""Bounds the bytes of requests and responses in flight at one node, and shares them between connections (CM-92).

Use it on one event loop. It counts and waits; its callers refuse calls and write the messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: How long a call waits for room before it is throttled: asked to retry later.
WAIT_S: Final = 1.0
#: After how many milliseconds a throttled caller may retry.
THROTTLE_MS: Final = 500
#: A connection that holds more than this is heavy: the heavy connections share the budget.
_HEAVY_BYTES: Final = 256 * 1024
_DEFAULT_MIN: Final = 64 * 1024 * 1024
_DEFAULT_MAX: Final = 1024 * 1024 * 1024
_PART: Final = 8
_FOR_EVER_S: Final = 1e6
_RESERVED_S: Final = 0.25
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_MEMORY_INFO: Final = "/proc/meminfo"


class Budget:
    """A budget of `total_bytes` for all connections. A connection is named by its id, such as gRPC's peer name.

    One connection may hold `total / (other heavy connections + 2)`: half of all when it is the only heavy one, and less
    when there are more, so that a new connection always finds room. A connection that holds nothing may take all free
    bytes. The last eighth of the budget is for connections that are not heavy, so that the heavy ones delay no small
    call; while nothing is held at all, one request may have it too.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes: Final = total_bytes
        self._for_heavy: Final = total_bytes - total_bytes // _PART
        self.used_bytes = 0
        self.throttled = 0
        self.on_throttled: Callable[[str], None] = lambda connection: None
        self.suspects: set[str] = set()
        """Connections that a caller has marked; `give` removes one that has given everything back."""
        self._held: dict[str, int] = {}
        self._heavy = 0
        self._waiting: deque[tuple[str, int, asyncio.Future[None]]] = deque()
        self._waiting_bytes = 0

    def held(self, connection: str) -> int:
        """Bytes this connection holds."""
        return self._held.get(connection, 0)

    def share(self, connection: str) -> int:
        """The most bytes this connection may hold at present."""
        others = self._heavy - (self.held(connection) > _HEAVY_BYTES)
        return self.total_bytes // (others + 2)

    def room(self, connection: str) -> int:
        """Bytes this connection may take in addition; 0 for none."""
        held, free = self._held.get(connection, 0), self._for_heavy - self.used_bytes
        if free < _HEAVY_BYTES - held:
            free = min(_HEAVY_BYTES - held, self.total_bytes - self.used_bytes)
        room = self.total_bytes // (self._heavy - (held > _HEAVY_BYTES) + 2) - held  # its share, less what it holds
        return 0 if free < 0 or room < 0 else room if room < free else free

    @property
    def is_short(self) -> bool:
        """Whether calls wait for room."""
        return bool(self._waiting)

    def above_share(self) -> dict[str, int]:
        """Return connection → bytes, for connections above their share: it was larger when they took the bytes.

        When little is left, also include those that hold more than an equal part; otherwise many connections with a
        little each could keep everything.
        """
        equal, much = self.total_bytes, self._for_heavy - self.total_bytes // _PART
        if self.used_bytes > much:
            equal = much // len(self._held)  # so at least one connection has more
        return {
            name: size
            for name, size in self._held.items()
            if size > equal or (size > _HEAVY_BYTES and size > self.share(name))
        }

    def take(self, connection: str, size: int) -> bool:
        """Take `size` bytes if there is room. Returns whether they were taken; if so, give them back with `give`."""
        held = self._held.get(connection, 0)
        # While nothing is held a heavy request may have all, or one as large as a small budget would never be served.
        whole = held + size <= _HEAVY_BYTES or not self.used_bytes
        most = self.total_bytes if whole else self._for_heavy
        if self.used_bytes + size > most or (held and held + size > self.share(connection)):
            return False
        self.add(connection, size)
        return True

    def add(self, connection: str, size: int) -> None:
        """Take `size` bytes that are already in memory, even without room."""
        if not size:
            return
        held = self._held.get(connection, 0)
        self._held[connection] = held + size
        self.used_bytes += size
        if held <= _HEAVY_BYTES < held + size:
            self._heavy += 1

    def give(self, connection: str, size: int) -> None:
        """Give `size` bytes back; admit waiting calls, the oldest first."""
        if not size:
            return
        held = self._held[connection]
        left = held - size
        self.used_bytes -= size
        if left:
            self._held[connection] = left
        else:
            del self._held[connection]
            self.suspects.discard(connection)
        if left <= _HEAVY_BYTES < held:
            self._heavy -= 1
        if self._waiting:
            self._admit()

    async def wait(self, connection: str, size: int, wait_s: float = WAIT_S, *, there: bool = True) -> bool:
        """Take `size` bytes, waiting up to `wait_s` for room. Returns whether they were taken.

        `there`: the bytes are in memory during the wait, so return False at once when too many such bytes already wait.
        """
        if self.take(connection, size):
            return True
        waiting = size if there else 0
        if self._waiting_bytes and waiting and self._waiting_bytes + waiting > self.total_bytes // _PART:
            self.throttle(connection)
            return False
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((connection, size, admitted))
        self._waiting_bytes += waiting
        try:
            async with asyncio.timeout(wait_s):
                await admitted
        except TimeoutError:
            if admitted.done() and not admitted.cancelled():
                return True  # admitted in the same turn of the event loop: the bytes are already taken for it
            self.throttle(connection)
            return False
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.give(connection, size)  # it was admitted just as the call ended
            raise
        finally:
            self._waiting_bytes -= waiting
            if not admitted.done() or admitted.cancelled():
                self._waiting = deque(one for one in self._waiting if one[2] is not admitted)
        return True

    def throttle(self, connection: str) -> None:
        """Count a throttled call of this connection, and report it."""
        self.throttled += 1
        self.on_throttled(connection)

    def _admit(self) -> None:
        """Admit waiting calls that fit, in order of arrival. One that does not fit delays only later calls of its own
        connection."""
        left: deque[tuple[str, int, asyncio.Future[None]]] = deque()
        passed: set[str] = set()
        for one in self._waiting:
            connection, size, admitted = one
            if admitted.done():
                continue
            if connection not in passed and self.take(connection, size):
                admitted.set_result(None)
            else:
                passed.add(connection)
                left.append(one)
        self._waiting = left


class Share:
    """One connection's part of a budget, as a service sees it."""

    __slots__ = ("_budget", "_connection")

    def __init__(self, budget: Budget, connection: str) -> None:
        self._budget = budget
        self._connection = connection

    @property
    def room_bytes(self) -> int:
        """Bytes that may be taken in addition; 0 for none."""
        return self._budget.room(self._connection)

    async def wait(self, size: int, wait_s: float) -> bool:
        """Take `size` bytes, waiting up to `wait_s` for room. Returns False when there was none."""
        budget, connection = self._budget, self._connection
        return budget.take(connection, size) or await budget.wait(connection, size, wait_s, there=False)

    def add(self, size: int) -> None:
        """Take bytes that are already in memory."""
        self._budget.add(self._connection, size)

    def give(self, size: int) -> None:
        """Give bytes back."""
        self._budget.give(self._connection, size)


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
UNBOUNDED: Final = Share(Budget(1 << 62), "")


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
