"""B11, one slow worker among four: `python -m benchmarks.slow_member`.

Jobs arrive at a steady rate, evenly on four partitions; four workers take one at a time. On one node, with each
assignor in turn, first all four are fast, and then one of them holds each job for 5 s. `share` is the fraction of the
jobs that was done by the end; `ratio` is that share divided by the one with four fast workers, with the same assignor
and in the same round. With `simple` each worker has its own partition, so only the slow one's stalls, and at most a
quarter of the jobs is left undone.

    python -m benchmarks.slow_member                     # 100 jobs a second for 20 s, three rounds, about six minutes
    python -m benchmarks.slow_member --rounds 1 --seconds 8
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import Crew, Process, hear, say, worker

ASSIGNORS: Final = ("simple", "shared")
WORKERS: Final = 4
PARTITIONS: Final = 4
_WAIT_S: Final = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds. Returns the exit status."""
    options = _parser().parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b11-", ignore_cleanup_errors=True)))
        crew = Crew()
        words = ["share_node", "up", "--data", str(folder), "--port", "0", "--output", "json", "--fsync", "everysec"]
        node = Process("node", [sys.executable, "-m", *words, "--log-level", "warning"], crew, is_server=True)
        stack.callback(node.stop, terminate=True)
        bootstrap = str(node.expect("bootstrap", _WAIT_S)["bootstrap"])
        ratios: dict[str, list[float]] = defaultdict(list)
        for number in range(options.rounds):
            for assignor in ASSIGNORS:
                quick, slow = (_run(bootstrap, crew, assignor, held_s, options) for held_s in (0.0, options.held_s))
                for found in (quick, slow):
                    print(
                        json.dumps({"benchmark": "B11", "assignor": assignor, "round": number + 1} | found), flush=True
                    )
                ratios[assignor].append(slow["share"] / quick["share"])
        for assignor, each in ratios.items():
            print(f"{assignor}: ratio {statistics.median(each):.2f} (median of {len(each)})", file=sys.stderr)
    return 0


def _run(bootstrap: str, crew: Crew, assignor: str, held_s: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run one group. Raises BenchmarkError."""
    from sharegroups import Admin, AlterConfig, ConfigResource, NewTopic  # noqa: PLC0415 - when a run needs it

    name = f"b11-{time.monotonic_ns()}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)])
        group = ConfigResource.group(name)
        admin.incremental_alter_configs({group: [AlterConfig("sharegroups.assignor", assignor)]})
    workers = [
        worker(
            f"worker {number}",
            "slow_member",
            "worker",
            {"bootstrap": bootstrap, "name": name, "held_s": held_s if number == 0 else 0.0, "job_s": options.job_s},
            crew,
        )
        for number in range(WORKERS)
    ]
    try:
        for process in workers:
            process.expect("ready", _WAIT_S)
        crew.rest(_SETTLE_S)
        arrived = _arrive(bootstrap, name, options)
        for process in workers:
            process.send("stop")
        said = [process.expect("done", _WAIT_S) for process in workers]
    finally:
        for process in workers:
            process.stop()
    waits = sorted(wait for one in said for _, wait in one["done"])
    return {
        "held_s": held_s,
        "arrived": arrived,
        "share": round(len({job for one in said for job, _ in one["done"]}) / arrived, 3),
        "done": [len(one["done"]) for one in said],
        "wait_p50_s": round(waits[len(waits) // 2], 3),
        "wait_p99_s": round(waits[len(waits) * 99 // 100], 3),
    }


#: How long a group of four takes to settle, in seconds: a join reaches the others within a heartbeat interval and an
#: assignment interval.
_SETTLE_S: Final = 8.0


def _arrive(bootstrap: str, topic: str, options: argparse.Namespace) -> int:
    """Produce jobs at the given rate, each with its time of arrival. Returns how many."""
    from sharegroups import Producer  # noqa: PLC0415

    began, arrived = time.monotonic(), 0
    with Producer(bootstrap_servers=bootstrap) as producer:
        while (now := time.monotonic()) < began + options.seconds:
            while arrived < (now - began) * options.rate:
                producer.produce(topic, b"%f" % now, partition=arrived % PARTITIONS)
                arrived += 1
            time.sleep(0.005)
    return arrived


def _worker(settings: dict[str, Any]) -> None:
    """Take one job at a time. Reports as `done` each finished job, and how long it had waited, in seconds."""
    from sharegroups import ShareConsumer  # noqa: PLC0415

    done: list[tuple[str, float]] = []
    stopped = threading.Event()

    def listen() -> None:
        hear("stop")
        stopped.set()

    one_by_one: dict[str, Any] = {"share.acquire.mode": "record_limit", "max.poll.records": 1}
    with ShareConsumer(
        {"bootstrap.servers": settings["bootstrap"], "group.id": settings["name"]} | one_by_one
    ) as consumer:
        consumer.subscribe([settings["name"]])
        say(ready=True)
        threading.Thread(target=listen, daemon=True).start()
        while not stopped.is_set():
            for message in consumer.poll(timeout=0.2):
                value = message.value()
                assert value is not None
                waited_s = time.monotonic() - float(value)
                if not stopped.wait(settings["held_s"] or settings["job_s"]):
                    done.append((f"{message.partition()}:{message.offset()}", waited_s))
    say(done=done)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_member", description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0, help="jobs that arrive in a second; default 100")
    parser.add_argument("--job-s", type=float, default=0.005, help="how long a quick worker takes for one")
    parser.add_argument("--held-s", type=float, default=5.0, help="how long the slow one takes")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    return parser


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        _worker(json.loads(sys.argv[2]))
    else:
        sys.exit(main())
