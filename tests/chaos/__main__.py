"""`python -m tests.chaos`: run chaos experiments on a driver, or judge kept histories again.

The last line is `experiments=N records=M lost=L accepted_twice=A`; the exit status is 0 only when L and A are 0 and
every verdict is good.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.deployment import DRIVERS
from tests.chaos.experiments import catalogue, select
from tests.chaos.outcome import Outcome
from tests.chaos.report import exit_status, report
from tests.chaos.runner import Runner, judge_again


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--driver", choices=DRIVERS, default="containers", help="how the cluster runs")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this one, or NAME-…; repeat")
    parser.add_argument("--seed", type=int, help="repeat a run's choices; made up and told when left out")
    parser.add_argument("--out", type=Path, help="new folder for histories and report; default build/chaos/<time>")
    parser.add_argument("--judge", type=Path, metavar="OUT", help="judge what an earlier run kept, run nothing")
    parser.add_argument("--list", action="store_true", help="say which experiments there are")
    return parser.parse_args(words)


def _say(line: str) -> None:
    print(line, flush=True)


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)


def main(words: Sequence[str]) -> int:
    """Run, judge or list; the exit status."""
    asked = _arguments(words)
    signal.signal(signal.SIGTERM, _end)  # everything that was started is removed on the way out, as after Ctrl-C
    if asked.list:
        for definition in catalogue():
            note = "" if definition.by_default else " (only when asked for by name)"
            _say(f"{definition.name:<34}{definition.sentence} [{', '.join(definition.shows)}]{note}")
        return 0
    try:
        if asked.judge is not None:
            return _close(judge_again(asked.judge, catalogue()), asked.judge)
        definitions = select(asked.only)
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    out = (asked.out or Path("build", "chaos", time.strftime("%Y%m%d-%H%M%S"))).absolute()
    out.mkdir(parents=True, exist_ok=False)
    seed = asked.seed if asked.seed is not None else random.randrange(1_000_000)
    _say(f"driver {asked.driver}, --seed {seed}, histories in {out}")
    return _close(Runner(asked.driver, seed, out, _say).run(definitions), out)


def _close(outcomes: list[Outcome], out: Path) -> int:
    text = report(outcomes, out)
    (out / "report.txt").write_text(text)
    _say("\n" + text.rstrip())
    return exit_status(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
