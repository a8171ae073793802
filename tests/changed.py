"""Run the daily tests that changes since a commit may affect, nearest first (`make test-changed`).

A test is affected by every file that it imports, directly or indirectly. Links other than imports (a command that a
test runs, a `.proto` file, a manifest) are not followed; `make test` runs everything.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.packaging.source_imports import ROOT, arrows
from tests.tiers import DAILY, tier_of

#: The maximum number of test files to run; that many take a minute or two on two cores.
FILES_MAX: Final = 150
_GIT_S: Final = 60


def distances(tests: Iterable[Path], changed: Collection[Path]) -> dict[Path, int]:
    """Return the tests that import a changed file, each with the smallest number of imports between them (0: the test
    changed)."""
    into: dict[Path, set[Path]] = {}
    seen, todo = set(tests), list(tests)
    while todo:
        file = todo.pop()
        for target in arrows(file):
            into.setdefault(target, set()).add(file)
            if target not in seen:
                seen.add(target)
                todo.append(target)
    found, reach, steps = {}, set(changed), 0
    known = set(reach)
    while reach:
        found.update(dict.fromkeys(reach, steps))
        reach = {file for target in reach for file in into.get(target, ())} - known
        known |= reach
        steps += 1
    return {test: found[test] for test in tests if test in found}


def nearest(found: Mapping[Path, int], files_max: int = FILES_MAX) -> list[Path]:
    """Return at most `files_max` files, those with the smallest distance first."""
    return sorted(found, key=lambda file: (found[file], file))[:files_max]


def daily(paths: Iterable[Path]) -> list[Path]:
    """Return the files below tests/ whose tests are daily unless a line says otherwise."""
    return [path for path in paths if tier_of(path.relative_to(ROOT).as_posix()) == DAILY]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=_GIT_S, check=False)
    if done.returncode:
        raise SystemExit(f"`git {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def changed_since(commit: str) -> list[Path]:
    """Return the Python files that differ from a commit, including new files but not deleted ones."""
    names = {*_git("diff", "--name-only", commit), *_git("ls-files", "--others", "--exclude-standard")}
    return [ROOT / name for name in sorted(names) if name.endswith(".py") and (ROOT / name).exists()]


def main(arguments: list[str] | None = None) -> int:
    """Run the tests; returns pytest's exit code, or 0 if there is nothing to run."""
    parser = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__.partition("\n")[0])
    parser.add_argument("--since", default="HEAD", metavar="COMMIT", help="default: HEAD, what is not committed yet")
    parser.add_argument("--list", action="store_true", help="print the files instead of running them")
    options = parser.parse_args(arguments)
    changed = changed_since(options.since)
    found = distances(daily(sorted((ROOT / "tests").rglob("test_*.py"))), changed)
    chosen = nearest(found)
    some = f", the nearest {len(chosen)} of which run" if len(chosen) < len(found) else ""
    print(f"{len(changed)} Python files differ from {options.since}; {len(found)} files of tests reach them{some}")
    names = [path.relative_to(ROOT).as_posix() for path in chosen]
    if options.list or not names:
        print(*names, sep="\n")
        return 0
    words = ["--numprocesses", "2", "--dist", "loadgroup", "--tier", DAILY, *names]
    return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
