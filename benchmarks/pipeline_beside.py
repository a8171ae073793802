"""`python -m benchmarks.pipeline_beside`: how an ingest job and a live workload slow each other down.

One node, a producer and share consumers run at full speed, in turn without and with a continuous ingest job. Prints, as
JSON on standard output, the records per second of both cases, their ratio, and whether the duration of triggers remains
flat: the median of their last third divided by that of the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import busy_seconds
from benchmarks.processes import BenchmarkError, Process, run_loop, say, worker
from share_metrics.gauges.gauges import Gauges
from share_metrics.ingest.writing import KINDS, Running, Source, Watch, start
from share_metrics.reader import Kind
from share_metrics.spark import build_session

TOPIC: Final = "beside"
GROUP: Final = "beside"
_START_S: Final = 120.0
_AHEAD_MAX: Final = 2_000
_MODULE: Final = "pipeline_beside"


async def _produce(settings: dict[str, Any]) -> None:
    """Produce until the parent closes the pipe, never far ahead of the consumers."""
    from sharegroups.admin_values import AlterConfig, ConfigResource, NewTopic  # noqa: PLC0415 - parents need no client
    from sharegroups.aio import Admin, Producer  # noqa: PLC0415

    async with Admin(bootstrap_servers=settings["bootstrap"]) as admin:
        await admin.create_topics([NewTopic(TOPIC, settings["partitions"])])
        earliest = [AlterConfig("share.auto.offset.reset", "earliest")]
        await admin.incremental_alter_configs({ConfigResource.group(GROUP): earliest})
        async with Producer(bootstrap_servers=settings["bootstrap"]) as producer:
            await producer.ensure_topic(TOPIC)
            say(ready=True)
            number = 0
            gone = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
            while not gone.done():
                for _ in range(_AHEAD_MAX // 4):
                    await producer.produce(TOPIC, b"v" * 100, partition=number % settings["partitions"])
                    number += 1
                await producer.flush()
                while await _lag(admin) > _AHEAD_MAX:  # noqa: ASYNC110 - other processes lower it
                    await asyncio.sleep(0.02)


async def _lag(admin: Any) -> int:
    found = (await admin.list_share_group_offsets({GROUP: None}))[GROUP]
    if isinstance(found, Exception):
        return 0
    return sum(entry.lag or 0 for entry in found.values() if entry is not None)


async def _consume(settings: dict[str, Any]) -> None:
    """Poll and acknowledge; report every second how many acknowledgements have been confirmed."""
    from sharegroups.aio import ShareConsumer  # noqa: PLC0415

    records = 0

    def committed(offsets: dict[Any, set[int]], error: Exception | None) -> None:
        nonlocal records
        if error is not None:
            raise error
        records += sum(len(found) for found in offsets.values())

    consumer = ShareConsumer(bootstrap_servers=settings["bootstrap"], group_id=GROUP)
    consumer.set_acknowledgement_commit_callback(committed)
    consumer.subscribe([TOPIC])
    async with consumer:
        said = 0.0
        gone = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        while not gone.done():
            await consumer.poll(0.2)
            if time.monotonic() - said >= 1:
                said = time.monotonic()
                say(records=records)


class Meter:
    """Reads the consumers' reports, and adds up the records that they have acknowledged."""

    def __init__(self, consumers: list[Process]) -> None:
        self._latest = [0] * len(consumers)
        self.failed: list[BenchmarkError] = []
        for number, consumer in enumerate(consumers):
            threading.Thread(target=self._listen, args=(number, consumer), daemon=True).start()

    def _listen(self, number: int, consumer: Process) -> None:
        try:
            while True:
                self._latest[number] = consumer.expect("records", _START_S)["records"]
        except BenchmarkError as error:
            self.failed.append(error)

    @property
    def records(self) -> int:
        """The number of records acknowledged so far. Raises BenchmarkError when a consumer has failed."""
        if self.failed:
            raise self.failed[0]
        return sum(self._latest)


@contextmanager
def workload(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Meter]]:
    """Run a node and its clients. Yields the store's URL, and the meter of the consumers."""
    node = Process("node", [sys.executable, "-m", "share_node", "up", "--data", str(folder / "data"), "--port", "0",
                            "--output", "json"])  # fmt: skip
    clients: list[Process] = []
    try:
        ready = node.expect("bootstrap", _START_S)
        settings = {"bootstrap": ready["bootstrap"], "partitions": options.partitions}
        clients.append(worker("producer", _MODULE, "producer", settings))
        clients[0].expect("ready", _START_S)
        clients += [worker("consumer", _MODULE, "consumer", settings) for _ in range(options.consumers)]
        yield ready["store"], Meter(clients[1:])
    finally:
        for client in clients:
            client.stop()
        node.stop(terminate=True)


def rate(meter: Meter, seconds: float, job: Running | None = None) -> float:
    """Return the records per second over `seconds`. Raises BenchmarkError if `job`, which runs meanwhile, ends."""
    before, begin = meter.records, time.monotonic()
    while time.monotonic() - begin < seconds:
        if job is None:
            time.sleep(0.5)
        elif job.wait(1):
            raise BenchmarkError("the ingest job ended by itself")
    return (meter.records - before) / (time.monotonic() - begin)


class Triggers:
    """The duration of every trigger with rows, s, by kind. Collected here, because Spark keeps only the last 100."""

    def __init__(self) -> None:
        self.seconds: dict[Kind, dict[int, float]] = {kind: {} for kind in KINDS}

    def note(self, job: Running) -> None:
        """Note the triggers that Spark still keeps. Call it before Spark drops any."""
        for kind, query in job.queries.items():
            for one in query.recentProgress:
                if one["numInputRows"]:
                    self.seconds[kind][one["batchId"]] = one["durationMs"]["triggerExecution"] / 1000

    def flat(self) -> dict[str, dict[str, float]]:
        """Return for each kind: the triggers, the medians of their first and last third, and the ratio of these."""
        found = {}
        for kind, by_number in self.seconds.items():
            times = [by_number[number] for number in sorted(by_number)][1:]  # the first one warms up
            third = len(times) // 3
            if third:
                first, last = statistics.median(times[:third]), statistics.median(times[-third:])
                found[kind.value] = {"triggers": len(times), "first_s": first, "last_s": last, "ratio": last / first}
        return found


def main() -> int:
    """Measure and print. Returns 1 when the run cannot be counted."""
    options = _parser().parse_args()
    rates: dict[str, list[float]] = {"without": [], "with": []}
    triggers = Triggers()
    try:
        with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder, workload(options, Path(folder)) as (url, meter):
            spark = build_session("pipeline beside")
            rate(meter, options.warm)
            busy, begin = busy_seconds(), time.monotonic()
            for number in range(options.turns):
                rates["without"].append(rate(meter, (options.without or options.seconds) / options.turns))
                gauges = Gauges()
                job = start(spark, Source(url), Path(folder) / f"history{number}", once=False,
                            trigger_s=options.trigger, watch=Watch(rows=gauges.take))  # fmt: skip
                try:
                    rates["with"].append(rate(meter, options.seconds / options.turns, job))
                    triggers.note(job)
                finally:
                    job.stop()
            share = (busy_seconds() - busy) / (time.monotonic() - begin)
            spark.stop()
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    means = {name: statistics.mean(values) for name, values in rates.items()}
    print(json.dumps({"benchmark": "pipeline_beside", "rates": rates, "ratio": means["with"] / means["without"],
                      "triggers": triggers.flat(), "processors_busy": share, "seconds": options.seconds,
                      "without": options.without or options.seconds,
                      "trigger_s": options.trigger, "turns": options.turns}))  # fmt: skip
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline_beside", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=300, help="with ingest, and as long without (or --without), in all"
    )
    parser.add_argument("--without", type=float, help="another length for the time without ingest")
    parser.add_argument("--turns", type=int, default=1, help="how often the two take turns")
    parser.add_argument("--warm", type=float, default=20, help="seconds before the first turn")
    parser.add_argument("--trigger", type=float, default=5, help="seconds between triggers")
    parser.add_argument("--consumers", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=4)
    return parser


_ROLES: Final = {"producer": _produce, "consumer": _consume}

if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in _ROLES:
        run_loop(_ROLES[sys.argv[1]](json.loads(sys.argv[2])))
    else:
        sys.exit(main())
