"""`make mutation`: draw small changes to the product, and count those that fast tests or forty seeds find.

Results are kept line by line in a file, so that a run can be ended and taken up again; what was not found is listed at
the end, with its place. Time-outs count as found: a process that never ends is noticed.
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

from tests.mutation.rooms import ROOMS, ROOT, Place, draw, stages

#: The longest that one stage of one change may take, in seconds.
STAGE_S = 300


def judge(place: Place, seeds: int) -> str:
    """What found the change; empty when nothing did."""
    return next((said for words in stages(ROOT, place, seeds) if (said := _one(place, words))), "")


def _one(place: Place, words: Sequence[str]) -> str:
    command = [sys.executable, "-m", "tests.mutation.one", place.module, json.dumps(asdict(place.change)), *words]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=STAGE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{words[-1]}: not ended within {STAGE_S} s"
    try:
        return str(json.loads(done.stdout.splitlines()[-1])["said"])
    except (IndexError, ValueError, KeyError):
        return f"the process ended with {done.returncode}: {(done.stderr.splitlines() or ['nothing said'])[-1]}"


def main(arguments: Sequence[str]) -> int:
    """Draw, judge, and report per room."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=40, help="changes per room (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="which sample (default 1)")
    parser.add_argument("--room", choices=ROOMS, action="append", help="only these rooms")
    parser.add_argument("--seeds", type=int, default=40, help="seeds of the simulator for each change (default 40)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("build/mutation.jsonl"), help="where results are kept")
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    kept = _kept(options.out)
    places = [place for room in options.room or ROOMS for place in draw(ROOT, room, options.sample, options.seed)]
    lock = Lock()

    def work(place: Place) -> None:
        if place.key not in kept:
            said = judge(place, options.seeds)
            with lock, options.out.open("a", encoding="utf-8") as file:
                kept[place.key] = said
                file.write(json.dumps({"key": place.key, "said": said}) + "\n")
                print(f"{'found    ' if said else 'NOT FOUND'} {place.path}:{place.change}  {said}", flush=True)

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(work, places))
    report(places, kept)
    return 0


def _kept(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["key"]: line["said"] for line in lines}


def report(places: Sequence[Place], kept: dict[str, str]) -> None:
    """The changes that nothing found, then a line for each room."""
    for place in places:
        if not kept[place.key]:
            print(f"not found: {place.path}:{place.change}")
    for room in ROOMS:
        mine = [place for place in places if place.room == room]
        if mine:
            found = sum(bool(kept[place.key]) for place in mine)
            print(f"room={room} changes={len(mine)} found={found} share={found / len(mine):.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
