"""The worker's end of the pipe to a handler process: `multiprocessing` messages, sent and read without blocking.

A process that dies while it sends a message leaves a partial message in the pipe, and a child that a handler forked may
keep the other end open. Reading the rest of the message, or sending more than fits into the pipe, would then block the
worker's event loop forever.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any, Final

_CHUNK: Final = 1 << 16
#: The maximum number of chunks read in one iteration of the loop.
_CHUNKS_MAX: Final = 1_024
#: The first four bytes of a message whose size does not fit there; the size follows in eight bytes.
_LONG: Final = -1
_LONG_FROM: Final = 0x7FFFFFFF


class Pipe:
    """Takes over `connection`, one end of a duplex pipe. `has_ended`: True if the other end is closed and everything
    was read."""

    def __init__(self, connection: Connection[Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._socket.setblocking(False)
        connection.close()
        self._loop = loop
        self._unread = bytearray()
        self._unsent = b""
        self.has_ended = False

    def fileno(self) -> int:
        """The descriptor, for `add_reader`; −1 once it is closed."""
        return self._socket.fileno()

    @property
    def is_sending(self) -> bool:
        """True while data to be sent is waiting for space in the pipe."""
        return bool(self._unsent)

    def send(self, message: Any) -> None:
        """Send a message; data that does not fit is sent later. Raises OSError when the other end is closed."""
        packed = pickle.dumps(message)
        size = len(packed)
        head = struct.pack("!i", size) if size <= _LONG_FROM else struct.pack("!iQ", _LONG, size)
        self._unsent += head + packed
        self._send_on()
        if self._unsent:
            self._loop.add_writer(self.fileno(), self._send_later)

    def read(self) -> list[Any]:
        """Return the messages that have arrived completely."""
        for _ in range(_CHUNKS_MAX):
            try:
                chunk = self._socket.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.has_ended = True
                break
            self._unread += chunk
        found: list[Any] = []
        while (place := self._next()) is not None:
            begin, end = place
            found.append(pickle.loads(self._unread[begin:end]))
            del self._unread[:end]
        return found

    def close(self) -> None:
        """Close the pipe. The other end can still read the data in it, followed by end of file."""
        if self.fileno() >= 0:
            self._loop.remove_reader(self.fileno())
            self._loop.remove_writer(self.fileno())
            self._socket.close()

    def _next(self) -> tuple[int, int] | None:
        """Return where the next message starts and ends in the data read; None if part of it has not arrived."""
        begin = 4
        if len(self._unread) < begin:
            return None
        (size,) = struct.unpack_from("!i", self._unread)
        if size == _LONG:
            begin = 12
            if len(self._unread) < begin:
                return None
            (size,) = struct.unpack_from("!Q", self._unread, 4)
        return None if len(self._unread) < begin + size else (begin, begin + size)

    def _send_on(self) -> None:
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]

    def _send_later(self) -> None:
        try:
            self._send_on()
        except OSError:  # the other end is closed; the pool will notice that its process has ended
            self._loop.remove_writer(self.fileno())
            return
        if not self._unsent:
            self._loop.remove_writer(self.fileno())
