"""B12: task queues, compared with other systems on one Valkey, with jobs that do nothing; also with long jobs.

    python -m benchmarks.workers                                 # all three; the others need the extra `bench`
    python -m benchmarks.workers --only noop --workers 1 4 --python /path/with/celery/bin/python
    python -m benchmarks.workers --only killed --systems worker celery
    python -m benchmarks.workers --only timed --shapes 0.01x2000 1x200 90x12
    python -m benchmarks.workers --secure tls mtls acls

`noop`: a backlog of jobs is stored, workers are started, and rate and CPU time are measured from a fifth of the jobs to
the last; then 100 jobs a second are sent, and the time from sending to start of each is measured. The systems take
turns on one Valkey.
`killed`: during a backlog the worker and its children get SIGKILL, another one is started, and jobs are sent now and
then. Jobs that have not run by the time no more jobs start count as lost. If a system waits for a time-out before it
delivers such jobs again, this is set to 5 s.
`timed`: four workers with one handler each; the ideal is jobs x seconds / 4. Prints one JSON object per run.
`--secure`: `noop` of our worker alone, without TLS and secured in each way, each time on its own store and node; the
ratios are printed on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import peers, report
from benchmarks.machine import process_tree, tree_cpu_seconds
from benchmarks.processes import ROOT, BenchmarkError, Crew, Process
from benchmarks.secure import ACLS, MODES, allow_clients, secured
from benchmarks.valkey_group import store_server
from benchmarks.worker_apps.marks import MARK
from benchmarks.worker_systems import DEFAULT, SYSTEMS, TaskQueue

_APPS: Final = "benchmarks.worker_apps"
_CLI: Final = ("-c", "from sharegroups.cli import run; run()")
_WAIT_S: Final = 60.0
_RUN_S: Final = 900.0
_WORKERS: Final = 4
#: How many of the jobs sent at a steady rate are for warming up, and do not count.
_WARM: Final = 50
#: With a killed worker: the time-out of the systems that wait for one, in seconds.
_REDELIVER_S: Final = 5
#: With a killed worker: how long no new job may start before the remaining ones count as lost, in seconds.
_QUIET_S: Final = 30.0


class Bench:
    """One Valkey and a node on it. Starts workers with their settings in the environment.

    `secure`: a mode of `benchmarks.secure`, in which only our own worker can run; none by default.
    """

    def __init__(self, stack: ExitStack, python: str, partitions: int, redeliver_s: int = 0, secure: str = "") -> None:
        made = tempfile.TemporaryDirectory(prefix="workers-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        self.folder, self.python, self._redeliver_s = folder, python, redeliver_s
        self.crew = Crew()
        server, port = store_server("valkey", "everysec", folder, self.crew)
        stack.callback(server.stop, terminate=True)
        self.store = f"redis://127.0.0.1:{port}/0"
        words = ["up", "--store", self.store, "--init", "--data", str(folder / "node"), "--port", "0"]
        words += ["--output", "json", "--log-level", "warning"]
        self.secured = secured(secure, folder / "certs")
        words += self.secured.words
        node = Process("node", [sys.executable, "-m", "share_node", *words], self.crew, is_server=True)
        stack.callback(node.stop, terminate=True)
        self.bootstrap = str(node.expect("bootstrap", _WAIT_S)["bootstrap"])
        self.servers = {"valkey": server.pid, "node": node.pid}
        self._turn = 0
        from sharegroups import Admin, NewTopic  # noqa: PLC0415 - the other systems' processes do without

        with Admin(self.secured.admin, bootstrap_servers=self.bootstrap) as admin:
            assert admin.create_topics([NewTopic("noop", partitions)]) == {"noop": None}
        if secure == ACLS:
            asyncio.run(self._allow_clients())

    async def _allow_clients(self) -> None:
        from sharegroups.aio import Admin  # noqa: PLC0415 - as above

        async with Admin(self.secured.admin, bootstrap_servers=self.bootstrap) as admin:
            await allow_clients(admin, "noop", ["noop"])

    def command(self, system: TaskQueue) -> list[str]:
        """Return the command for a worker of this system, with the settings of a secured cluster's client."""
        words = system.command(self.python, self.store)
        return [*words, "--command-config", str(self.secured.client_file)] if self.secured.mode else words

    def next_turn(self) -> Path:
        """Return the path of a file for the marks of the next run."""
        self._turn += 1
        return self.folder / f"marks-{self._turn}"

    @contextmanager
    def worker(self, words: list[str], marks: Path, group: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker process inside the block, and end it by SIGTERM."""
        environment = os.environ | {
            "BENCH_MARKS": str(marks), "BENCH_STORE": self.store, "BENCH_BOOTSTRAP": self.bootstrap,
            "BENCH_GROUP": group, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "BENCH_REDELIVER_S": str(self._redeliver_s),
        }  # fmt: skip
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def until(self, marks: Path, count: int, process: subprocess.Popen[bytes] | None = None) -> float:
        """Wait for `count` marks, and return the time. Raises BenchmarkError if the worker ends or takes too long."""
        until = time.monotonic() + _RUN_S
        while not marks.exists() or marks.stat().st_size < count * MARK.size:
            self.crew.poll()
            if time.monotonic() > until or (process is not None and process.poll() is not None):
                tail = (self.folder / "worker.log").read_text(errors="replace")[-2_000:]
                raise BenchmarkError(f"the worker did not do {count} jobs; its log ends with:\n{tail}")
            time.sleep(0.002)
        return time.monotonic()


def send(bench: Bench, system: TaskQueue, count: int, per_second: float) -> None:
    """Send jobs, and return when all are stored. `per_second`: 0 for as fast as possible."""
    if system.app:
        words = [bench.python, "-m", system.app, str(count), str(per_second)]
    else:
        words = [sys.executable, "-m", "benchmarks.workers", "--send", str(count), str(per_second), bench.bootstrap]
        words.append(json.dumps(dict(bench.secured.client)))
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"BENCH_STORE": bench.store, "PYTHONPATH": paths}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise BenchmarkError(f"{system.name}: sending failed: {done.stderr[-2_000:]}")


def run_noop(bench: Bench, system: TaskQueue, jobs: int, latencies: int, workers: int) -> dict[str, Any]:
    """Measure a backlog, and then 100 jobs a second."""
    marks = bench.next_turn()
    send(bench, system, jobs, 0)
    words = bench.command(system)
    with ExitStack() as stack:
        processes = [stack.enter_context(bench.worker(words, marks, "noop")) for _ in range(workers)]
        pids = {
            "workers": [process.pid for process in processes],
            **{name: [pid] for name, pid in bench.servers.items()},
        }
        first = jobs // 5
        began, before = bench.until(marks, first, processes[0]), _cpu(pids)
        wall_s = bench.until(marks, jobs, processes[0]) - began
        us = {name: round((after - before[name]) * 1e6 / (jobs - first), 1) for name, after in _cpu(pids).items()}
        send(bench, system, latencies, 100.0)
        bench.until(marks, jobs + latencies, processes[0])
    late = MARK.iter_unpack(marks.read_bytes()[(jobs + _WARM) * MARK.size :])
    ms = sorted(nanoseconds / 1e6 for nanoseconds, _ in late)
    return {
        "benchmark": "B12", "system": bench.secured.mode or system.name, "workers": workers, "jobs": jobs,
        "jobs_per_s": round((jobs - first) / wall_s), "cpu_us_per_job": us,
        "p50_ms": round(statistics.median(ms), 2), "p99_ms": round(ms[int(len(ms) * 0.99)], 2),
    }  # fmt: skip


def _cpu(pids: dict[str, list[int]]) -> dict[str, float]:
    return {name: sum(map(tree_cpu_seconds, each)) for name, each in pids.items()}


def run_killed(bench: Bench, system: TaskQueue, jobs: int) -> dict[str, Any]:
    """Kill a worker during a backlog, and start another one."""
    marks = bench.next_turn()
    send(bench, system, jobs, 0)
    words = bench.command(system)
    with bench.worker(words, marks, "noop") as process:
        bench.until(marks, jobs // 4, process)
        for pid in process_tree(process.pid).values():  # so that no child can continue alone
            os.kill(pid, signal.SIGKILL)
        process.wait()
    at_kill = _count(marks)
    with bench.worker(words, marks, "noop"):
        began = last = time.monotonic()
        left, more, next_s = jobs, 0, last + 2 * _REDELIVER_S
        while left and (now := time.monotonic()) < last + _QUIET_S:
            bench.crew.poll()
            if now > next_s:  # some systems check for remaining jobs only when a new one arrives
                send(bench, system, 1, 0)
                more, next_s = more + 1, now + _REDELIVER_S
            if (found := jobs + more - len(set(_sent(marks)))) < left:
                left, last = found, now
            time.sleep(0.05)
    sent = _sent(marks)
    return {
        "benchmark": "B12 killed", "system": system.name, "jobs": jobs, "done_before": at_kill,
        "lost": jobs + more - len(set(sent)), "twice": len(sent) - len(set(sent)), "all_done_s": round(last - began, 1),
        "by_default": system.keeps,
    }  # fmt: skip


def _sent(marks: Path) -> list[int]:
    """Return the jobs that have started, each by the time at which it was sent."""
    whole = marks.stat().st_size // MARK.size * MARK.size
    return [sent for _, sent in MARK.iter_unpack(marks.read_bytes()[:whole])]


def run_timed(bench: Bench, seconds: float, jobs: int, partitions: int) -> dict[str, Any]:
    """Measure four workers that share jobs that take `seconds`."""
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
            for _ in range(_WORKERS * 4):  # so that the group and its locks exist before the clock starts
                producer.produce(group, b"0.001")
        _until_sum(bench, files, _WORKERS * 4)
        before = [_count(path) for path in files]
        began = time.monotonic()
        with Producer(bootstrap_servers=bench.bootstrap) as producer:
            for _ in range(jobs):
                producer.produce(group, str(seconds))
        _until_sum(bench, files, sum(before) + jobs)
        wall_s = time.monotonic() - began
        time.sleep(min(seconds, 2.0))  # for jobs that run twice
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
        bench.crew.poll()
        if time.monotonic() > until:
            raise BenchmarkError(f"{sum(map(_count, files))} of {count} jobs were done")
        time.sleep(0.005)


def _send(count: int, per_second: float, bootstrap: str, security: dict[str, str]) -> None:
    from sharegroups import Producer  # noqa: PLC0415

    with Producer(security, bootstrap_servers=bootstrap) as producer:
        began = time.monotonic()
        for number in range(count):
            if per_second:
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            producer.produce("noop", str(time.monotonic_ns()))


def main(arguments: list[str] | None = None) -> int:
    """Run the requested trials. Returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.send:
        _send(int(options.send[0]), float(options.send[1]), options.send[2], json.loads(options.send[3]))
        return 0
    if options.secure:
        if options.only not in (None, "noop"):
            _parser().error(f"--secure goes with --only noop; --only is {options.only}")
        print(ratio_table(list(_run_secure(options))), file=sys.stderr, flush=True)
        return 0
    systems = list(_available(options.systems, options.python))
    with ExitStack() as stack:
        bench = Bench(stack, options.python, options.partitions)
        if options.only in (None, "noop"):
            for number in range(options.rounds):
                for workers in options.workers:
                    for system in systems:
                        found = run_noop(bench, system, system.jobs(options.jobs), options.latencies, workers)
                        print(json.dumps(found | {"round": number + 1}), flush=True)
        if options.only in (None, "timed"):
            for shape in options.shapes:
                seconds, _, jobs = shape.partition("x")
                print(json.dumps(run_timed(bench, float(seconds), int(jobs), options.partitions)), flush=True)
    for system in systems if options.only in (None, "killed") else ():
        with ExitStack() as stack:  # its own store, so that its leftovers do not affect the next run
            bench = Bench(stack, options.python, options.partitions, _REDELIVER_S)
            print(json.dumps(run_killed(bench, system, system.jobs(options.jobs))), flush=True)
    return 0


def _run_secure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run `noop` with our worker without TLS and in each mode, in turns. Prints and yields the runs."""
    system = SYSTEMS[_OURS]
    for number in range(options.rounds):
        for workers in options.workers:
            for mode in ("", *options.secure):
                with ExitStack() as stack:
                    bench = Bench(stack, options.python, options.partitions, secure=mode)
                    found = run_noop(bench, system, system.jobs(options.jobs), options.latencies, workers)
                print(json.dumps(found | {"round": number + 1}), flush=True)
                yield found | {"round": number + 1}


def ratio_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return the ratios of secured runs of `noop` to those without TLS, as text: the median of the rounds, and each."""
    summed = [run | {"cpu_us": sum(run["cpu_us_per_job"].values())} for run in runs]
    found: list[report.Line] = []
    for workers in dict.fromkeys(run["workers"] for run in runs):
        found += report.secure_lines(summed, f"B12 {workers}w", _OURS, _COMPARED, workers=workers)
    rows = [f"{'ratio (median of rounds)':<54}{'ratio':>7}  rounds"]
    for line in found:
        rows.append(f"{line.name:<54}{line.ratio:>7.2f}  {' '.join(f'{value:.2f}' for value in line.rounds)}")
    return "\n".join(rows)


_OURS: Final = "worker"
_COMPARED: Final = (
    ("jobs per s", "jobs_per_s"),
    ("CPU per job", "cpu_us"),
    ("p50 to start", "p50_ms"),
    ("p99 to start", "p99_ms"),
)


def _available(names: Sequence[str], python: str) -> Iterator[TaskQueue]:
    """Yield the systems that are installed; print on standard error what the others lack."""
    for name in names:
        system = SYSTEMS[name]
        if lack := peers.missing(python, system.modules):
            print(f"{name} is left out; it needs {lack}", file=sys.stderr, flush=True)
        else:
            yield system


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--only", choices=["noop", "killed", "timed"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=5_000, help="jobs of each system; twenty times as many of ours")
    parser.add_argument("--latencies", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--systems", nargs="+", choices=tuple(SYSTEMS), default=list(DEFAULT))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 4], help="how many worker processes")
    parser.add_argument("--shapes", nargs="+", default=["0.01x2000", "1x200"])
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the extra `bench`")
    parser.add_argument(
        "--secure", nargs="+", choices=MODES, default=(),
        help="noop of our worker alone: without TLS, with TLS, with mutual TLS, and that with access control",
    )  # fmt: skip
    parser.add_argument("--send", nargs=4, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
