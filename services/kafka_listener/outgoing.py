"""The answers that leave a connection, and what its client has not taken of them (KL-2, KL-14)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from kafka_listener.core.pieces import PIECE_BYTES, Pieces
from kafka_listener.sockets import takes_more

#: With TLS the loop keeps encrypted bytes in a buffer that it does not show: 64 KiB and a piece, at most.
HIDDEN_BYTES: Final = 64 * 1024 + PIECE_BYTES
#: From how many bytes in its buffer on the transport takes no more. Without TLS any byte that the network did not take
#: counts; with it, the loop fails below 1.
_HIGH_BYTES: Final = 0
_HIGH_BYTES_TLS: Final = 64 * 1024


class Outgoing:
    """The answers of one connection. `taken` is called with how many bytes of answers the network took.

    Before `open` nothing may be written. `is_paused`: the client does not read, so nothing more should be written.
    """

    def __init__(self, connection: socket.socket, taken: Callable[[int], None], *, tls: bool) -> None:
        self._socket = connection
        self._taken = taken
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._unwritten = Pieces()
        self._held = 0
        """Bytes of answers that were not reported as taken."""
        self.is_paused = False
        self._least, self._since_s = 0, 0.0
        self._writable: asyncio.Future[None] | None = None

    def open(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_BYTES_TLS if self._tls else _HIGH_BYTES, low=0)

    @property
    def left_bytes(self) -> int:
        """How many bytes are in this process, as far as the loop says so."""
        return self._unwritten.size + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def has_unwritten(self) -> bool:
        """Whether there is something that the transport was not given."""
        return self._unwritten.size > 0

    def write(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """Write an answer of `size` bytes."""
        assert self._transport is not None, "open first"
        self._held += size
        if self._tls:
            self._unwritten.add(parts)
        else:
            self._transport.writelines(parts)
        self.write_on()

    def write_on(self) -> None:
        """Write what the transport takes. All of an answer at once would be encrypted at once, and leave the part of
        the transport that says how much is unread."""
        assert self._transport is not None, "open first"
        while self._unwritten.size and not self.is_paused:
            self._transport.write(self._unwritten.take())
        self._report()

    def pause(self, now_s: float) -> None:
        """Note that the client does not read."""
        self.is_paused = True
        self._least, self._since_s = self.left_bytes, now_s

    def resume(self) -> None:
        """Note that the client has read."""
        self.is_paused = False
        self.write_on()
        if not self.is_paused:
            self._wake()

    def unread_s(self, now_s: float) -> float:
        """Return for how long the client has taken nothing of what is to be written; 0 while it takes some."""
        self._report()
        if not self.is_paused:
            return 0.0
        if (left := self.left_bytes) < self._least:
            self._least, self._since_s = left, now_s
        return now_s - self._since_s

    async def until_writable(self) -> None:
        """Wait until the client reads, or the connection is closed."""
        while self.is_paused and self._transport is not None:
            if self._writable is None or self._writable.done():
                self._writable = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._writable)

    def close(self) -> None:
        """Forget what was not written: the connection is lost."""
        self._unwritten = Pieces()
        self._transport = None
        self._wake()

    def _report(self) -> None:
        """Report what the network took. An answer stays in memory until all of it was taken. What the loop hides is
        counted while the kernel takes nothing."""
        if not self._held or self._unwritten.size:
            return
        left = self.left_bytes
        if left and not self._tls:
            return
        if self._tls and not takes_more(self._socket):
            left += HIDDEN_BYTES
        if left < self._held:
            taken, self._held = self._held - left, left
            self._taken(taken)

    def _wake(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
