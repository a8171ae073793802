"""`python -m benchmarks.pipeline_page`: what a page of an hour with a million entries costs, compared with a scan.

Generates streams, ingests them, and measures in turn a scan, which reads every column of every row, and a page. Both
run in one Spark session; its first round is for warming up and does not count. CPU time is that of the whole process
tree. Prints one JSON line on standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.pipeline_ratios import cpu_of, fill, server
from share_metrics.ingest.job import Cluster, Exposition, Job, collected, run
from share_metrics.ingest.writing import Source, stored
from share_metrics.reader import Kind
from share_metrics.report import render

_HOUR_MS = 3_600_000
GOAL_S = 20.0


class _Running(Cluster):
    """A cluster that uses the session that is already running."""

    def session(self, name: str) -> SparkSession:
        """Return the active session."""
        return SparkSession.getActiveSession() or super().session(name)


def scan(spark: SparkSession, data: Path) -> None:
    """Read every column of every row."""
    stored(spark, data, Kind.SHARE_STATE).write.format("noop").mode("overwrite").save()


def page(data: Path) -> int:
    """Make the page of the last hour. Returns its length in bytes."""
    return len(render(collected(data, (None, None), 60, False, _Running(), _quiet)).encode())


def main() -> int:
    """Measure and print. Returns 0 for any figures, since those from a busy machine mean little."""
    options = _parser().parse_args()
    scans: list[float] = []
    pages: list[float] = []
    times: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        data = Path(folder)
        with server() as (url, client):
            client.set("gc:config", 1)
            fill(client, options.entries, options.streams, _HOUR_MS * options.streams // options.entries)
            run(Job(Source(url, reader_name=""), data), Exposition(), Cluster(), _quiet)
        spark = Cluster().session("pipeline page")
        for number in range(options.rounds + 1):
            scanned = cpu_of(partial(scan, spark, data))
            begin = time.perf_counter()
            made = cpu_of(partial(page, data))
            if number:
                scans.append(scanned)
                pages.append(made)
                times.append(time.perf_counter() - begin)
        size = page(data)
        spark.stop()
    medians = {name: round(statistics.median(values), 1) for name, values in
            (("scan_cpu_s", scans), ("page_cpu_s", pages), ("page_s", times))}  # fmt: skip
    beyond = round(medians["page_cpu_s"] - medians["scan_cpu_s"], 1)
    line = {"benchmark": "page", "entries": options.entries, "streams": options.streams, "rounds": options.rounds}
    print(
        json.dumps(line | medians | {"beyond_cpu_s": beyond, "goal_s": GOAL_S, "met": beyond <= GOAL_S, "bytes": size})
    )
    return 0


def _quiet(_words: str) -> None:
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline_page", description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries in all streams")
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    return parser


if __name__ == "__main__":
    sys.exit(main())
