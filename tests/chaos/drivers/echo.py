"""A server and a client that show how a link behaves: `python -m tests.chaos.drivers.echo serve|ask HOST PORT`.

`serve` prints "ready", then "got WORD" for each word that arrives, and sends it back; a word on its standard input goes
to every connection. `ask` carries out the lines of its standard input, and prints one line for each:

    new SECONDS WORD      connect and send the word; then as `again`
    again SECONDS WORD    send the word and wait for it: "answered", "silent", "refused" or "reset"
    hear SECONDS WORD     only wait for it

Both end when their standard input closes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence


def serve(host: str, port: int) -> None:
    """Echo until the end of standard input."""
    listener = socket.create_server((host, port))
    connections: list[socket.socket] = []

    def talk(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while words := connection.recv(4096):
                for word in words.decode().split():
                    print(f"got {word}", flush=True)
                connection.sendall(words)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            connections.append(connection)
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(line.encode())


class Asker:
    """A client with one connection at a time to one address."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._connection: socket.socket | None = None
        self._heard = ""

    def new(self, seconds: float, word: str) -> str:
        """Connect and send; return "answered", "silent", "refused" or "reset"."""
        self.close()
        try:
            self._connection = socket.create_connection(self._address, seconds)
        except ConnectionRefusedError:
            return "refused"
        except ConnectionResetError:  # after the handshake, before this end had checked
            return "reset"
        except TimeoutError:
            return "silent"
        return self.again(seconds, word)

    def again(self, seconds: float, word: str) -> str:
        """Send on the open connection and wait for the same word."""
        assert self._connection is not None
        try:
            self._connection.sendall(f"{word}\n".encode())
        except OSError:
            return "reset"
        return self.hear(seconds, word)

    def hear(self, seconds: float, word: str) -> str:
        """Wait for a word, skipping others that come before it."""
        assert self._connection is not None
        deadline = time.monotonic() + seconds
        while word not in self._heard.split("\n")[:-1]:
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                heard = self._connection.recv(4096)
            except TimeoutError:
                return "silent"
            except OSError:
                return "reset"
            if not heard:
                return "reset"
            self._heard += heard.decode()
        return "answered"

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._heard = ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def ask(host: str, port: int) -> None:
    """Carry out the lines of standard input."""
    asker = Asker(host, port)
    for line in sys.stdin:
        verb, seconds, word = line.split()
        steps = {"new": asker.new, "again": asker.again, "hear": asker.hear}
        print(steps[verb](float(seconds), word), flush=True)


def main(arguments: Sequence[str]) -> None:
    """Run `serve` or `ask`."""
    verb, host, port = arguments
    {"serve": serve, "ask": ask}[verb](host, int(port))
    sys.stdout.flush()
    os._exit(0)  # threads may be in the middle of an accept


if __name__ == "__main__":
    main(sys.argv[1:])
