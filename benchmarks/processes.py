"""Worker processes of a benchmark, the gate they start at, and the board on which consumers count.

A worker is `python -m benchmarks.<module> ROLE JSON`; it talks over its pipes, one JSON object or word per line, and
ends when its standard input does, so none outlives a benchmark that was killed. Times are `time.monotonic`, which is
one clock for all processes of a Linux machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import queue
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

ROOT: Final = Path(__file__).resolve().parent.parent
STOP_WAIT_S: Final = 20.0


class BenchmarkError(Exception):
    """A run cannot be counted: a process died, was late, or lost records."""


class Process:
    """A child process whose lines are read as they come; its error output is kept for the message when it fails."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put(None)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def expect(self, word: str, timeout_s: float) -> dict[str, Any]:
        """The next JSON line, which must hold the key `word`. Raises BenchmarkError."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise self._failure(f"did not say {word!r} within {timeout_s:g} s") from None
        if line is None:
            raise self._failure(f"ended with status {self._child.wait()} instead of saying {word!r}")
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict) or word not in said:
            raise self._failure(f"said {line.strip()!r}; expected a JSON object with the key {word!r}")
        return said

    def tell(self, word: str) -> None:
        """Write one line to it. Raises BenchmarkError when it is gone."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(word + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._failure(f"was gone when it should hear {word!r}") from None

    def stop(self, terminate: bool = False) -> None:
        """End it: at the end of its input, or by SIGTERM; by SIGKILL when that takes too long."""
        if terminate:
            self._child.terminate()
        with contextlib.suppress(BrokenPipeError):
            if self._child.stdin is not None:
                self._child.stdin.close()
        try:
            self._child.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join(STOP_WAIT_S)  # its pipe may be held open by a grandchild that outlives it
        if self._child.stdout is not None and not self._reader.is_alive():
            self._child.stdout.close()
        self._errors.close()

    def _failure(self, what: str) -> BenchmarkError:
        self._errors.seek(0)
        tail = self._errors.read()[-2000:].decode(errors="replace").strip()
        return BenchmarkError(
            f"{self.name} (pid {self.pid}) {what}; its error output ends with:\n{tail or '(nothing)'}"
        )


def worker(name: str, module: str, role: str, settings: dict[str, Any]) -> Process:
    """Start one worker of `benchmarks.<module>`."""
    return Process(name, [sys.executable, "-m", f"benchmarks.{module}", role, json.dumps(settings)])


# The worker's end of the pipes.


def say(**values: Any) -> None:
    """One JSON line to the parent."""
    print(json.dumps(values), flush=True)


def hear(word: str) -> None:
    """Wait for a word of the parent; the end of the pipe ends this worker."""
    heard = sys.stdin.readline().strip()
    if heard != word:
        sys.exit(f"heard {heard!r}; expected {word!r}" if heard else 0)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop when it is there (P-15)."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


# The board.

_SLOT: Final = struct.Struct("=ddd")


class Board:
    """A shared file: one slot for each consumer with its acknowledged records, when the last was confirmed, and its
    fetch cycles; and a flag by which the parent says that all is done. Writing a slot costs less than a microsecond.
    """

    def __init__(self, path: Path, slots: int) -> None:
        self._slots = slots
        size = _SLOT.size * (slots + 1)
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.close()

    def post(self, slot: int, records: int, at: float, cycles: int) -> None:
        """The totals of one consumer. Only that consumer writes its slot."""
        _SLOT.pack_into(self._memory, _SLOT.size * (slot + 1), at, cycles, records)

    @property
    def is_over(self) -> bool:
        """Whether the parent has seen everything it waits for."""
        return self._memory[0] != 0

    def end(self) -> None:
        """Tell the consumers to stop."""
        self._memory[0] = 1

    def slots(self) -> list[tuple[float, int, int]]:
        """(time of the last confirmation, cycles, records) of each consumer."""
        found = [_SLOT.unpack_from(self._memory, _SLOT.size * (slot + 1)) for slot in range(self._slots)]
        return [(at, int(cycles), int(records)) for at, cycles, records in found]
