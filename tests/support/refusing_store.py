"""A server in front of a real store that replies to a number of commands with a chosen error, then passes everything
on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final, Self

import hiredis

#: Commands that a store answers even while it serves nothing else.
GREETINGS: Final = frozenset({b"HELLO", b"CLIENT", b"AUTH", b"SELECT"})


class RefusingStore:
    """Runs in its own threads, so that a test may block on a command. `spared`: commands that it always passes on;
    `only`: the one command to refuse, if given. `refused`: the names of the refused commands."""

    def __init__(
        self, target: int, error: str, times: int, *, spared: frozenset[bytes] = frozenset(), only: bytes = b""
    ) -> None:
        self._target, self._error, self._left = target, error, times
        self._spared, self._only = spared, only
        self.refused: list[bytes] = []
        self._lock = threading.Lock()
        self._ended = False
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            for each in (self._listener, *self._open):
                _end(each)
        while self._threads:
            self._threads.pop().join()
        self._listener.close()

    def _run(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._run(self._serve, self._listener.accept()[0])

    @contextlib.contextmanager
    def _kept(self, each: socket.socket) -> Iterator[socket.socket]:
        """Yield a socket that its thread closes. Ending this server shuts it down first, so that the thread does not
        wait."""
        with each:
            with self._lock:
                self._open.add(each)
                if self._ended:
                    _end(each)
            try:
                yield each
            finally:
                with self._lock:
                    self._open.discard(each)

    def _serve(self, accepted: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            self._kept(accepted) as client,
            self._kept(socket.create_connection(("127.0.0.1", self._target))) as store,
        ):
            back = threading.Thread(target=_pass_on, args=(store, client), daemon=True)
            back.start()
            try:
                self._pass_on_commands(client, store)
            finally:
                _end(store)
                back.join()

    def _pass_on_commands(self, client: socket.socket, store: socket.socket) -> None:
        commands = hiredis.Reader()
        while data := client.recv(65_536):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                if self._refuses(command[0].upper()):
                    client.sendall(f"-{self._error}\r\n".encode())
                else:
                    store.sendall(hiredis.pack_command(tuple(command)))

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
    _end(client)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
