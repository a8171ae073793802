"""`make sim`: plays ranges of seeds, or one seed with its story. The exit code is 1 if any rule is broken.

The last line is `histories=N operations=M violations=V seconds=S`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.simulation.pool import HASH_SEED, PLAY, Played, Summary, run

DEFAULT: Final = "1-2000"
#: The maximum number of broken seeds in a range whose story is printed in full; for others, only the violation is.
STORIES_MAX: Final = 3
#: The maximum number of broken seeds in a range that are printed; the rest appear only in the table by rule.
LINES_MAX: Final = 30
#: Fresh seeds are drawn above this number, so that they are never in the default range.
_FRESH_FROM: Final = 1_000_000
_SEEDS_MAX: Final = 20


def main(arguments: Sequence[str]) -> int:
    """Play the requested seeds and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.seed is None:
        return play_range(seeds_to_play(options.seeds, options.fresh), options.workers, seconds=options.seconds)
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *arguments], environment)
    # Imported late: to play a range, this process does not need the product.
    from tests.simulation.single import play_one  # noqa: PLC0415

    return play_one(options.seed, options.plan, options.out, options.events, options.shrink)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default=DEFAULT, help=f"seeds to play, as 1-2000 or 3,17,20-29 (default {DEFAULT})")
    parser.add_argument("--fresh", type=int, default=0, help="play this many seeds, drawn from the time, instead")
    parser.add_argument("--workers", type=int, default=None, help="worker processes (default: one per CPU)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no more seeds after this many seconds")
    parser.add_argument("--seed", type=int, help="play one seed and print its story")
    parser.add_argument("--plan", default="", help="with --seed: this plan, as JSON or a file with it")
    parser.add_argument("--out", default="", help="with --seed: write every event and every log line to this file")
    parser.add_argument("--events", type=int, default=40, help="with --seed: events shown per violation (default 40)")
    parser.add_argument("--shrink", action="store_true", help="with --seed: search for a shorter plan that breaks it")
    return parser


def seeds_to_play(ranges: str, fresh: int) -> list[int]:
    """Return `fresh` new seeds, after printing them, or the seeds in `ranges`."""
    if fresh:
        first = _FRESH_FROM + time.time_ns() // 1_000_000 % 1_000_000_000
        print(f"fresh seeds {first}-{first + fresh - 1}", flush=True)
        return list(range(first, first + fresh))
    return seeds_of(ranges)


def seeds_of(ranges: str) -> list[int]:
    """Return the seeds in a text such as `1-2000` or `3,17,20-29`. Raises SystemExit with the expected form."""
    seeds: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        try:
            seeds += range(int(first), int(last or first) + 1)
        except ValueError:
            raise SystemExit(f"{ranges!r} are not seeds; try 1-2000 or 3,17,20-29") from None
    return seeds


def play_range(seeds: Sequence[int], workers: int | None = None, play: str = PLAY, seconds: float = math.inf) -> int:
    """Play seeds in worker processes, report those that broke a rule, and print the summary."""
    progress = sys.stderr if sys.stderr.isatty() else None
    return close(run(seeds, workers=workers, play=play, say=_Teller().say, progress=progress, seconds=seconds))


def close(summary: Summary) -> int:
    """Print which seeds broke which rules, then the last line; return the exit code."""
    by_rule: dict[str, list[int]] = {}
    for played in summary.failed:
        for rule in played.rules:
            by_rule.setdefault(rule, []).append(played.seed)
    for rule, seeds in sorted(by_rule.items()):
        more = f" and {len(seeds) - _SEEDS_MAX} more" if len(seeds) > _SEEDS_MAX else ""
        print(f"{rule}: {', '.join(map(str, sorted(seeds)[:_SEEDS_MAX]))}{more}")
    print(summary.line(), flush=True)
    return 1 if summary.violations else 0


class _Teller:
    def __init__(self) -> None:
        self._said = 0

    def say(self, played: Played) -> None:
        if not played.violations:
            return
        self._said += 1
        if played.story and self._said <= STORIES_MAX:
            print(f"{played.story}\n", flush=True)
        elif self._said <= LINES_MAX:
            more = f" (and {len(played.violations) - 1} more)" if len(played.violations) > 1 else ""
            print(f"seed {played.seed}: {played.violations[0]}{more}  again: make sim SEED={played.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
