"""Delays packets: `python delayer.py QUEUE DELAY_MS`, in the network namespace whose rules send packets to the queue.

The kernel hands over each packet's number (NFQUEUE) and releases the packet on a verdict, in the same order. This
replaces netem, which some kernels lack. The rules have `--queue-bypass`, so packets pass once this process ends. It
prints "ready" once it holds the queue, ends when its standard input closes, and imports only the standard library.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

_NETLINK_NETFILTER: Final = 12
_QUEUE: Final = 3 << 8  # NFNL_SUBSYS_QUEUE
_PACKET, _VERDICT, _CONFIG = 0, 1, 2
_REQUEST, _ANSWERED = 1, 5
_HEADERS: Final = 20
_KEPT_MAX: Final = 50_000
#: The queue number. Each namespace has one delay, and its own queues.
QUEUE: Final = 7_932
_READY_WAIT_S: Final = 20.0


def attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute of a message, padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def message(kind: int, queue: int, attributes: bytes, flags: int = _REQUEST) -> bytes:
    """Encode one message about a queue."""
    body = struct.pack("=BBH", 0, 0, socket.htons(queue)) + attributes
    return struct.pack("=LHHLL", 16 + len(body), _QUEUE | kind, flags, 0, 0) + body


def packets(data: bytes) -> Iterator[int]:
    """Yield the numbers of the packets that these messages hand over."""
    at = 0
    while at + _HEADERS <= len(data):
        length, kind = struct.unpack_from("=LH", data, at)
        inside = at + _HEADERS
        while kind == _QUEUE | _PACKET and inside < at + length:
            size, name = struct.unpack_from("=HH", data, inside)
            if name == 1:
                yield struct.unpack_from(">I", data, inside + 4)[0]
            inside += size + -size % 4
        at += length + -length % 4


def hold(queue: int) -> socket.socket:
    """Take the queue. Raises OSError if the kernel refuses."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    link.bind((0, 0))
    bind, copy_no_bytes, room = struct.pack(">BBH", 1, 0, 0), struct.pack(">IB", 0, 1), struct.pack(">I", _KEPT_MAX)
    for kind, value in ((1, bind), (2, copy_no_bytes), (3, room)):
        link.send(message(_CONFIG, queue, attribute(kind, value), _ANSWERED))
        error = struct.unpack_from("=i", link.recv(65_536), 16)[0]
        if error:
            raise OSError(-error, "the kernel gives no queue of packets")
    return link


def main(queue: int, delay_s: float) -> None:
    """Let every packet pass after its delay, until the standard input closes."""
    link, due = hold(queue), deque[tuple[float, int]]()
    print("ready", flush=True)
    while True:
        wait_s = max(0.0, due[0][0] - time.monotonic()) if due else None
        readable = select.select([link.fileno(), 0], [], [], wait_s)[0]
        if 0 in readable and not os.read(0, 4_096):
            return
        if link.fileno() in readable:
            until_s = time.monotonic() + delay_s
            due.extend((until_s, number) for number in packets(link.recv(1 << 20)))
        while due and due[0][0] <= time.monotonic():
            link.send(message(_VERDICT, queue, attribute(2, struct.pack(">II", 1, due.popleft()[1]))))


class Delayer:
    """This module as a process in a namespace; the words `enter` are the command that enters it. Raises AssertionError
    if it cannot start."""

    def __init__(self, enter: Sequence[str], delay_ms: int) -> None:
        words = [*enter, sys.executable, "-I", __file__, str(QUEUE), str(delay_ms)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _READY_WAIT_S)
        if not readable or not self._process.stdout.readline():
            said = self.close()
            raise AssertionError(f"packets cannot be delayed here: {said[-1] if said else 'no word of the delayer'}")

    def close(self) -> list[str]:
        """End it and return its error output. Delayed packets are lost, as on a removed link."""
        self._process.kill()
        return self._process.communicate(timeout=_READY_WAIT_S)[1].splitlines()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) / 1000)
