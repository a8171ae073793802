"""Hand-written HTTP/2, to send what no gRPC library would: half a message, or a compressed one of any size."""

from __future__ import annotations

import ssl
import struct
import threading
import time
from types import TracebackType
from typing import Final, Self

from tests.attack.attacks.connections import PREFACE
from tests.support.dial import PLAIN, Dial

_DATA: Final = 0
_HEADERS: Final = 1
_RST_STREAM: Final = 3
_SETTINGS: Final = 4
_PING: Final = 6
_GOAWAY: Final = 7
_WINDOW_UPDATE: Final = 8
_END_STREAM: Final = 1
_ACK: Final = 1
_END_HEADERS: Final = 4
_INITIAL_WINDOW: Final = 4
_WINDOW_START: Final = 65_535
_FRAME_MAX: Final = 16_384
_CANCEL: Final = 8
_FLOOD_BYTES: Final = 65_536


def ping_frame() -> bytes:
    """Encode a ping."""
    return _frame(_PING, 0, 0, bytes(8))


def window_frame() -> bytes:
    """Encode a frame that enlarges the connection's window by one byte."""
    return _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))


def message(body: bytes, compressed: bool = False, claimed: int | None = None) -> bytes:
    """Encode a gRPC message; `claimed`: the length in its header, when that is not its own."""
    return struct.pack(">BI", compressed, len(body) if claimed is None else claimed) + body


class Connection:
    """One connection, to be used by one thread. It reads only while it waits for permission to send, or in `pump`.

    `ended` holds, by stream, the bytes of the headers that ended it (gRPC's trailers), or b"" for a reset.
    """

    def __init__(self, address: str, window: int = _WINDOW_START, dial: Dial = PLAIN) -> None:
        self.ended: dict[int, bytes] = {}
        self.closed = False
        self._socket = dial.connect(address)
        self._next = 1
        self._initial = self._window = _WINDOW_START
        self._windows: dict[int, int] = {}
        self._read = b""
        self._send(PREFACE + _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, window)))
        self.pump(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(self, path: str | bytes, encoding: str = "") -> int:
        """Open a call and return its stream. A path given as bytes is sent as it is, text or not."""
        stream, self._next = self._next, self._next + 2
        sent = path if isinstance(path, bytes) else path.encode()
        fields = [
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", sent), (b":authority", b"attacked"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"),
        ]  # fmt: skip
        if encoding:
            fields.append((b"grpc-encoding", encoding.encode()))
        self._windows[stream] = self._initial
        self._send(_frame(_HEADERS, _END_HEADERS, stream, b"".join(_literal(*field) for field in fields)))
        return stream

    def data(self, stream: int, body: bytes, *, end: bool = False, wait_s: float = 2.0) -> int:
        """Send what the windows allow, waiting up to `wait_s` for more room; return how much was sent."""
        sent, deadline = 0, time.monotonic() + wait_s
        while sent < len(body) and not self.closed and stream not in self.ended and time.monotonic() < deadline:
            size = min(len(body) - sent, self._window, self._windows[stream], _FRAME_MAX)
            if size <= 0:
                self.pump(0.02)
                continue
            last = end and sent + size == len(body)
            self._send(_frame(_DATA, _END_STREAM if last else 0, stream, body[sent : sent + size]))
            self._window -= size
            self._windows[stream] -= size
            sent += size
        return sent

    def wait_end(self, stream: int, wait_s: float = 20.0) -> bytes:
        """Return the trailers of a stream. Raises AssertionError when it does not end in time."""
        deadline = time.monotonic() + wait_s
        while stream not in self.ended:
            assert not self.closed, f"the connection ended before stream {stream} did"
            assert time.monotonic() < deadline, f"stream {stream} was not ended for {wait_s} s"
            self.pump(0.05)
        return self.ended[stream]

    def reset(self, stream: int) -> None:
        """Cancel a call."""
        self._send(_frame(_RST_STREAM, 0, stream, struct.pack(">I", _CANCEL)))
        self.ended.setdefault(stream, b"")

    def ping(self, count: int) -> None:
        """Send this many pings at once."""
        self._send(ping_frame() * count)

    def flood(self, frame: bytes, end: threading.Event) -> int:
        """Until `end` is set, send a frame repeatedly as fast as the peer reads, and read its responses; return how
        many were sent before the peer closed."""
        several, sent = frame * (_FLOOD_BYTES // len(frame)), 0
        while not self.closed and not end.is_set():
            self._send(several)
            sent += 0 if self.closed else len(several) // len(frame)
            self._drop_read()
        return sent

    def _drop_read(self) -> None:
        self._socket.settimeout(0)
        try:
            while data := self._socket.recv(1 << 20):
                pass
            self.closed = self.closed or not data
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            self.closed = True

    def settings(self, count: int) -> None:
        """Send this many changes of the settings at once."""
        self._send(_frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, _WINDOW_START)) * count)

    def pump(self, wait_s: float) -> None:
        """Read what has arrived, waiting up to `wait_s` for the first byte."""
        self._socket.settimeout(max(wait_s, 0.001))
        try:
            data = self._socket.recv(1 << 20)
            self.closed = self.closed or not data
            self._read += data
        except TimeoutError:
            return
        except OSError:
            self.closed = True
        while len(self._read) >= 9 and len(self._read) >= 9 + int.from_bytes(self._read[:3], "big"):
            size = int.from_bytes(self._read[:3], "big")
            kind, flags = self._read[3], self._read[4]
            stream = int.from_bytes(self._read[5:9], "big") & 0x7FFFFFFF
            payload, self._read = self._read[9 : 9 + size], self._read[9 + size :]
            self._frame_came(kind, flags, stream, payload)

    def _frame_came(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(payload, "big")
        elif kind == _WINDOW_UPDATE and stream in self._windows:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif kind == _SETTINGS and not flags & _ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == _INITIAL_WINDOW:
                    self._windows = {key: size + value - self._initial for key, size in self._windows.items()}
                    self._initial = value
            self._send(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, payload))
        elif kind == _RST_STREAM:
            self.ended.setdefault(stream, b"")
        elif kind == _HEADERS and flags & _END_STREAM:
            self.ended[stream] = payload

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(5)
        try:
            self._socket.sendall(data)
        except OSError:
            self.closed = True


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Encode an HPACK header field without Huffman code and outside the table."""
    return b"\0" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """Encode an HPACK string: its length as a number with a prefix of seven bits, then its bytes."""
    if len(text) < 0x7F:
        return bytes([len(text)]) + text
    rest, encoded = len(text) - 0x7F, [0x7F]
    while rest >= 0x80:
        encoded.append(rest % 0x80 + 0x80)
        rest //= 0x80
    return bytes([*encoded, rest]) + text
