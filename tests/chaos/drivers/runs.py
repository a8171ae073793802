"""Ownership of what a deployment creates: every deployment takes a number, and everything that it creates is marked
with it.

An abstract unix socket holds the number, so the number is free again the moment its process ends, however it ends.
Anything marked with a number that no process holds is left over from a killed run, and the next deployment removes it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from tests.chaos.deployment import Unsupported
from tests.chaos.processes import Handle

NUMBERS: Final = range(1, 251)
_VARIABLE: Final = "CHAOS_RUN"
_PORT_FIRST: Final = (
    12_000  # below those of outgoing connections, which could otherwise hold a port that is needed again
)
_PORTS_EACH: Final = 80
_GONE_WAIT_S: Final = 10.0


class Run:
    """A number that no other deployment on this machine has until `close`; leftovers of earlier deployments are
    ended."""

    def __init__(self) -> None:
        self._socket, self.number = _take_any()
        first = _PORT_FIRST + self.number * _PORTS_EACH
        self._ports: Iterator[int] = iter(range(first, first + _PORTS_EACH))
        end_leftovers(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment for every process of this run: with our label, and without anything that a service
        would read as a setting."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHAREGROUPS_")}
        return {**inherited, _VARIABLE: f"{self.number}@{_network()}"}

    def port(self) -> int:
        """Return a port on 127.0.0.1 from this run's range that is free now; no port is returned twice. Raises
        AssertionError."""
        for port in self._ports:
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
        raise AssertionError(f"run {self.number} has no free port left of its {_PORTS_EACH}")

    def close(self) -> None:
        """Release the number; everything marked with it must have been removed by now."""
        self._socket.close()


@contextlib.contextmanager
def if_ownerless(number: int) -> Iterator[bool]:
    """Yield whether no living process has this number; if so, no process can take it during the block."""
    holder = _take(number)
    try:
        yield holder is not None
    finally:
        if holder is not None:
            holder.close()


def is_ownerless(number: int) -> bool:
    """Return whether no living process has this number."""
    with if_ownerless(number) as ownerless:
        return ownerless


def end_leftovers(mine: int) -> None:
    """SIGKILL processes with a number that no run holds, or with `mine`, which had an earlier holder."""
    left = [handle for number, handle in _labelled() if number == mine or is_ownerless(number)]
    for handle in left:
        handle.signal(signal.SIGKILL)
    for handle in left:
        assert handle.wait(_GONE_WAIT_S), f"process {handle.pid} of an earlier run outlived SIGKILL"
        handle.close()


def _labelled() -> Iterator[tuple[int, Handle]]:
    """Yield every process with a label of this network. The pidfd is opened before the label is read, so both belong to
    the same process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            handle = Handle(int(entry.name))
            number = _number(entry / "environ")
            if number is None:
                handle.close()
            else:
                yield number, handle


def _number(environ: Path) -> int | None:
    with contextlib.suppress(OSError):
        for word in environ.read_bytes().split(b"\0"):
            name, _, label = word.decode(errors="replace").partition("=")
            number, _, network = label.partition("@")
            if name == _VARIABLE and network == _network() and number.isdigit():
                return int(number)
    return None


def _network() -> str:
    """Identify this network namespace: abstract sockets, and therefore our numbers, are visible only within one."""
    return str(os.stat("/proc/self/ns/net").st_ino)


def _take_any() -> tuple[socket.socket, int]:
    for number in random.sample(NUMBERS, len(NUMBERS)):
        holder = _take(number)
        if holder is not None:
            return holder, number
    raise Unsupported(f"all {len(NUMBERS)} numbers of chaos deployments are taken on this machine")


def _take(number: int) -> socket.socket | None:
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0sharegroups-chaos-{number}")
    except OSError:
        holder.close()
        return None
    return holder
