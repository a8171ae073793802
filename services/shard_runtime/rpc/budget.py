"""Bytes of requests and answers in flight at one node, bounded as a whole and shared out between connections (CM-92).

For one event loop. It waits and counts; who is refused, and with what words, is its callers' part.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: How long a call waits for room before it is told to come again later.
WAIT_S: Final = 1.0
#: When to come again, in milliseconds.
THROTTLE_MS: Final = 500
#: A connection that holds more than this is one of those that share the budget.
_HEAVY_BYTES: Final = 256 * 1024
_DEFAULT_MIN: Final = 64 * 1024 * 1024
_DEFAULT_MAX: Final = 1024 * 1024 * 1024
_PART: Final = 8
_FOR_EVER_S: Final = 1e6
_RESERVED_S: Final = 0.25
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_MEMORY_INFO: Final = "/proc/meminfo"


class Budget:
    """`total_bytes` for all connections. A connection is known by its id, such as gRPC's name of the peer.

    One connection may hold `total / (connections that hold much + 1)`: half of all when it is the only one, and
    less the more there are, so that a newcomer always finds room. One that holds nothing may take whatever is free.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes: Final = total_bytes
        self.used_bytes = 0
        self.throttled = 0
        self.on_throttled: Callable[[str], None] = lambda connection: None
        self.suspects: set[str] = set()
        """Connections that somebody watches; one that has given all back is none any more."""
        self._held: dict[str, int] = {}
        self._heavy = 0
        self._waiting: deque[tuple[str, int, asyncio.Future[None]]] = deque()
        self._waiting_bytes = 0

    def held(self, connection: str) -> int:
        """What this connection holds."""
        return self._held.get(connection, 0)

    def share(self, connection: str) -> int:
        """What this connection may hold at present."""
        others = self._heavy - (self.held(connection) > _HEAVY_BYTES)
        return self.total_bytes // (others + 2)

    def room(self, connection: str) -> int:
        """What this connection may take in addition; 0 when nothing."""
        free = self.total_bytes - self.used_bytes
        return max(0, min(free, self.share(connection) - self.held(connection)))

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    def above_share(self) -> dict[str, int]:
        """What those hold that have more than their share, since it was more when they took it.

        When little is left, also what those hold that have more than an equal part: many connections that hold a
        little each would else keep all of it.
        """
        equal, much = self.total_bytes, self.total_bytes - self.total_bytes // _PART
        if self.used_bytes > much:
            equal = much // len(self._held)  # so somebody has more
        return {
            name: size
            for name, size in self._held.items()
            if size > equal or (size > _HEAVY_BYTES and size > self.share(name))
        }

    def take(self, connection: str, size: int) -> bool:
        """Take `size` bytes if there is room."""
        held = self._held.get(connection, 0)
        if self.used_bytes + size > self.total_bytes or (held and held + size > self.share(connection)):
            return False
        self.add(connection, size)
        return True

    def add(self, connection: str, size: int) -> None:
        """Take `size` bytes that are there already, room or not."""
        if not size:
            return
        held = self._held.get(connection, 0)
        self._held[connection] = held + size
        self.used_bytes += size
        if held <= _HEAVY_BYTES < held + size:
            self._heavy += 1

    def give(self, connection: str, size: int) -> None:
        """Give `size` bytes back, and let in who waits, the oldest first."""
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
        """As `take`, waiting up to `wait_s` for room.

        `there`: the bytes lie in memory while they wait; then False comes at once when what waits is much already.
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
                return True  # let in in the same turn of the event loop: what was taken for it is its own
            self.throttle(connection)
            return False
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.give(connection, size)  # let in at the moment at which the call ended
            raise
        finally:
            self._waiting_bytes -= waiting
            if not admitted.done() or admitted.cancelled():
                self._waiting = deque(one for one in self._waiting if one[2] is not admitted)
        return True

    def throttle(self, connection: str) -> None:
        """A call of this connection is told to come again later."""
        self.throttled += 1
        self.on_throttled(connection)

    def _admit(self) -> None:
        """Let in those who fit, in order of arrival; one that does not fit holds up nobody of another connection."""
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
        """What may be taken in addition; 0 when nothing."""
        return self._budget.room(self._connection)

    async def wait(self, size: int, wait_s: float) -> bool:
        """Take `size` bytes, waiting up to `wait_s` for them; False when there was no room."""
        budget, connection = self._budget, self._connection
        return budget.take(connection, size) or await budget.wait(connection, size, wait_s, there=False)

    def add(self, size: int) -> None:
        """Take bytes that are there already."""
        self._budget.add(self._connection, size)

    def give(self, size: int) -> None:
        """Give them back."""
        self._budget.give(self._connection, size)


class Reserved:
    """Room for the next message of a stream: else all streams that waited would read one at the same moment."""

    __slots__ = ("_share", "_size", "_timer")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    async def until_room(self, size: int) -> None:
        """Wait for room for `size` bytes, however long that takes, and keep it for a moment.

        Who does not read a stream stops its client.
        """
        if await self._share.wait(size, _FOR_EVER_S):
            self._size = size
            self._timer = asyncio.get_running_loop().call_later(_RESERVED_S, self.came)

    def came(self) -> None:
        """The message has come, and is counted by itself; or it did not come at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._share.give(self._size)


#: For calls that no budget bounds: those inside one process.
UNBOUNDED: Final = Share(Budget(1 << 62), "")


def default_bytes() -> int:
    """An eighth of the memory that this process may have, at least 64 MiB and at most 1 GiB.

    Each byte counted lies in memory up to three times: as it came, parsed, and in the answer.
    """
    return min(_DEFAULT_MAX, max(_DEFAULT_MIN, memory_bytes() // _PART))


def memory_bytes(limits: tuple[str, ...] = _CGROUP_LIMITS, machine: str = _MEMORY_INFO) -> int:
    """The container's memory limit (cgroup v2, else v1), or the machine's memory when that is less or there is none."""
    total = 1 << 62
    try:
        words = Path(machine).read_text(encoding="utf-8").split()
        total = int(words[words.index("MemTotal:") + 1]) * 1024
    except (OSError, ValueError):
        pass
    for limit in limits:
        try:
            return min(total, int(Path(limit).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # none of this version, or "max"
            continue
    return total
