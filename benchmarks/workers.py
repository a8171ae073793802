"""B12: workers. Jobs that do nothing, beside Celery and taskiq on the same Valkey; and jobs that take a while.

    python -m benchmarks.workers                                 # both; the others need the extra `bench`
    python -m benchmarks.workers --only noop --rounds 3 --python /path/with/celery/bin/python
    python -m benchmarks.workers --only timed --shapes 0.01x2000 1x200 90x12

`noop`: a backlog of jobs is stored, one worker is started, and the rate is taken from a fifth of them to the last; then
100 jobs a second are sent, and it is measured how long after being sent each has begun. The systems take turns on one
Valkey.
`timed`: four workers with one handler each; the ideal is jobs x seconds / 4. Prints one JSON object a run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import ROOT, BenchmarkError, Crew, Process
from benchmarks.valkey_group import store_server
from benchmarks.worker_apps.marks import MARK

_APPS: Final = "benchmarks.worker_apps"
_CLI: Final = ("-c", "from sharegroups.cli import run; run()")
_WAIT_S: Final = 60.0
_RUN_S: Final = 900.0
_WORKERS: Final = 4
#: After the first mark of a warm-up, s; then the worker is ready.
_WARM: Final = 50


class Bench:
    """One Valkey, one node on it, and what the started workers are told by their environment."""

    def __init__(self, stack: ExitStack, folder: Path, python: str) -> None:
        self.folder, self.python = folder, python
        self.crew = Crew()
        server, port = store_server("valkey", "everysec", folder, self.crew)
        stack.callback(server.stop, terminate=True)
        self.store = f"redis://127.0.0.1:{port}/0"
        words = ["up", "--store", self.store, "--init", "--data", str(folder / "node"), "--port", "0"]
        words += ["--output", "json", "--log-level", "warning"]
        node = Process("node", [sys.executable, "-m", "share_node", *words], self.crew, is_server=True)
        stack.callback(node.stop, terminate=True)
        self.bootstrap = str(node.expect("bootstrap", _WAIT_S)["bootstrap"])
        self._turn = 0

    def next_turn(self) -> Path:
        """A file for the marks of the next run."""
        self._turn += 1
        return self.folder / f"marks-{self._turn}"

    @contextmanager
    def worker(self, words: list[str], marks: Path, group: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, ended by SIGTERM."""
        environment = os.environ | {
            "BENCH_MARKS": str(marks), "BENCH_STORE": self.store, "BENCH_BOOTSTRAP": self.bootstrap,
            "BENCH_GROUP": group, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def until(self, marks: Path, count: int, process: subprocess.Popen[bytes] | None = None) -> float:
        """Wait for so many marks; the moment of the last. Raises BenchmarkError when the worker ends before."""
        until = time.monotonic() + _RUN_S
        while not marks.exists() or marks.stat().st_size < count * MARK.size:
            self.crew.look()
            if time.monotonic() > until or (process is not None and process.poll() is not None):
                tail = (self.folder / "worker.log").read_text(errors="replace")[-2_000:]
                raise BenchmarkError(f"the worker did not do {count} jobs; its log ends with:\n{tail}")
            time.sleep(0.002)
        return time.monotonic()


def noop_words(system: str, python: str) -> list[str]:
    """How a system's worker is started."""
    return {
        "worker": [sys.executable, *_CLI, "worker", f"{_APPS}.share_jobs:noop", "--quiet"],
        "taskiq": [python, "-m", "taskiq", "worker", f"{_APPS}.taskiq_jobs:broker", "--workers", "1"],
        "celery": [python, "-m", "celery", "-A", f"{_APPS}.celery_jobs", "worker", "-c", "1", "-l", "WARNING"],
        "celery-threads": [
            python, "-m", "celery", "-A", f"{_APPS}.celery_jobs", "worker", "-P", "threads", "-c", "8", "-l", "WARNING",
        ],
    }[system]  # fmt: skip


def send(bench: Bench, system: str, count: int, per_second: float) -> None:
    """Send jobs, and return when all are stored; `per_second` 0: as fast as it goes."""
    if system == "worker":
        words = [sys.executable, "-m", "benchmarks.workers", "--send", str(count), str(per_second), bench.bootstrap]
    else:
        words = [bench.python, "-m", f"{_APPS}.{system.partition('-')[0]}_jobs", str(count), str(per_second)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"BENCH_STORE": bench.store, "PYTHONPATH": paths}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise BenchmarkError(f"{system}: sending failed: {done.stderr[-2_000:]}")


def run_noop(bench: Bench, system: str, jobs: int, latencies: int) -> dict[str, Any]:
    """A backlog, and then 100 jobs a second."""
    marks = bench.next_turn()
    send(bench, system, jobs, 0)
    with bench.worker(noop_words(system, bench.python), marks, "noop") as process:
        first = jobs // 5
        began = bench.until(marks, first, process)
        wall_s = bench.until(marks, jobs, process) - began
        send(bench, system, latencies, 100.0)
        bench.until(marks, jobs + latencies, process)
    found = MARK.iter_unpack(marks.read_bytes()[(jobs + _WARM) * MARK.size :])
    ms = sorted(nanoseconds / 1e6 for (nanoseconds,) in found)
    return {
        "benchmark": "B12", "system": system, "jobs": jobs, "jobs_per_s": round((jobs - first) / wall_s),
        "p50_ms": round(statistics.median(ms), 2), "p99_ms": round(ms[int(len(ms) * 0.99)], 2),
    }  # fmt: skip


def run_timed(bench: Bench, seconds: float, jobs: int, partitions: int) -> dict[str, Any]:
    """Four workers share jobs that take `seconds`."""
    from sharegroups import Admin, NewTopic, Producer  # noqa: PLC0415 - the other systems' processes do without

    group = f"timed-{seconds:g}-{time.time_ns()}"
    with Admin(bootstrap_servers=bench.bootstrap) as admin:
        assert admin.create_topics([NewTopic(group, partitions)]) == {group: None}
    files = [bench.next_turn() for _ in range(_WORKERS)]
    words = [sys.executable, *_CLI, "worker", f"{_APPS}.share_jobs:timed", "--quiet"]
    with ExitStack() as stack:
        for marks in files:
            stack.enter_context(bench.worker(words, marks, group))
        with Producer(bootstrap_servers=bench.bootstrap) as producer:
            for _ in range(_WORKERS * 4):  # the group and its locks are there before the clock starts
                producer.produce(group, b"0.001")
        _until_sum(bench, files, _WORKERS * 4)
        before = [_count(path) for path in files]
        began = time.monotonic()
        with Producer(bootstrap_servers=bench.bootstrap) as producer:
            for _ in range(jobs):
                producer.produce(group, str(seconds))
        _until_sum(bench, files, sum(before) + jobs)
        wall_s = time.monotonic() - began
        time.sleep(min(seconds, 2.0))  # what is run twice is run by now
        runs = [_count(path) - past for path, past in zip(files, before, strict=True)]
    ideal_s = jobs * seconds / _WORKERS
    return {
        "benchmark": "B12", "job_s": seconds, "jobs": jobs, "runs": sum(runs), "by_worker": runs,
        "wall_s": round(wall_s, 2), "ideal_s": ideal_s, "ratio": round(wall_s / ideal_s, 3),
    }  # fmt: skip


def _count(path: Path) -> int:
    return path.stat().st_size // MARK.size if path.exists() else 0


def _until_sum(bench: Bench, files: list[Path], count: int) -> None:
    until = time.monotonic() + _RUN_S
    while sum(map(_count, files)) < count:
        bench.crew.look()
        if time.monotonic() > until:
            raise BenchmarkError(f"{sum(map(_count, files))} of {count} jobs were done")
        time.sleep(0.005)


def _send(count: int, per_second: float, bootstrap: str) -> None:
    from sharegroups import Producer  # noqa: PLC0415

    with Producer(bootstrap_servers=bootstrap) as producer:
        began = time.monotonic()
        for number in range(count):
            if per_second:
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            producer.produce("noop", str(time.monotonic_ns()))


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for. Returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.send:
        _send(int(options.send[0]), float(options.send[1]), options.send[2])
        return 0
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="workers-", ignore_cleanup_errors=True)
        bench = Bench(stack, Path(stack.enter_context(made)), options.python)
        from sharegroups import Admin, NewTopic  # noqa: PLC0415

        with Admin(bootstrap_servers=bench.bootstrap) as admin:
            assert admin.create_topics([NewTopic("noop", options.partitions)]) == {"noop": None}
        if options.only != "timed":
            for _ in range(options.rounds):
                for system in options.systems:
                    jobs = options.jobs * (20 if system == "worker" else 1)
                    print(json.dumps(run_noop(bench, system, jobs, options.latencies)), flush=True)
        if options.only != "noop":
            for shape in options.shapes:
                seconds, _, jobs = shape.partition("x")
                print(json.dumps(run_timed(bench, float(seconds), int(jobs), options.partitions)), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--only", choices=["noop", "timed"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=5_000, help="jobs of each system; twenty times as many of ours")
    parser.add_argument("--latencies", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--systems", nargs="+", default=["worker", "taskiq", "celery"])
    parser.add_argument("--shapes", nargs="+", default=["0.01x2000", "1x200"])
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the extra `bench`")
    parser.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
