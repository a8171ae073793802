"""`python -m benchmarks.pipeline_ratios`: ratios PM-80 to PM-87 of the metrics pipeline, on generated streams.

The variants of one ratio take turns within a round; the ratio is that of the rounds' medians. CPU time is that of the
whole process tree, with Spark's Java process and its Python workers. Prints one JSON line for each ratio on standard
output, and a table on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis
from pyspark.sql import DataFrame, SparkSession

from benchmarks.machine import cpu_seconds, process_tree
from kip932.ids import SharePartitionKey
from kip932.state_batches import CAUSE_ACK, StateBatch, WriteStats
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareSnapshot, ShareUpdate
from share_metrics.metrics import replay_windows
from share_metrics.reader import EntryId, Kind, Reader, Store
from share_metrics.reader.decoding import RawEntry
from share_metrics.spark import build_session, with_short_errors
from share_metrics.spark.options import read_options
from share_metrics.spark.source import StreamReader
from share_node.store.embedded_store import store_binary

_KEYS: Final = 4
_SNAPSHOT_EVERY: Final = 500
_PIPE: Final = 5_000
_START_S: Final = 30.0
_SMALL: Final = 2_000
_LARGE: Final = 300_000
_TARGETS: Final = {
    "PM-80": ("reader alone / scan and count in Spark, CPU", 0.5, "at least"),
    "PM-81": ("packed partitions / one task for each stream, CPU", 0.8, "at most"),
    "PM-83": ("replay metrics / plain scan, CPU", 5.0, "at most"),
    "PM-84": ("small trigger / large trigger, time", 0.4, "at most"),
    "PM-85": ("server / client while reading, CPU", 0.15, "at most"),
    "PM-86": ("planning an idle trigger of 50 streams, s", 0.05, "at most"),
    "PM-87": ("memory of a reader of 10 times the entries", 1.2, "at most"),
}


@contextmanager
def server() -> Iterator[tuple[str, Any]]:
    """Run a store in memory. Yields its URL and a client."""
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        path = f"{folder}/s"
        words = [store_binary(), "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + _START_S
            while not Path(path).exists():
                if time.monotonic() > until:
                    raise TimeoutError(f"the store did not start within {_START_S:g} s")
                time.sleep(0.01)
            client: Any = redis.Redis(unix_socket_path=path)
            yield f"unix://{path}", client
            client.close()
        finally:
            process.terminate()
            process.wait(_START_S)


def fill(client: Any, entries: int, streams: int, step_ms: int = 1) -> None:
    """Write share-state records into `streams` streams, as share coordinators do: updates, with occasional snapshots.

    The records of one stream are `step_ms` apart.
    """
    client.set("sgs:config", streams)
    for stream in range(streams):
        pipe = client.pipeline(transaction=False)
        for entry in written(stream, entries // streams, step_ms):
            pipe.xadd(entry.stream, {"t": entry.letter, "r": entry.record}, id=str(entry.id))
            if entry.id.seq % _PIPE == 0:
                pipe.execute()
        pipe.execute()


def written(stream: int, entries: int, step_ms: int = 1) -> Iterator[RawEntry]:
    """Yield the first `entries` entries of one stream."""
    codec = ShareStateCodec()
    keys = [SharePartitionKey(f"group-{stream}", bytes(15) + bytes([stream % 251]), number) for number in range(_KEYS)]
    for seq in range(1, entries + 1):
        key, start = keys[seq % _KEYS], seq // _KEYS
        batches = (StateBatch(start + 1, start + 2, 0, 1), StateBatch(start + 3, start + 3, 2, 1))
        stats = WriteStats(CAUSE_ACK, n_accept=1, n_release=2, max_dc=1, sum_dc=1, hwm=start + 9, speo=start + 4)
        record: ShareSnapshot | ShareUpdate = ShareUpdate(key, 1, 1, 0, start, 0, batches, stats)
        if seq <= _KEYS or seq % _SNAPSHOT_EVERY == 0:
            record = ShareSnapshot(key, 1, 1, 1, 0, start, 0, 1_000, 1_000, batches, 1, 0, 1, stats)
        letter, data = codec.encode(record, 1_000_000 + seq * step_ms)
        yield RawEntry(f"{{sgs:{stream}}}:log", EntryId(1, seq), letter, data)


def tree_cpu_s() -> dict[int, float]:
    """Return the CPU seconds of this process and all live processes that it has started, by pid."""
    found: dict[int, float] = {}
    for pid in process_tree(os.getpid()).values():
        with suppress(FileNotFoundError, ProcessLookupError):  # a worker that has ended meanwhile
            found[pid] = cpu_seconds(pid)
    return found


def cpu_of(work: Callable[[], object]) -> float:
    """Return the CPU seconds of `work` in all our processes that live at its end; Spark keeps its workers alive."""
    before = tree_cpu_s()
    work()
    return sum(spent - before.get(pid, 0.0) for pid, spent in tree_cpu_s().items())


@dataclass(slots=True)
class Figures:
    """The measured values, by ratio and variant."""

    runs: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, rule: str, variant: str, value: float) -> None:
        """Add one run's value."""
        self.runs.setdefault(rule, {}).setdefault(variant, []).append(value)

    def ratio(self, rule: str) -> float:
        """Return the median of the first variant divided by that of the second; for a single variant, its median."""
        medians = [statistics.median(values) for values in self.runs[rule].values()]
        return medians[0] / medians[1] if len(medians) > 1 else medians[0]


class Bench:
    """One store, one Spark session, and the ratios between ways to use them."""

    def __init__(self, url: str, client: Any, spark: SparkSession, asked: argparse.Namespace) -> None:
        self.url, self.client, self.spark = url, client, spark
        self.streams, self.entries = asked.streams, asked.entries
        self.only = frozenset(asked.only or _TARGETS)
        self.figures = Figures()

    def table(self, **options: str) -> DataFrame:
        """Return all rows of the store."""
        given = {"url": self.url, "kind": "share_state"} | options
        return self.spark.read.format("redis_streams").options(**given).load()

    def scan(self, **options: str) -> None:
        """Read everything and count it."""
        self.table(**options).agg({"seq": "count"}).collect()

    def read_alone(self) -> int:
        """Read everything without Spark. Returns the number of rows."""
        with Store(self.url) as store:
            reader = Reader(store, Kind.SHARE_STATE)
            plans = reader.plan({}, reader.tips(reader.streams()))
            return sum(batch.num_rows for plan in plans.values() for batch in reader.read(plan.ranges, plan.gaps))

    def server_cpu_s(self) -> float:
        """Return the CPU seconds of the store so far."""
        info = self.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def round(self, folder: Path) -> None:
        """Measure every variant of the requested ratios once. `folder` must be new; it is used for checkpoints."""
        if self.only & {"PM-80", "PM-85"}:
            self._reader()
        if self.only & {"PM-80", "PM-81", "PM-83"}:
            self._spark()
        add = self.figures.add
        if "PM-84" in self.only:
            for name, rows in (("small", _SMALL), ("large", min(_LARGE, self.entries // 4))):
                add("PM-84", name, statistics.median(self.triggers(folder / name, rows, 6)))
        if "PM-86" in self.only:
            for _ in range(5):
                add("PM-86", "idle", self.idle_plan_s() * 50 / self.streams)
        if "PM-87" in self.only:
            add("PM-87", "10 n", memory_kib(self.url, self.entries))
            add("PM-87", "n", memory_kib(self.url, self.entries // 10))

    def _reader(self) -> None:
        before = self.server_cpu_s()
        alone = cpu_of(self.read_alone)
        self.figures.add("PM-85", "server", self.server_cpu_s() - before)
        self.figures.add("PM-85", "client", alone)
        self.figures.add("PM-80", "alone", alone)

    def _spark(self) -> None:
        add = self.figures.add
        packed = cpu_of(self.scan)
        add("PM-80", "spark", packed)
        if "PM-81" in self.only:
            add("PM-81", "packed", packed)
            add("PM-81", "each", cpu_of(lambda: self.scan(numPartitions=str(self.streams))))
        if "PM-83" in self.only:
            add("PM-83", "replay", cpu_of(lambda: replay_windows(self.table()).agg({"released_lb": "sum"}).collect()))
            add("PM-83", "scan", packed)

    def idle_plan_s(self) -> float:
        """Return the time to plan a trigger that has nothing to read, in seconds."""
        source = StreamReader(read_options({"url": self.url, "kind": "share_state", "startingIds": "latest"}))
        at = source.initialOffset()
        begin = time.perf_counter()
        end = source.latestOffset(at, source.getDefaultReadLimit())
        source.partitions(at, end)
        return time.perf_counter() - begin

    def triggers(self, folder: Path, rows: int, count: int) -> list[float]:
        """Return the seconds of triggers of `rows` rows each, without the first two, which warm up."""
        options = {"url": self.url, "kind": "share_state", "maxRowsPerTrigger": str(rows)}
        stream = self.spark.readStream.format("redis_streams").options(**options).load()
        times: list[float] = []
        query = stream.writeStream.foreachBatch(with_short_errors(_count))
        running = query.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        try:
            while not running.awaitTermination(1):
                if len(running.recentProgress) >= count + 2:
                    break
            times = [one["durationMs"]["triggerExecution"] / 1000 for one in running.recentProgress]
        finally:
            running.stop()
        return times[2:] or times


def _count(batch: DataFrame, _number: int) -> None:
    batch.agg({"seq": "count"}).collect()


def memory_kib(url: str, entries: int) -> float:
    """Return the peak memory of a process that reads `entries` entries, spread over all streams."""
    words = [sys.executable, "-m", "benchmarks.pipeline_ratios", "--reader", url, "--entries", str(entries)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _read_in_here(url: str, entries: int) -> None:
    with Store(url) as store:
        reader = Reader(store, Kind.SHARE_STATE)
        plans = reader.plan({}, reader.tips(reader.streams()), limit=entries)
        read = sum(batch.num_rows for plan in plans.values() for batch in reader.read(plan.ranges))
    assert read == entries, (read, entries)
    # Not `ru_maxrss`, which a process inherits from its parent.
    print(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def main() -> int:
    """Measure and print. Returns 0 for any ratios, since figures from a busy machine mean little."""
    options = _parser().parse_args()
    if options.reader:
        _read_in_here(options.reader, options.entries)
        return 0
    with server() as (url, client), tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        fill(client, options.entries, options.streams)
        spark = build_session("pipeline ratios")
        bench = Bench(url, client, spark, options)
        bench.scan()  # warm
        begin, done = time.monotonic(), 0
        for number in range(options.rounds):
            if options.seconds is not None and time.monotonic() - begin > options.seconds:
                break
            done += 1
            bench.round(Path(folder) / str(number))
        spark.stop()
    options.rounds = done
    _print(bench.figures, options)
    return 0


def _print(figures: Figures, options: argparse.Namespace) -> None:
    for rule, (words, target, side) in _TARGETS.items():
        if options.only and rule not in options.only:
            continue
        ratio = figures.ratio(rule)
        met = ratio >= target if side == "at least" else ratio <= target
        runs = {name: [round(value, 4) for value in values] for name, values in figures.runs[rule].items()}
        line = {"rule": rule, "ratio": round(ratio, 4), "target": target, "side": side, "met": met, "runs": runs}
        how = {name: getattr(options, name) for name in ("entries", "streams", "rounds")}
        print(json.dumps(line | how))
        print(f"{rule}  {ratio:8.3f}  {side} {target:<5}  {'met' if met else 'MISSED':6}  {words}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline_ratios", description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries in all streams")
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="begin no further round after so long")
    parser.add_argument("--only", nargs="+", choices=list(_TARGETS), metavar="RULE", help="these ratios, as in PM-83")
    parser.add_argument("--reader", metavar="URL", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
