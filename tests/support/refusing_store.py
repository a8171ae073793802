"""A server in front of a real store that answers so many commands with an error of its choice, then passes all on."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final, Self

import hiredis

#: What a store answers while it serves nothing else.
GREETINGS: Final = frozenset({b"HELLO", b"CLIENT", b"AUTH", b"SELECT"})


class RefusingStore:
    """Runs in threads of its own, so that a test may block on a command. `spared`: commands that it passes on from the
    beginning; `only`: when given, it refuses no others. `refused`: the names of the commands that it has refused."""

    def __init__(
        self, target: int, error: str, times: int, *, spared: frozenset[bytes] = frozenset(), only: bytes = b""
    ) -> None:
        self._target, self._error, self._left = target, error, times
        self._spared, self._only = spared, only
        self.refused: list[bytes] = []
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            store = socket.create_connection(("127.0.0.1", self._target))
            self._open.append(store)
            threading.Thread(target=_pass_on, args=(store, client), daemon=True).start()
            commands = hiredis.Reader()
            while data := client.recv(65_536):
                commands.feed(data)
                while (command := commands.gets()) is not False:
                    if self._refuses(command[0].upper()):
                        client.sendall(f"-{self._error}\r\n".encode())
                    else:
                        store.sendall(hiredis.pack_command(tuple(command)))
            store.shutdown(socket.SHUT_RDWR)

    def _refuses(self, name: bytes) -> bool:
        with self._lock:
            if not self._left or name in self._spared or (self._only and name != self._only):
                return False
            self._left -= 1
            self.refused.append(name)
            return True


def _pass_on(store: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := store.recv(65_536):
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
