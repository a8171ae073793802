"""What the kernel knows of a connection, and the event loop does not say (KL-106, KL-2)."""

from __future__ import annotations

import select
import socket
from enum import Enum, auto
from typing import Final

#: States of Linux's TCP, the first byte of `tcp_info`.
_CLOSE: Final = 7
_CLOSE_WAIT: Final = 8


class Peer(Enum):
    """What the other end has done: THERE, it may send; LEFT, it has closed its end; LOST, nothing can be sent or read
    any more."""

    THERE = auto()
    LEFT = auto()
    LOST = auto()


def peer_of(connection: socket.socket) -> Peer:
    """Return what the other end has done, also while nothing is read: an event loop notices an end only when it reads,
    and a read shows it only after all bytes that came before it."""
    try:
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:  # it is closed here
        return Peer.LOST
    return {_CLOSE_WAIT: Peer.LEFT, _CLOSE: Peer.LOST}.get(state, Peer.THERE)


def takes_more(connection: socket.socket) -> bool:
    """Return whether the kernel takes bytes to send. If it does, a transport has handed over all that it had, or does
    so in this turn of the event loop."""
    if connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))
