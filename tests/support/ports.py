"""Ports of this machine for the servers of a test."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens at present."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
