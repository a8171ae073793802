"""A benchmark's worker processes, the messages that start them together, and the board where consumers post counts.

A worker is `python -m benchmarks.<module> ROLE JSON`. It communicates over its pipes, one JSON object or word per line,
and ends when its standard input is closed, so no worker outlives a benchmark that was killed. Times are
`time.monotonic`, which is one clock for all processes of a Linux machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from benchmarks.machine import is_running

ROOT: Final = Path(__file__).resolve().parent.parent
STOP_WAIT_S: Final = 20.0
#: The interval at which a wait checks whether all processes are alive, in seconds.
POLL_S: Final = 0.1
_TAIL_BYTES: Final = 2_000


class BenchmarkError(Exception):
    """The run cannot be counted: a process died, was late, or lost records."""


class Crew:
    """The processes of one run. A wait for one of them checks all, so that the end of any ends the run at once."""

    def __init__(self) -> None:
        self._members: list[Process] = []
        self._descendants: list[tuple[str, int, Process]] = []
        self._poll_at = 0.0

    def add(self, process: Process) -> None:
        """Add a process to the checks. Servers are checked first: when one dies, workers fail because of it."""
        self._members.append(process)
        self._members.sort(key=lambda member: not member.is_server)

    def add_descendants(self, pids: Mapping[str, int], of: Process) -> None:
        """Add processes that the member `of` has started; its error output is shown when one of them dies."""
        self._descendants += [(name, pid, of) for name, pid in pids.items() if pid != of.pid]

    def check(self) -> None:
        """Raise BenchmarkError when a server has ended, or a worker has failed."""
        for member in self._members:
            member.check()
        for name, pid, of in self._descendants:
            if not is_running(pid):
                raise of.failure(f"has lost its {name} (pid {pid})")

    def poll(self) -> None:
        """Do as `check` does, but at most once in POLL_S; for loops that poll. Raises BenchmarkError."""
        now = time.monotonic()
        if now >= self._poll_at:
            self._poll_at = now + POLL_S
            self.check()

    def dismiss(self) -> None:
        """Kill the workers of a failed run, which would otherwise keep retrying for a minute."""
        for member in self._members:
            if not member.is_server:
                member.kill()

    def rest(self, seconds: float) -> None:
        """Sleep for `seconds`, with checks. Raises BenchmarkError as `check` does."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_S))
            self.check()


class Process:
    """A child process. A thread reads its lines; its error output is kept for the message when it fails.

    `crew` holds the other processes of the run, which are checked during waits for this one. A server must never end by
    itself. Call `stop` at the end.
    """

    def __init__(self, name: str, command: Sequence[str], crew: Crew | None = None, is_server: bool = False) -> None:
        self.name = name
        self.is_server = is_server
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._crew = crew or Crew()
        self._crew.add(self)

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
        """Return the next JSON line, which must have the key `word`. Raises BenchmarkError, including when another
        process of the crew has died."""
        line = self._line(word, timeout_s)
        if line is None:
            self._child.wait()
            self._crew.check()
            raise self.failure(f"{self._ending()} instead of saying {word!r}")
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict) or word not in said:
            raise self.failure(f"said {line.strip()!r}; expected a JSON object with the key {word!r}")
        return said

    def _line(self, word: str, timeout_s: float) -> str | None:
        until = time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0:
            try:
                return self._lines.get(timeout=min(left, POLL_S))
            except queue.Empty:
                self._crew.check()
        raise self.failure(f"did not say {word!r} within {timeout_s:g} s")

    def check(self) -> None:
        """Raise BenchmarkError when the process has failed, or has ended though it is a server."""
        status = self._child.poll()
        if status is not None and (status != 0 or self.is_server):
            raise self.failure(self._ending())

    def _ending(self) -> str:
        status = self._child.returncode
        if status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended with status {status}"

    def send(self, word: str) -> None:
        """Write one line to the process. Raises BenchmarkError if it has ended."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(word + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            self._crew.check()
            raise self.failure(f"was gone when it should hear {word!r}") from None

    def kill(self) -> None:
        """Kill the process at once. Call `stop` afterwards, which waits for its end."""
        self._child.kill()

    def stop(self, terminate: bool = False) -> None:
        """End the process by closing its input, with `terminate` also by SIGTERM, and by SIGKILL after too long."""
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
        self._reader.join(STOP_WAIT_S)  # a grandchild that outlives the process may hold its pipe open
        if self._child.stdout is not None and not self._reader.is_alive():
            self._child.stdout.close()
        self._errors.close()

    def failure(self, what: str) -> BenchmarkError:
        """Return an error about this process with the text `what` and the end of its error output."""
        self._errors.seek(0)
        tail = self._errors.read()[-_TAIL_BYTES:].decode(errors="replace").strip()
        return BenchmarkError(
            f"{self.name} (pid {self.pid}) {what}; its error output ends with:\n{tail or '(nothing)'}"
        )


def worker(
    name: str,
    module: str,
    role: str,
    settings: dict[str, Any],
    crew: Crew | None = None,
    *,
    python: str = sys.executable,
) -> Process:
    """Start one worker of `benchmarks.<module>`, with the client library of the interpreter `python`."""
    return Process(name, [*interpreter(python), "-m", f"benchmarks.{module}", role, json.dumps(settings)], crew)


def interpreter(python: str) -> list[str]:
    """Return the command words that start an interpreter. A different one uses its own packages, not this one's
    PYTHONPATH."""
    return [python] if python == sys.executable else ["env", "-u", "PYTHONPATH", python]


# The worker's end of the pipes.


def say(**values: Any) -> None:
    """Write one JSON line to the parent."""
    print(json.dumps(values), flush=True)


def hear(word: str) -> None:
    """Wait for a word from the parent. If the parent closes the pipe, this worker exits."""
    heard = sys.stdin.readline().strip()
    if heard != word:
        sys.exit(f"heard {heard!r}; expected {word!r}" if heard else 0)


def hear_words() -> list[str]:
    """Return the words of the parent's next line; none when it has closed the pipe."""
    return sys.stdin.readline().split()


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine, on uvloop if it is installed (P-15)."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


# The board.

_SLOT: Final = struct.Struct("=ddd")


class Board:
    """A shared file through which consumers report to the parent. Writing a slot costs less than a microsecond.

    It has a slot for each consumer: its acknowledged records, when the last was confirmed, and its fetch cycles. A flag
    says that the run is over.
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
        """Write the totals of one consumer. Only that consumer may write its slot."""
        _SLOT.pack_into(self._memory, _SLOT.size * (slot + 1), at, cycles, records)

    @property
    def is_over(self) -> bool:
        """True if the parent has called `end`."""
        return self._memory[0] != 0

    def end(self) -> None:
        """Set the flag that makes the consumers stop."""
        self._memory[0] = 1

    def slots(self) -> list[tuple[float, int, int]]:
        """Return (time of the last confirmation, cycles, records) of each consumer."""
        found = [_SLOT.unpack_from(self._memory, _SLOT.size * (slot + 1)) for slot in range(self._slots)]
        return [(at, int(cycles), int(records)) for at, cycles, records in found]
