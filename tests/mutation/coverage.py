"""A map of which tests run the lines at which the changes of a sample can be noticed. It is made once; then only those
tests are run for each change.

`python -m tests.mutation.coverage tests/unit/kip932 …` runs these tests and adds what they ran to the map; `--seeds 40`
adds what 40 histories of the simulator run. The map is valid for one sample, until sources or tests change.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from tests.mutation.reach import Reach, reach
from tests.mutation.rooms import ROOMS, ROOT, Place, counts, draw, own_test

MAP: Final = ROOT / "build/mutation_lines.json"
#: The map's key for all histories together.
SEEDS: Final = "seeds"


class Lines:
    """For each test its duration in seconds and, for each file, the watched lines that it ran."""

    def __init__(self) -> None:
        self.tests: dict[str, tuple[float, dict[str, list[int]]]] = {}

    def add(self, test: str, seconds: float, ran: dict[str, set[int]]) -> None:
        """Note the lines that `test` ran; the cases of one test are combined."""
        before, files = self.tests.get(test, (0.0, {}))
        for path, lines in ran.items():
            files[path] = sorted({*files.get(path, ()), *lines})
        self.tests[test] = before + seconds, files

    def noticing(self, where: Reach) -> list[str]:
        """Return the tests that can notice a change there, quickest first."""
        word = re.compile(rf"\b({'|'.join(sorted(where.names)) or '(?!)'})\b")
        naming = cache(lambda path: path != SEEDS and bool(word.search((ROOT / path).read_text(encoding="utf-8"))))
        found = [
            test
            for test, (_, files) in self.tests.items()
            if any(not lines.isdisjoint(files.get(path, ())) for path, lines in where.lines.items())
            or naming(test.partition("::")[0])
        ]
        return sorted(found, key=self.seconds)

    def seconds(self, test: str) -> float:
        """Return how long all cases of `test` took while being watched."""
        return self.tests[test][0]

    @classmethod
    def load(cls, path: Path) -> Lines:
        """Load the map, as far as it has been made."""
        made = cls()
        if path.exists():
            made.tests = {test: (s, files) for test, (s, files) in json.loads(path.read_text("utf-8")).items()}
        return made

    def save(self, path: Path) -> None:
        """Save the map."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.tests), encoding="utf-8")


def noticing(place: Place, seeds: int, lines: Lines) -> list[list[str]]:
    """Return the stages that can notice the change, as arguments for `tests.mutation.one`: the module's own test file
    and, file by file, the tests that run its lines; then this many seeds, if histories run those lines."""
    found = [test for test in lines.noticing(reach(ROOT, place.path, place.change)) if counts(place.room, test)]
    own = own_test(ROOT, place)
    first = own.relative_to(ROOT).as_posix() if own.exists() else ""
    files: dict[str, list[str]] = defaultdict(list)
    for test in found:
        files[test.partition("::")[0]].append(test)
    files.pop(first, None)
    played = files.pop(SEEDS, None)
    rest = sorted(files.values(), key=lambda tests: sum(map(lines.seconds, tests)))
    tests = [*([first] if first else []), *(test for each in rest for test in each)]
    return [*([tests] if tests else []), *([["--seeds", str(seeds)]] if played and seeds else [])]


class Watch:
    """Traces the functions that contain a line of `wanted`, each until a test has run all of its wanted lines once."""

    def __init__(self, wanted: dict[str, set[int]]) -> None:
        self._wanted = {str(ROOT / path): lines for path, lines in wanted.items()}
        self._of_code: dict[int, tuple[CodeType, frozenset[int]]] = {}
        self._unseen: dict[int, set[int]] = {}

    @contextmanager
    def __call__(self) -> Generator[dict[str, set[int]]]:
        """Yield a dictionary that is filled at the end with the lines of each file that ran meanwhile."""
        ran: dict[str, set[int]] = defaultdict(set)
        self._unseen.clear()
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            yield ran
        finally:
            sys.settrace(None)
            threading.settrace(None)
            for number, unseen in self._unseen.items():
                code, lines = self._of_code[number]
                ran[Path(code.co_filename).relative_to(ROOT).as_posix()] |= lines - unseen

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code.co_filename)
        if wanted is None:
            return None
        unseen = self._unseen.get(id(code))
        if unseen is None:
            if (known := self._of_code.get(id(code))) is None:
                # The code object is kept with its lines, so that its id is not reused for another one.
                known = code, frozenset(number for *_, number in code.co_lines() if number in wanted)
                self._of_code[id(code)] = known
            unseen = self._unseen[id(code)] = set(known[1])
        unseen.discard(frame.f_lineno)
        return self._line if unseen else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._unseen[id(frame.f_code)].discard(frame.f_lineno)
        return self._line


class _Plugin:
    def __init__(self, lines: Lines, watch: Watch) -> None:
        self._lines = lines
        self._watch = watch

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began = time.process_time()
        with self._watch() as ran:
            done = yield
        self._lines.add(item.nodeid.partition("[")[0], time.process_time() - began, ran)
        return done


def main(arguments: Sequence[str]) -> int:
    """Run tests or histories, and save which lines they ran; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.coverage", description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="changes per room (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="which sample (default 1)")
    parser.add_argument("--seeds", type=int, default=0, help="histories of the simulator")
    parser.add_argument("--out", type=Path, default=MAP)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args(arguments)
    lines = Lines.load(options.out)
    wanted: dict[str, set[int]] = defaultdict(set)
    for place in (each for room in ROOMS for each in draw(ROOT, room, options.sample, options.seed)):
        for path, numbers in reach(ROOT, place.path, place.change).lines.items():
            wanted[path] |= numbers
    watch = Watch(wanted)
    if options.tests:
        words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options.tests]
        pytest.main(words, plugins=[_Plugin(lines, watch)])
    if options.seeds:
        from tests.simulation.simulate import simulate  # noqa: PLC0415 - a run of tests does not need it

        began = time.process_time()
        with watch() as ran:
            for seed in range(1, options.seeds + 1):
                simulate(seed)
        lines.add(SEEDS, time.process_time() - began, ran)
    lines.save(options.out)
    print(f"tests={len(lines.tests)} seconds={sum(map(lines.seconds, lines.tests)):.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
