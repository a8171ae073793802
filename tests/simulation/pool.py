"""Plays many seeds in worker processes: new interpreters with a fixed hash seed, which get a few seeds at a time.

If a worker dies or hangs, this is a violation by the seed that it was playing; the next worker plays the rest of its
seeds. Parent and worker exchange lines of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TextIO

ROOT: Final = Path(__file__).resolve().parent.parent.parent
#: The hash seed, which determines the iteration order of sets. It must be the same everywhere, so that a seed always
#: gives the same history.
HASH_SEED: Final = "0"
#: The function that plays one seed, as `module:function`: int -> Played.
PLAY: Final = "tests.simulation.play:play"
CHUNK: Final = 8
#: A worker that is silent for longer is killed; a history takes a fraction of a second and has its own, much shorter
#: limit.
SILENT_S: Final = 120.0
PROGRESS_S: Final = 10.0
_LINE_BYTES: Final = 2**22


@dataclass(frozen=True, slots=True)
class Played:
    """A worker's result for one seed: `violations` in words, `rules` broken, and the story if there are any."""

    seed: int
    operations: int = 0
    violations: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    seconds: float = 0.0
    story: str = ""


@dataclass
class Summary:
    """The totals over all seeds of one call of `run`."""

    histories: int = 0
    operations: int = 0
    violations: int = 0
    failed: list[Played] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, played: Played) -> None:
        """Count one more seed."""
        self.histories += 1
        self.operations += played.operations
        self.violations += len(played.violations)
        if played.violations:
            self.failed.append(played)

    def line(self) -> str:
        """Return the closing line."""
        seconds = time.monotonic() - self.began
        return (
            f"histories={self.histories} operations={self.operations} violations={self.violations} "
            f"seconds={seconds:.1f}"
        )


def run(
    seeds: Iterable[int],
    *,
    workers: int | None = None,
    play: str = PLAY,
    say: Callable[[Played], None] | None = None,
    progress: TextIO | None = None,
    silent_s: float = SILENT_S,
    seconds: float = math.inf,
) -> Summary:
    """Play the seeds. `say` is called with each result, in no particular order; `progress` gets a line every ten
    seconds. After `seconds`, or Ctrl-C, no more seeds are started; the summary is of those that were played."""
    pool = _Pool(deque(seeds), play, say, progress=progress, silent_s=silent_s, seconds=seconds)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(pool.run(workers or os.cpu_count() or 1))
    return pool.summary


class _Pool:
    def __init__(
        self,
        seeds: deque[int],
        play: str,
        say: Callable[[Played], None] | None,
        *,
        progress: TextIO | None,
        silent_s: float,
        seconds: float,
    ) -> None:
        self._seeds = seeds
        self._all = len(seeds)
        self._play = play
        self._say = say
        self._progress = progress
        self._silent_s = silent_s
        self._until = time.monotonic() + seconds
        self.summary = Summary()

    async def run(self, workers: int) -> None:
        reporting = asyncio.create_task(self._report_progress())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(workers, self._all)):
                    group.create_task(self._employ())
        finally:
            reporting.cancel()

    async def _report_progress(self) -> None:
        while self._progress is not None:
            await asyncio.sleep(PROGRESS_S)
            print(f"{self.summary.line()} of {self._all}", file=self._progress, flush=True)

    def _done(self, played: Played) -> None:
        self.summary.add(played)
        if self._say is not None:
            self._say(played)

    async def _employ(self) -> None:
        """Run one worker after another, as long as there are seeds."""
        while self._more():
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.simulation.pool",
                self._play,
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
            )
            try:
                while self._more() and await self._feed(process):
                    pass
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    def _more(self) -> bool:
        return bool(self._seeds) and time.monotonic() < self._until

    async def _feed(self, process: asyncio.subprocess.Process) -> bool:
        """Let the worker play some seeds; return False if it is gone."""
        assert process.stdin is not None
        assert process.stdout is not None
        chunk = deque(self._seeds.popleft() for _ in range(min(CHUNK, len(self._seeds))))
        process.stdin.write(json.dumps(list(chunk)).encode() + b"\n")
        why = ""
        while chunk:
            try:
                text = await asyncio.wait_for(process.stdout.readline(), self._silent_s)
            except TimeoutError:
                why = f"said nothing for {self._silent_s:.0f} s"
                break
            if not text.endswith(b"\n"):
                why = f"died with status {await process.wait()}"
                break
            self._done(_played(json.loads(text)))
            chunk.popleft()
        if chunk:
            lost = f"the worker that played seed {chunk[0]} {why}"
            self._done(Played(chunk[0], violations=(lost,), rules=("INV-19",)))
            chunk.popleft()
            self._seeds.extendleft(reversed(chunk))
        return not why


def _played(said: dict[str, Any]) -> Played:
    return Played(**{**said, "violations": tuple(said["violations"]), "rules": tuple(said["rules"])})


def rest_collector() -> None:
    """Prepare a process that plays seed after seed and then exits: collect garbage only at the end of each run, and
    skip imported objects, which are never garbage and would take a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.disable()


def work(play: str, asked: TextIO, answers: TextIO) -> None:
    """Act as a worker: play the seeds in each input line, in order, until there are no more lines."""
    module, _, name = play.partition(":")
    function = getattr(import_module(module), name)
    for text in asked:
        for seed in json.loads(text):
            print(json.dumps(asdict(function(seed))), file=answers, flush=True)


def main() -> None:
    """Work with standard output reserved for results; all other output goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        import_module(sys.argv[1].partition(":")[0])
        rest_collector()
        work(sys.argv[1], sys.stdin, answers)


if __name__ == "__main__":
    main()
