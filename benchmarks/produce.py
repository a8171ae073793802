"""B13, produce: the cost of writing a record to the log, and the memory that this takes, by the size of its value.

    python -m benchmarks.produce                                  # 100 B to 1 MiB, three rounds, about three minutes
    python -m benchmarks.produce --before /path/of/a/release/bin/python --sizes 1024

One producer with the client's defaults fills one partition as fast as it can; sizes and releases take turns within a
round, each on its own node. A record counts when it is confirmed, which is after its write in the store. `cpu_us` is
the CPU time of each process per record, `mib` the growth of its peak memory; the store's includes the log. JSON lines
on standard output, medians on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.drain import SHAPES, Task
from benchmarks.goals import FOREIGN_CPU_MAX
from benchmarks.machine import Meter, peak_memory_mib
from benchmarks.processes import BenchmarkError, hear, run_loop, say
from benchmarks.report import BEFORE, OURS, median
from benchmarks.session import Session
from benchmarks.share_group import TOPIC, Release, ShareGroup

KIB: Final = 1 << 10
MIB: Final = 1 << 20
#: Sizes of values in bytes, each with a number of records that takes about as long as the others.
SIZES: Final[Mapping[int, int]] = {100: 400_000, KIB: 200_000, 16 * KIB: 20_000, MIB: 300}
#: Above Kafka's default of 1 MiB, since a value of 1 MiB and its frame do not fit into that.
_REQUEST_MAX: Final = 2 * MIB
_READY_S: Final = 60.0
_PRODUCED_S: Final = 300.0


class _Side(ShareGroup):
    """A node and its single producer."""

    def producing(self, value_bytes: int, records: int, folder: Path, fsync: str) -> dict[str, Any]:
        """Do one run. Raises BenchmarkError when a record was not confirmed."""
        self.start_node(Task(SHAPES["1p1c"], records, value_bytes, fsync, benchmark="B13"), folder)
        producer = self._worker("producer", {"records": records, "value_bytes": value_bytes}, module="produce")
        producer.expect("ready", _READY_S)
        pids = {**self.servers, "producer": producer.pid}
        before = {name: peak_memory_mib(pid) for name, pid in pids.items()}
        meter, gate = Meter(pids), time.monotonic()
        producer.send("go")
        said = producer.expect("produced", _PRODUCED_S)
        usage = meter.read()
        memory = {name: round(peak_memory_mib(pid) - before[name], 1) for name, pid in pids.items()}
        if said["produced"] != records:
            raise BenchmarkError(f"{self.name} confirmed {said['produced']} of {records} records")
        wall_s = said["at"] - gate
        return {
            "benchmark": "B13", "system": self.name, "value_bytes": value_bytes, "records": records, "fsync": fsync,
            "produce_per_s": round(records / wall_s, 1), "mib_per_s": round(records * value_bytes / MIB / wall_s, 2),
            "cpu_us": {name: round(used * 1e6 / records, 2) for name, used in usage.cpu_s.items()},
            "cpu_us_per_record": round(sum(usage.cpu_s.values()) * 1e6 / records, 2), "mib": memory,
            "log_mib": round(records * value_bytes / MIB, 1), "foreign_cpu": round(usage.foreign_share, 3),
            "flagged": usage.foreign_share > FOREIGN_CPU_MAX,
        }  # fmt: skip


class _Before(Release, _Side):
    """A node and its single producer, of another release."""


def main(arguments: list[str] | None = None) -> int:
    """Run the requested sizes. Returns the exit status: 1 when a run could not be counted."""
    options = _parser().parse_args(arguments)
    session = Session()
    for number in range(1, options.rounds + 1):
        for size in options.sizes:
            sides = [_Side(), *([_Before(options.before)] if options.before else [])]
            records = max(1, int(SIZES[size] * options.scale))
            for side in sides if number % 2 else reversed(sides):
                work = partial(_run, side, size, records, options.fsync)
                session.attempt(f"{side.name}, {size} B", number, work)
    print("\n" + table(session.runs), file=sys.stderr, flush=True)
    return 1 if session.failures else 0


def _run(side: _Side, size: int, records: int, fsync: str) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="produce-", ignore_cleanup_errors=True)))
        stack.callback(side.close)
        return side.producing(size, records, folder, fsync)


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return medians by size and release, and medians of the per-round ratios to the previous release."""
    lines = [f"{'value bytes':22}{'records/s':>11}{'MiB/s':>8}{'CPU us':>9}  of which; memory, MiB; flagged"]
    for size, system in dict.fromkeys((run["value_bytes"], run["system"]) for run in runs):
        mine = [run for run in runs if (run["value_bytes"], run["system"]) == (size, system)]
        cells = [f"{size:>9} {system:12}"]
        for field, form in (("produce_per_s", "11,.0f"), ("mib_per_s", "8.1f"), ("cpu_us_per_record", "9.1f")):
            cells.append(format(median([run[field] for run in mine]), form))
        for field in ("cpu_us", "mib"):
            parts = {name: median([run[field][name] for run in mine]) for name in mine[0][field]}
            cells.append("  " + ", ".join(f"{name} {value:.1f}" for name, value in parts.items()) + ";")
        cells.append(f"  {sum(run['flagged'] for run in mine)} of {len(mine)}")
        cells.append(_beside_before(mine, runs) if system == OURS else "")
        lines.append("".join(cells))
    return "\n".join(lines)


def _beside_before(mine: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> str:
    size = mine[0]["value_bytes"]
    before = {run["round"]: run for run in runs if (run["value_bytes"], run["system"]) == (size, BEFORE)}
    both = [(run, before[run["round"]]) for run in mine if run["round"] in before]
    if not both:
        return ""
    rate, cpu = (median([run[field] / other[field] for run, other in both]) for field in _COMPARED)
    return f"  / before: rate {rate:.2f}, CPU {cpu:.2f}"


_COMPARED: Final = ("produce_per_s", "cpu_us_per_record")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.produce", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", choices=tuple(SIZES), default=tuple(SIZES), help="bytes")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the records, for a smoke run")
    parser.add_argument("--fsync", choices=("everysec", "always"), default="everysec")
    parser.add_argument("--before", default="", metavar="PYTHON", help="an interpreter with another release")
    return parser


async def _produce(settings: dict[str, Any]) -> None:
    from sharegroups.admin_values import NewTopic  # noqa: PLC0415 - the parent needs no client
    from sharegroups.aio import Admin, Producer  # noqa: PLC0415

    bootstrap, records, value = settings["bootstrap"], settings["records"], b"v" * settings["value_bytes"]
    async with Admin(bootstrap_servers=bootstrap) as admin:
        made = await admin.create_topics([NewTopic(TOPIC, 1, {"max.message.bytes": str(_REQUEST_MAX)})])
    if made[TOPIC] is not None:
        raise made[TOPIC]
    async with Producer(bootstrap_servers=bootstrap, max_request_size=_REQUEST_MAX) as producer:
        await producer.ensure_topic(TOPIC)
        say(ready=True)
        await asyncio.to_thread(hear, "go")
        for number in range(records):
            await producer.produce(TOPIC, value)
            if number % 500 == 0:
                await asyncio.sleep(0)  # let the sender run, which is a task of this loop
        waiting = await producer.flush()
        say(produced=records - waiting, at=time.monotonic())
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    # The first word of a worker is its role.
    if sys.argv[1:2] == ["producer"]:
        run_loop(_produce(json.loads(sys.argv[2])))
    else:
        sys.exit(main())
