"""A small honest client that works while others attack: `python -m tests.attack.canary JSON`.

In each turn it sends one record, waits for its confirmation, receives it through a share group, accepts it, and waits
for that response too. After each turn it writes one JSON line: when the turn started, how long it and its longest call
took, and the error if it failed. A failed turn is not repeated; its record may still arrive, and is then accepted
within a later turn. It leaves when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sharegroups.aio import Producer, ShareConsumer
from tests.chaos.history import now_ms
from tests.support.dial import PLAIN, Dial

#: A longer turn has failed; the client's own timeouts are shorter.
TURN_S: Final = 30.0
_LEAVE_WAIT_S: Final = 45.0


@dataclass(frozen=True, slots=True)
class CanaryOptions:
    """The options of a canary. `pause_ms`: the pause between two turns; `security`: its settings for TLS."""

    bootstrap: str
    topic: str
    group: str
    turns: str
    pause_ms: int = 50
    security: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: when it started by the boot clock, how long it took, and the name of its error, "" if there was none.

    `waited_ms`: its longest wait for one call: a confirmation, a poll, or the response to an acceptance.
    """

    number: int
    began_ms: int
    took_ms: int
    error: str
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class Song:
    """The summary of a canary's turns; times are milliseconds."""

    turns: int
    failed: int
    p50_ms: int
    p99_ms: int
    worst_ms: int
    worst_wait_ms: int
    errors: tuple[str, ...]

    def __str__(self) -> str:
        errors = f" ({', '.join(self.errors)})" if self.errors else ""
        times = f"p50={self.p50_ms} p99={self.p99_ms} worst={self.worst_ms} worst_wait={self.worst_wait_ms} ms"
        return f"turns={self.turns} failed={self.failed}{errors} {times}"


def song(turns: list[Turn]) -> Song:
    """Summarise some turns; a failed one is included with the time it took."""
    took = sorted(turn.took_ms for turn in turns) or [0]
    failed = [turn for turn in turns if turn.error]
    return Song(
        turns=len(turns),
        failed=len(failed),
        p50_ms=int(statistics.median(took)),
        p99_ms=took[min(len(took) - 1, len(took) * 99 // 100)],
        worst_ms=took[-1],
        worst_wait_ms=max((turn.waited_ms for turn in turns), default=0),
        errors=tuple(sorted({turn.error for turn in failed})),
    )


class Canary:
    """A canary in a separate process. A context manager; `turns` reads the turns written so far."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, name: str = "canary", dial: Dial = PLAIN) -> None:
        self._path = folder / f"{name}.jsonl"
        self._errors = folder / f"{name}.err"
        self._options = CanaryOptions(bootstrap, topic, f"{topic}-{name}", str(self._path), security=dial.security)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.attack.canary", json.dumps(asdict(self._options))]
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, start_new_session=True)
        deadline = time.monotonic() + 2 * TURN_S
        while not any(not turn.error for turn in self.turns()):
            assert self._process.poll() is None, f"the canary ended: {self._errors.read_text()[-2000:]}"
            assert time.monotonic() < deadline, "the canary had no good turn before the attack"
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_LEAVE_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def turns(self, since_ms: int = 0) -> list[Turn]:
        """Return the turns that have ended and that started at `since_ms` or later."""
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines()
        turns = [Turn(**json.loads(line)) for line in lines if line.endswith("}")]
        return [turn for turn in turns if turn.began_ms >= since_ms]


class _Singer:
    def __init__(self, options: CanaryOptions) -> None:
        self._options = options
        self._received: set[str] = set()
        self._waits_ms: list[int] = []

    async def run(self, stop: asyncio.Event) -> None:
        options = self._options
        settings = {"bootstrap.servers": options.bootstrap, **options.security}
        consumer_settings = {**settings, "group.id": options.group, "share.acquire.mode": "record_limit"}
        out = os.open(options.turns, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        number = 0
        async with Producer(settings) as producer, ShareConsumer(consumer_settings) as consumer:
            consumer.subscribe([options.topic])
            while not stop.is_set():
                began_ms, error = now_ms(), ""
                self._waits_ms.clear()
                try:
                    async with asyncio.timeout(TURN_S):
                        await self._turn(producer, consumer, f"{options.group} {number}")
                except Exception as problem:
                    error = type(problem).__name__
                    print(f"{began_ms} turn {number}: {error}: {problem}", file=sys.stderr, flush=True)
                turn = Turn(number, began_ms, now_ms() - began_ms, error, max(self._waits_ms, default=0))
                os.write(out, (json.dumps(asdict(turn)) + "\n").encode())
                number += 1
                await asyncio.sleep(options.pause_ms / 1000)
        os.close(out)

    async def _turn(self, producer: Producer, consumer: ShareConsumer, value: str) -> None:
        with self._wait():
            await producer.send(self._options.topic, value)
        while value not in self._received:
            with self._wait():
                messages = await consumer.poll(timeout=5)
            self._received.update((message.value() or b"").decode() for message in messages)
            with self._wait():
                answers = await consumer.commit_sync()
            for answer in answers.values():
                if answer is not None:
                    raise answer
        self._received.clear()

    @contextmanager
    def _wait(self) -> Iterator[None]:
        """Measure one wait, even if it fails."""
        began_ms = now_ms()
        try:
            yield
        finally:
            self._waits_ms.append(now_ms() - began_ms)


async def _main(options: CanaryOptions) -> None:
    stop = asyncio.Event()
    reader = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    reader.add_done_callback(lambda _: stop.set())
    await _Singer(options).run(stop)


if __name__ == "__main__":
    asyncio.run(_main(CanaryOptions(**json.loads(sys.argv[1]))))
