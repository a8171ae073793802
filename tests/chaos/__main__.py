"""`python -m tests.chaos`: runs chaos experiments on a driver and on stores, or judges kept histories again.

The last line is `experiments=N records=M lost=L accepted_twice=A verdict=V`; V is good and the exit status 0 only if L
and A are 0 and every verdict is good; otherwise V is BAD.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.beside import Beside
from tests.chaos.deployment import DRIVERS
from tests.chaos.experiments import catalogue, meant, select
from tests.chaos.experiments.definition import Definition
from tests.chaos.outcome import Outcome
from tests.chaos.report import exit_status, report
from tests.chaos.runner import Runner, judge_again
from tests.chaos.signals import exit_on_sigterm
from tests.chaos.stores import catalogue as stores


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--driver", choices=DRIVERS, default="containers", help="how the cluster runs")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="see --list; NAME-… too; stores: all of them"
    )
    parser.add_argument("--seed", type=int, help="repeat a run's choices; made up and printed when left out")
    parser.add_argument("--out", type=Path, help="new folder for histories and report; default build/chaos/<time>")
    parser.add_argument("--judge", type=Path, metavar="OUT", help="judge what an earlier run kept, run nothing")
    parser.add_argument("--list", action="store_true", help="say which experiments there are")
    return parser.parse_args(words)


def _say(line: str) -> None:
    print(line, flush=True)


def _note(definition: Definition) -> str:
    """Return the remark for an experiment that is not run by default; "" for the others."""
    return "" if definition.by_default else " (only when asked for by name)"


def _list() -> None:
    for definition in catalogue():
        _say(f"{definition.name:<34}{definition.sentence} [{', '.join(definition.shows)}]{_note(definition)}")
    by_default = {experiment.name for experiment in stores.default()}
    for experiment in stores.catalogue():
        note = "" if experiment.name in by_default else " (only when asked for by name)"
        _say(f"{experiment.name:<34}{experiment.sentence} [{', '.join(experiment.shows)}]{note}")


def _selected(names: list[str]) -> tuple[tuple[Definition, ...], list[stores.StoreExperiment]]:
    """Return the selected experiments on clusters and those on stores. Raises ValueError for a name that matches
    neither."""
    if not names:
        return select([]), stores.default()
    for name in names:
        if not meant(name) and not stores.named(name):
            raise ValueError(f"there is no experiment {name}; --list names them all")
    of_clusters = [name for name in names if meant(name)]
    of_stores = [name for name in names if stores.named(name)]
    return select(of_clusters) if of_clusters else (), stores.select(of_stores) if of_stores else []


def main(words: Sequence[str]) -> int:
    """Run, judge or list; return the exit status."""
    asked = _arguments(words)
    exit_on_sigterm()
    if asked.list:
        _list()
        return 0
    try:
        if asked.judge is not None:
            return _close(judge_again(asked.judge, catalogue()), asked.judge)
        definitions, experiments = _selected(asked.only)
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    out = (asked.out or Path("build", "chaos", time.strftime("%Y%m%d-%H%M%S"))).absolute()
    out.mkdir(parents=True, exist_ok=False)
    seed = asked.seed if asked.seed is not None else random.randrange(1_000_000)
    _say(f"driver {asked.driver}, --seed {seed}, histories in {out}")
    began = time.monotonic()
    with Beside(out, seed, experiments, _say) as beside:
        outcomes = [*Runner(asked.driver, seed, out, _say).run(definitions), *beside.outcomes()]
    return _close(outcomes, out, time.monotonic() - began)


def _close(outcomes: list[Outcome], out: Path, seconds: float = 0.0) -> int:
    text = report(outcomes, out, seconds)
    (out / "report.txt").write_text(text)
    _say("\n" + text.rstrip())
    return exit_status(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
