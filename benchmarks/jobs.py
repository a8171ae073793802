"""Compares settings of a share consumer for jobs and for small records: `python -m benchmarks.jobs`.

Each set of settings processes the same burst in turn, on one node: first jobs that take a while, by several workers
with the README's loop; then small records, by one worker. Compare figures within one run only. `runs` above the number
of jobs means that jobs ran twice; `share` is each worker's part.

    python -m benchmarks.jobs                                      # 500 jobs of 20 ms, lock 6 s; 200,000 small records
    python -m benchmarks.jobs --scale 1 --only jobs                # 500 jobs of 0.1 s, lock 30 s
    python -m benchmarks.jobs --only jobs --scale 1 --jobs 24 --job-s 20 --ways jobs default
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import BenchmarkError, Crew, Process, hear, say, worker

#: The sets of consumer settings that are compared.
WAYS: Final[dict[str, dict[str, Any]]] = {
    "kafka": {"share.acquire.mode": "batch_optimized", "max.poll.records": 500},
    "limit-500": {"share.acquire.mode": "record_limit", "max.poll.records": 500},
    "limit-10": {"share.acquire.mode": "record_limit", "max.poll.records": 10},
    "jobs": {"share.acquire.mode": "record_limit", "max.poll.records": 1},
    "adaptive": {"share.acquire.mode": "adaptive"},
    "default": {},
}
LOCK_S: Final = 30.0
_WAIT_S: Final = 60.0
_LIMIT_S: Final = 600.0


def main(arguments: list[str] | None = None) -> int:
    """Run the requested bursts. Returns the exit status."""
    options = _parser().parse_args(arguments)
    lock_s = LOCK_S * options.scale
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobs-", ignore_cleanup_errors=True)))
        crew = Crew()
        words = ["share_node", "up", "--data", str(folder), "--port", "0", "--output", "json", "--fsync", "everysec"]
        words += ["--set", "group.share.min.record.lock.duration.ms=1000"]
        words += ["--set", f"group.share.record.lock.duration.ms={int(lock_s * 1000)}", "--log-level", "warning"]
        node = Process("node", [sys.executable, "-m", *words], crew, is_server=True)
        stack.callback(node.stop, terminate=True)
        bootstrap = str(node.expect("bootstrap", _WAIT_S)["bootstrap"])
        for number in range(options.rounds):
            for way in options.ways:
                if options.only != "drain":
                    job = {"records": options.jobs, "job_s": options.job_s * options.scale, "workers": options.workers}
                    _report("jobs", way, number, _run(bootstrap, crew, way, job))
                if options.only != "jobs":
                    drain = {"records": options.drain, "job_s": 0.0, "workers": 1}
                    _report("drain", way, number, _run(bootstrap, crew, way, drain))
    return 0


def _report(kind: str, way: str, number: int, found: dict[str, Any]) -> None:
    print(json.dumps({"benchmark": kind, "way": way, "round": number + 1} | found), flush=True)


def _run(bootstrap: str, crew: Crew, way: str, task: dict[str, Any]) -> dict[str, Any]:
    """Process one burst with one set of settings. Raises BenchmarkError."""
    from sharegroups import Admin, Producer  # noqa: PLC0415 - imported when a run needs it, as workers do

    topic = f"t-{way}-{time.monotonic_ns()}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([topic])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(task["records"]):
            producer.produce(topic, b"%d" % number + b"." * 90)
    settings = {"bootstrap.servers": bootstrap, "group.id": topic} | WAYS[way]
    workers = [
        worker(f"worker {number}", "jobs", "worker", {"settings": settings, "topic": topic} | task, crew)
        for number in range(task["workers"])
    ]
    try:
        for process in workers:
            process.expect("ready", _WAIT_S)
        gate = time.monotonic()
        for process in workers:
            process.send("go")
        _await_done(bootstrap, topic, task["records"], crew)
        for process in workers:
            process.send("stop")
        said = [process.expect("runs", _WAIT_S) for process in workers]
    finally:
        for process in workers:
            process.stop()
    runs = Counter(offset for one in said for offset, times in one["runs"] for _ in range(times))
    if len(runs) != task["records"]:
        raise BenchmarkError(f"{way}: {len(runs)} of {task['records']} records were seen")
    total = runs.total()
    seconds = max(one["last"] for one in said) - gate
    return {
        "records": task["records"],
        "job_s": task["job_s"],
        "runs": total,
        "most_runs_of_one": max(runs.values()),
        "refused": sum(one["refused"] for one in said),
        "seconds": round(seconds, 2),
        "per_s": round(task["records"] / seconds, 1),
        "share": [round(sum(times for _, times in one["runs"]) / total, 2) for one in said],
    }


def _await_done(bootstrap: str, topic: str, records: int, crew: Crew) -> None:
    """Wait until the group has finished all records. Raises BenchmarkError."""
    from sharegroups import Admin, KafkaError  # noqa: PLC0415

    until = time.monotonic() + _LIMIT_S
    with Admin(bootstrap_servers=bootstrap) as admin:
        while time.monotonic() < until:
            found = admin.list_share_group_offsets({topic: None})[topic]
            if not isinstance(found, KafkaError) and any(
                entry is not None and entry.start_offset == records for entry in found.values()
            ):
                return
            crew.rest(0.2)
    raise BenchmarkError(f"{topic} was not done within {_LIMIT_S:g} s")


def _worker(settings: dict[str, Any]) -> None:
    """Run the README's loop: poll, work, poll again; count refused acknowledgements."""
    from sharegroups import KafkaError, ShareConsumer, TopicIdPartition  # noqa: PLC0415

    runs: Counter[int] = Counter()
    stopped = threading.Event()
    refused, last, job_s = 0, 0.0, float(settings["job_s"])

    def count_refused(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        nonlocal refused
        refused += sum(map(len, offsets.values())) if error is not None else 0

    def listen() -> None:
        hear("stop")
        stopped.set()

    with ShareConsumer(settings["settings"]) as consumer:
        consumer.subscribe([settings["topic"]])
        consumer.set_acknowledgement_commit_callback(count_refused)
        say(ready=True)
        hear("go")
        threading.Thread(target=listen, daemon=True).start()
        while not stopped.is_set():
            messages = consumer.poll(timeout=0.5)
            for message in messages:
                if job_s:
                    time.sleep(job_s)
                runs[message.offset()] += 1
            if messages:
                last = time.monotonic()
        consumer.commit_sync()
    say(runs=list(runs.items()), last=last, refused=refused)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=("kafka", "limit-10", "jobs", "default"))
    parser.add_argument("--only", choices=("jobs", "drain"), help="one half of it")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--job-s", type=float, default=0.1, help="how long a job takes, before --scale; default 0.1")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--drain", type=int, default=200_000, help="how many small records")
    parser.add_argument("--scale", type=float, default=0.2, help="of job and lock (30 s); default 0.2")
    parser.add_argument("--rounds", type=int, default=1)
    return parser


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        _worker(json.loads(sys.argv[2]))
    else:
        sys.exit(main())
