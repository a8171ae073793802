"""`make mutation`: draw small changes to the product, and count those that the fast tests or 40 simulator seeds find.

Results are saved to a file line by line, so a run can be interrupted and resumed; changes that were not found are
listed at the end, with their places. A test that finds a change must find it again when run alone. A process that spins
or waits for ever counts as finding the change; one that is merely too slow is inconclusive, and the next run judges
that change again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock

from tests.mutation.coverage import MAP, Lines, noticing
from tests.mutation.equivalent import LIST, Equivalents
from tests.mutation.one import IDLE_STATUS
from tests.mutation.rooms import ROOMS, ROOT, Place, draw, stages

#: The maximum time for one stage of one change, in seconds.
STAGE_S = 600


class LateError(Exception):
    """A stage did not end within `STAGE_S`, so it is unknown whether it would have found the change."""


def judge(place: Place, seeds: int, lines: Lines | None = None) -> str:
    """Return what found the change; empty if nothing did. Raises LateError."""
    each = stages(ROOT, place, seeds) if lines is None else noticing(place, seeds, lines)
    return next((said for words in each if (said := _one(place, words)) and _again(place, said)), "")


def _again(place: Place, said: str) -> bool:
    """Return True if a failed test also fails when run alone with the change, so that neither test order nor load was
    the cause."""
    return "::" not in said or bool(_one(place, [said]))


def _one(place: Place, words: Sequence[str]) -> str:
    command = [sys.executable, "-m", "tests.mutation.one", place.module, json.dumps(asdict(place.change)), *words]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=STAGE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LateError(f"{words[-1]}: not ended within {STAGE_S} s") from error
    if done.returncode == IDLE_STATUS:
        return "waits for ever"
    try:
        return str(json.loads(done.stdout.splitlines()[-1])["said"])
    except (IndexError, ValueError, KeyError):
        return f"the process ended with {done.returncode}: {(done.stderr.splitlines() or ['nothing said'])[-1]}"


def main(arguments: Sequence[str]) -> int:
    """Draw changes, judge them, and report by room; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="changes per room (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="which sample (default 1)")
    parser.add_argument("--room", choices=ROOMS, action="append", help="only these rooms")
    parser.add_argument("--seeds", type=int, default=40, help="seeds of the simulator for each change (default 40)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("build/mutation.jsonl"), help="where results are kept")
    parser.add_argument("--again", action="store_true", help="judge again what was not found")
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    kept = _kept(options.out)
    places = [place for room in options.room or ROOMS for place in draw(ROOT, room, options.sample, options.seed)]
    lines = Lines.load(MAP) if MAP.exists() else None
    same = Equivalents.load(LIST)
    lock = Lock()

    def work(place: Place) -> None:
        if place.key in kept and (kept[place.key] or not options.again or same.reason(place)):
            return
        try:
            said = judge(place, options.seeds, lines)
        except LateError as late:
            print(f"undecided {place.path}:{place.change}  {late}", flush=True)
            return
        with lock, options.out.open("a", encoding="utf-8") as file:
            kept[place.key] = said
            file.write(json.dumps({"key": place.key, "said": said}) + "\n")
            print(f"{'found    ' if said else 'NOT FOUND'} {place.path}:{place.change}  {said}", flush=True)

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(work, places))
    report(places, kept, same)
    return 0


def _kept(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["key"]: line["said"] for line in lines}


def report(places: Sequence[Place], kept: dict[str, str], same: Equivalents) -> None:
    """Print the changes that nothing found, then a line for each room. Equivalent changes are listed separately, never
    as found."""
    for place in places:
        if not kept.get(place.key, "undecided"):
            reason = same.reason(place)
            print(f"{f'equivalent, {reason}' if reason else 'not found'}: {place.path}:{place.change}")
    for room in ROOMS:
        mine = [place for place in places if place.room == room and place.key in kept]
        if mine:
            found = [said for place in mine if (said := kept[place.key])]
            seeds = sum(said.startswith("seed ") for said in found)
            equal = sum(bool(same.reason(place)) for place in mine if not kept[place.key])
            print(
                f"room={room} changes={len(mine)} found={len(found)} by_tests={len(found) - seeds} by_seeds={seeds} "
                f"equivalent={equal} not_found={len(mine) - len(found) - equal} share={len(found) / len(mine):.2f} "
                f"of_different={len(found) / (len(mine) - equal or 1):.2f}"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
