"""`python -m benchmarks.pipeline_executors`: an ingest with one executor, and with two, of one core each.

Executors are separate processes, as on a cluster (Spark's `local-cluster`). The two cases take turns within a round,
each in its own process, whose first ingest warms it up. Prints one JSON line: the rows per second of both, their ratio,
the rows per CPU second of executors with their Python workers, the driver's CPU time, and the fraction of the machine
that other processes used, by which a round is flagged.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.machine import arguments, busy_seconds, process_tree, tree_cpu_seconds
from benchmarks.pipeline_ratios import fill, server
from share_metrics.ingest.writing import Source, start
from share_metrics.reader import Kind
from share_metrics.spark import build_session, tasks_wanted

_EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_BOUND_S: Final = 900
_EXECUTORS: Final = (1, 2)
_FOREIGN_MAX: Final = 0.1


def executors_cpu_s() -> float:
    """Return the CPU seconds so far of this process's executors, with their Python workers."""
    mine = [pid for pid in process_tree(os.getpid()).values() if _EXECUTOR in arguments(pid)]
    return sum(tree_cpu_seconds(pid) for pid in mine)


def ingest(source: Source, folder: Path) -> None:
    """Ingest all entries of the source into a new folder. Raises TimeoutError."""
    spark = build_session("executors")
    job = start(spark, source, folder, [Kind.SHARE_STATE])
    until = time.monotonic() + _BOUND_S
    try:
        while not job.wait(1):
            if time.monotonic() > until:
                raise TimeoutError(f"the ingest did not end within {_BOUND_S} s")
    finally:
        job.stop()


def one(url: str, executors: int, entries: int) -> dict[str, float]:
    """Warm up, and measure one ingest in this process with the given number of executors."""
    settings = {"spark.executor.memory": "1024m", "spark.driver.host": "127.0.0.1"}
    spark = build_session("executors", f"local-cluster[{executors},1,1024]", settings)
    until = time.monotonic() + _BOUND_S
    while spark.sparkContext.defaultParallelism < executors and time.monotonic() < until:
        time.sleep(0.1)
    source = Source(url, reader_name="").split_into(tasks_wanted(spark))
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        ingest(source, Path(folder) / "warm")
        cpu_s, all_s, busy_s, begin = executors_cpu_s(), tree_cpu_seconds(os.getpid()), busy_seconds(), time.monotonic()
        ingest(source, Path(folder) / "data")
        wall_s = time.monotonic() - begin
        cpu_s, all_s = executors_cpu_s() - cpu_s, tree_cpu_seconds(os.getpid()) - all_s
        foreign_s = busy_seconds() - busy_s - all_s
    spark.stop()
    return {
        "rows_per_s": entries / wall_s,
        "rows_per_cpu_s": entries / cpu_s,
        "driver_cpu_s": all_s - cpu_s,
        "foreign_share": max(0.0, foreign_s) / wall_s / (os.cpu_count() or 1),
    }


def _turn(url: str, executors: int, entries: int) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.pipeline_executors", "--one", url]
    words += ["--executors", str(executors), "--entries", str(entries)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=3 * _BOUND_S)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(runs: dict[int, list[dict[str, float]]]) -> dict[str, object]:
    """Return medians by number of executors, their ratio, and whether others used over a tenth of the machine."""
    names = runs[_EXECUTORS[0]][0]
    medians = {
        number: {name: round(statistics.median(run[name] for run in found), 3) for name in names}
        for number, found in runs.items()
    }
    ratio = medians[2]["rows_per_s"] / medians[1]["rows_per_s"]
    foreign = max(run["foreign_share"] for found in runs.values() for run in found)
    return {
        "benchmark": "pipeline executors",
        "ratio": round(ratio, 3),
        "executors": medians,
        "runs": runs,
        "flagged": foreign > _FOREIGN_MAX,
    }


def main() -> int:
    """Measure and print. Returns 0 for any ratio, since figures from a busy machine mean little."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline_executors", description=__doc__)
    parser.add_argument("--entries", type=int, default=600_000, help="entries in all streams")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--executors", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.executors, options.entries)))
        return 0
    runs: dict[int, list[dict[str, float]]] = {number: [] for number in _EXECUTORS}
    with server() as (url, client):
        fill(client, options.entries, options.streams)
        for _ in range(options.rounds):
            for number in _EXECUTORS:
                runs[number].append(_turn(url, number, options.entries))
                print(number, "executors:", runs[number][-1], file=sys.stderr)
    how = {name: getattr(options, name) for name in ("entries", "streams", "rounds")}
    print(json.dumps(summary(runs) | how))
    return 0


if __name__ == "__main__":
    sys.exit(main())
