"""Cuts connections that occupy memory others need: with unfinished messages, or responses they do not read (CM-93).

gRPC buffers a message until all of it has arrived, and does not report how much it buffers. So this module asks the
kernel for the bytes that each connection has received, and subtracts the messages read from it. When these bytes plus
those in flight (`Budget`) exceed the budget, the connections with the most are cut. A connection is also cut when it
holds more than its share of the budget and gives nothing back while others are refused. A client that is cut connects
again. Connections that are not gRPC's join, and say themselves what they hold. One object watches all ports whose calls
draw from one budget: it could not say otherwise which of their connections hold the most (CM-246).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from shard_runtime.rpc.budget import Budget, Holder

#: How often the process's memory is checked, s: a client on the same machine sends tens of MiB in this time.
EVERY_S: Final = 0.05
#: One in this many checks also searches for connections that give nothing back.
_STALLED_EVERY: Final = 4
#: All connections are checked when the process has grown by a 16th of the budget, and at every 100th check.
_GROWTH_PART: Final = 16
FULL_CHECK_EVERY: Final = 100
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: How many descriptors are checked before other tasks get a turn.
SLICE: Final = 200
#: How long a connection above its share may give nothing back while others are refused, s.
STALLED_S: Final = 3.0
#: How long the client of a party has read nothing before it is cut because the budget is exceeded, s.
UNREAD_S: Final = 1.0
#: A connection that holds less than this is never cut.
CUT_MIN_BYTES: Final = 1024 * 1024
#: The layout and offset of `bytes_acked` and `bytes_received` in Linux's `struct tcp_info`.
_COUNTERS: Final = struct.Struct("=QQ")
_COUNTERS_AT: Final = 120
_TCP_INFO_BYTES: Final = _COUNTERS_AT + _COUNTERS.size
#: Allowance for HTTP/2's own bytes: per message, per check, and as fractions (1/n) of what is received and sent.
_MESSAGE_EXTRA: Final = 512
_CHECK_EXTRA: Final = 1024
_RECEIVED_PART: Final = 64
_SENT_PART: Final = 512
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)


class Party(Protocol):
    """A connection that is not gRPC's, and holds bytes of the same budget."""

    @property
    def held_bytes(self) -> int:
        """How many bytes of requests and answers it holds."""
        ...

    def unread_s(self, now_s: float) -> float:
        """Return for how long its client has read none of its answers; 0 if it reads them, or there are none."""
        ...

    def cut(self) -> None:
        """Close it at once."""
        ...


@dataclass(slots=True)
class Traffic:
    """Bytes and messages read from one connection since the last check."""

    bytes: int = 0
    messages: int = 0


@dataclass(slots=True)
class _Counters:
    received: int
    sent: int
    unfinished: int = 0


@dataclass(frozen=True, slots=True)
class _Port:
    """A port of this process. `begins`: how the names of its connections begin."""

    begins: str
    on_checked: Callable[[int], None]


class Unfinished:
    """Watches the connections of the ports that `add` names. `on_cut(peer, bytes)` is called for each one that is
    cut."""

    def __init__(self, budget: Budget, on_cut: Callable[[str, int], None]) -> None:
        self._budget = budget
        self._on_cut = on_cut
        self._ports: dict[int, _Port] = {}
        self._traffic: dict[str, Traffic] = {}
        self._seen: dict[str, _Counters] = {}
        self._task: asyncio.Task[None] | None = None
        self.unfinished_bytes = 0
        self.connections = 0
        """How many there were at the last check."""
        self._throttled = 0
        self._above: dict[Holder, tuple[int, float]] = {}  # the least bytes it held, and since when (s)
        self._to_cut: set[Holder] = set()
        self._parties: dict[str, Party] = {}

    def join(self, connection: str, party: Party) -> None:
        """Check a connection that is not gRPC's, too, from now on. `connection`: its name as a holder."""
        self._parties[connection] = party

    def leave(self, connection: str) -> None:
        """Forget a connection that has joined. Safe to repeat."""
        self._parties.pop(connection, None)

    def came(self, connection: str, size: int) -> None:
        """Count a message of this connection that reached its handler."""
        traffic = self._traffic.get(connection)
        if traffic is None:
            traffic = self._traffic[connection] = Traffic()
        traffic.bytes += size
        traffic.messages += 1

    def add(self, port: int, begins: str = "", on_checked: Callable[[int], None] = lambda number: None) -> None:
        """Check the connections to this port, too. `begins`: how their names begin, so that those of two ports differ;
        `on_checked` is called with their number after each check."""
        self._ports[port] = _Port(begins, on_checked)

    def start(self) -> None:
        """Start checking, if it has not started; needs a running event loop."""
        if not self.running:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="unfinished-messages")

    @property
    def running(self) -> bool:
        """Whether the checks run."""
        return self._task is not None and not self._task.done()

    async def stop(self, port: int) -> None:
        """End the checks of a port; with the last one the object stops."""
        self._ports.pop(port, None)
        if self._task is not None and not self._ports:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        resident, intervals = 0, 0
        for turn in itertools.count():
            await asyncio.sleep(EVERY_S)
            intervals += 1
            # Without a free descriptor the check fails; the counts stay and the next check continues from them.
            with contextlib.suppress(OSError):
                now = _resident_bytes()
                if now > resident + self._budget.total_bytes // _GROWTH_PART or intervals >= FULL_CHECK_EVERY:
                    await self.check(intervals)
                    resident, intervals = now, 0
                resident = min(resident, now)
                if turn % _STALLED_EVERY == 0 and self._stalled(asyncio.get_running_loop().time()):
                    await self.check(intervals)
                    intervals = 0

    async def check(self, intervals: int = 1) -> None:
        """Read every connection's counters from the kernel. Cut the stalled ones, and while the total is too high,
        those that hold most.

        `intervals`: how many times `EVERY_S` has passed since the last call. Raises OSError when the process has no
        free descriptor; the counts then stay.
        """
        present: dict[str, int] = {}
        at: Counter[int] = Counter()
        for number, descriptor in enumerate(_descriptors()):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            found = _counters(descriptor, self._ports)
            if found is not None:
                port, peer, received, sent = found
                at[port] += 1
                self._count(peer, received, sent, intervals)
                present[peer] = descriptor
        for peer in self._seen.keys() - present.keys():
            del self._seen[peer]
        for peer in self._traffic.keys() - present.keys():
            del self._traffic[peer]
        self.unfinished_bytes = sum(seen.unfinished for seen in self._seen.values())
        self._cut(present)
        self.connections = len(present)
        for port, each in self._ports.items():
            each.on_checked(at[port])

    def _count(self, peer: str, received: int, sent: int, intervals: int) -> None:
        seen = self._seen.get(peer)
        if seen is None:
            seen = self._seen[peer] = _Counters(0, 0)
        traffic = self._traffic.pop(peer, None) or Traffic()
        new_received, new_sent = received - seen.received, sent - seen.sent
        extra = intervals * _CHECK_EXTRA + traffic.messages * _MESSAGE_EXTRA
        extra += new_received // _RECEIVED_PART + new_sent // _SENT_PART
        seen.unfinished = max(0, seen.unfinished + new_received - traffic.bytes - extra)
        seen.received, seen.sent = received, sent

    def _stalled(self, now_s: float) -> bool:
        """Note connections above their share that give nothing back. Returns True when one has given nothing back for
        `STALLED_S` while others were refused."""
        throttled, self._throttled = self._throttled, self._budget.throttled
        above = self._budget.above_share()
        self._above = {
            holder: before
            if (before := self._above.get(holder)) and before[0] <= size and holder in self._budget.suspects
            else (size, now_s)
            for holder, size in above.items()
        }
        self._budget.suspects = set(self._above)
        if self._budget.throttled == throttled and not self._budget.is_short:
            return False
        self._to_cut = {holder for holder, (_, since_s) in self._above.items() if now_s - since_s >= STALLED_S}
        return bool(self._to_cut)

    def _cut(self, present: dict[str, int]) -> None:
        for holder in self._to_cut:
            party, size = self._parties.get(holder.connection), self._budget.held(holder)
            if party is not None:
                self._end_party(holder.connection, party, size)
            elif (descriptor := present.get(holder.connection)) is not None:
                self._end(descriptor, holder.connection, size)
        self._to_cut = set()
        over = self.unfinished_bytes + self._budget.used_bytes - self._budget.total_bytes
        for name, party in self._unread_longest() if over > 0 else ():
            if over <= 0:
                return
            size = party.held_bytes
            self._end_party(name, party, size)
            over -= size
        largest = sorted(self._seen, key=lambda peer: self._seen[peer].unfinished, reverse=True)
        for peer in largest:
            size = self._seen[peer].unfinished
            if over <= 0 or size < CUT_MIN_BYTES:
                return
            self._end(present[peer], peer, size)
            over -= size

    def _unread_longest(self) -> list[tuple[str, Party]]:
        """Return the parties whose clients read nothing, the one that has read nothing for longest first."""
        now_s = asyncio.get_running_loop().time()
        unread = [(party.unread_s(now_s), name) for name, party in self._parties.items()]
        return [
            (name, self._parties[name])
            for unread_s, name in sorted(unread, reverse=True)
            if unread_s >= UNREAD_S and self._parties[name].held_bytes >= CUT_MIN_BYTES
        ]

    def _end_party(self, name: str, party: Party, size: int) -> None:
        self.leave(name)
        party.cut()
        self._on_cut(name, size)

    def _end(self, descriptor: int, peer: str, size: int) -> None:
        same = _same_socket(descriptor)
        if same is not None:
            with same, contextlib.suppress(OSError):
                found = _peer(same, self._ports)
                if found is not None and found[1] == peer:
                    same.shutdown(socket.SHUT_RDWR)
                    self._on_cut(peer, size)


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as numbers:
        return int(numbers.read().split()[1]) * _PAGE


def _same_socket(descriptor: int) -> socket.socket | None:
    """Return a duplicate of a socket's descriptor, valid throughout the check; None when it is not a socket.

    Raises OSError when the process has no free descriptor.
    """
    try:
        same = os.dup(descriptor)
    except OSError as error:
        if error.errno in _NO_DESCRIPTOR:
            raise
        return None
    if not stat.S_ISSOCK(os.fstat(same).st_mode):
        os.close(same)
        return None
    return socket.socket(fileno=same)


def _counters(descriptor: int, ports: Mapping[int, _Port]) -> tuple[int, str, int, int] | None:
    """Return port, peer, bytes received and bytes acknowledged of a client's connection; None for any other
    descriptor."""
    same = _same_socket(descriptor)
    if same is None:
        return None
    with same, contextlib.suppress(OSError):
        found = _peer(same, ports)
        if found is not None:
            info = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            sent, received = _COUNTERS.unpack_from(info, _COUNTERS_AT)
            return *found, received, sent
    return None


def _peer(connection: socket.socket, ports: Mapping[int, _Port]) -> tuple[int, str] | None:
    """Return the port that a connection is to, and the peer's name: how the port's names begin, and gRPC's. None unless
    it is a connection to one of these ports."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    port = connection.getsockname()[1]
    if port not in ports:
        return None
    try:
        host, number = connection.getpeername()[:2]
    except OSError:  # a listening socket has no peer
        return None
    if connection.family == socket.AF_INET6:
        mapped = host.removeprefix("::ffff:")
        name = f"ipv4:{mapped}:{number}" if "." in mapped else f"ipv6:%5B{host}%5D:{number}"
    else:
        name = f"ipv4:{host}:{number}"
    return port, ports[port].begins + name
