"""B6, latency: from `produce()` until user code has the record, compared with other systems.

    python -m benchmarks.latency                                   # 100 and 1,000 records/s, 1 and 4 consumers
    python -m benchmarks.latency --systems sharegroups nats --rates 1000 --python /path/with/clients/bin/python
    python -m benchmarks.latency --before /path/of/a/release/bin/python
    python -m benchmarks.latency --kafka 127.0.0.1:9092            # B10; `mock`: the client library's mock broker

One partition, stream or queue; values of 100 B that contain their send time; servers, producer and each consumer are
separate processes. The systems take turns within a round, each restarted (a Kafka broker is used as it is). A run
counts when every record was confirmed to the producer and seen; `twice` counts records that came twice. Records of the
first half second do not count. NATS, RabbitMQ and Kafka need programs or modules; if those are missing, the system is
left out with a message. JSON lines on standard output, medians and per-round ratios to NATS on standard error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import drain, peers
from benchmarks.goals import FOREIGN_CPU_MAX, LATENCY, LATENCY_P99
from benchmarks.kafka_side import Kafka
from benchmarks.machine import Meter, process_tree
from benchmarks.processes import BenchmarkError, Crew, Process
from benchmarks.report import median
from benchmarks.session import Session
from benchmarks.share_group import Release, ShareGroup
from benchmarks.valkey_group import store_server

RATES: Final = (100.0, 1_000.0)
CONSUMERS: Final = (1, 4)
NATS: Final = "nats"
OURS: Final = "sharegroups"
BEFORE: Final = "before"
_WARM_S: Final = 0.5
_READY_S: Final = 60.0
_DRAIN_S: Final = 2.0  # for consumers to get the last records


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the table."""

    per_second: float
    consumers: int
    seconds: float
    value_bytes: int

    @property
    def count(self) -> int:
        """The number of records produced."""
        return int(self.per_second * (self.seconds + _WARM_S))

    @property
    def warm(self) -> int:
        """The number of records at the beginning that do not count."""
        return int(self.per_second * _WARM_S)


class Servers(NamedTuple):
    """The servers started for a run: their address, their processes, and a function that waits for the consumers."""

    address: str
    pids: dict[str, int]
    settle: Callable[[int], None]
    settings: dict[str, Any]
    name: str = ""
    """The name of Kafka's topic and group."""


def main(arguments: list[str] | None = None) -> int:
    """Run the requested cases. Returns the exit status: 1 when a run could not be counted."""
    options = _parser().parse_args(arguments)
    systems = list(available(options.systems, options.python, options.kafka))
    systems += [BEFORE] if options.before else []
    cases = [
        Case(rate, number, options.seconds, options.value_bytes)
        for rate in options.rates
        for number in options.consumers
    ]
    session = Session()
    for number in range(1, options.rounds + 1):
        for case in cases:
            for system in systems if number % 2 else reversed(systems):
                session.attempt(f"{system} {case}", number, partial(run, system, case, options))
    print("\n" + table(session.runs), file=sys.stderr, flush=True)
    return 1 if session.failures else 0


#: The modules and programs that each system needs besides this project.
_NEEDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    OURS: ((), ()),
    "valkey-group": ((), ()),
    NATS: (("nats",), ("nats-server",)),
    "rabbitmq": (("aio_pika",), ("rabbitmq-server", "epmd")),
    "kafka": (("confluent_kafka",), ()),
}
_FOREIGN: Final = (NATS, "rabbitmq", "kafka")


def available(systems: Iterable[str], python: str, kafka: str) -> Iterable[str]:
    """Yield the systems that can be run; print on standard error what the others lack."""
    for system in systems:
        modules, programs = _NEEDS[system]
        lack = peers.missing(python, modules, programs) if system in _FOREIGN else ""
        if system == "kafka" and not kafka:
            lack = "--kafka HOST:PORT of a broker" + (f", {lack}" if lack else "")
        if lack:
            print(f"{system} is left out; it needs {lack}", file=sys.stderr, flush=True)
        else:
            yield system


def run(system: str, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Do one run. Raises BenchmarkError when it cannot be counted."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="latency-", ignore_cleanup_errors=True)))
        crew = Crew()
        servers = _START[system](stack, folder, crew, options)
        python = options.before if system == BEFORE else options.python if system in _FOREIGN else sys.executable
        common = {"system": OURS if system == BEFORE else system, "address": servers.address, "name": servers.name}

        def start(role: str, settings: Mapping[str, Any]) -> Process:
            process = peers.client(python, "latency_clients", role, json.dumps(common | dict(settings)), crew)
            stack.callback(process.stop)
            return process

        paced = {"count": case.count, "per_second": case.per_second, "value_bytes": case.value_bytes}
        producer = start("producer", paced)
        producer.expect("ready", _READY_S)
        consumers = [start("consumer", {"number": number}) for number in range(case.consumers)]
        for consumer in consumers:
            consumer.expect("ready", _READY_S)
        servers.settle(case.consumers)
        pids = {f"consumer-{number}": consumer.pid for number, consumer in enumerate(consumers)}
        meter = Meter({**servers.pids, "producer": producer.pid, **pids})
        producer.send("go")
        confirmed = int(producer.expect("produced", case.seconds + _READY_S)["produced"])
        usage = meter.read()
        crew.rest(_DRAIN_S)
        for consumer in consumers:
            consumer.send("stop")
        seen = [consumer.expect("seen", _READY_S)["seen"] for consumer in consumers]
    found = counted(case, confirmed, seen)
    return {
        "benchmark": "B6", "system": system, "per_second": case.per_second, "consumers": case.consumers,
        **found, "cpu_s": usage.cpu_s, "cpu_us_per_record": round(sum(usage.cpu_s.values()) * 1e6 / case.count),
        "foreign_cpu": round(usage.foreign_share, 3), "flagged": usage.foreign_share > FOREIGN_CPU_MAX,
        "settings": servers.settings,
    }  # fmt: skip


def counted(case: Case, confirmed: int, seen: Sequence[Sequence[tuple[int, float]]]) -> dict[str, Any]:
    """Return percentiles of the latency of records after the warm-up, in ms.

    For records seen twice, the first time is used. Raises BenchmarkError unless each was confirmed and seen.
    """
    if confirmed != case.count:
        raise BenchmarkError(f"{confirmed} of {case.count} records were confirmed")
    numbers = Counter(number for each in seen for number, _ in each)
    twice = numbers.total() - len(numbers)
    if len(numbers) != case.count:
        raise BenchmarkError(f"{len(numbers)} of {case.count} records were seen, {twice} of them more than once")
    first = dict(sorted(((number, us) for each in seen for number, us in each), reverse=True))
    ms = sorted(us / 1e3 for number, us in first.items() if number >= case.warm)
    return {
        "records": len(ms), "twice": twice,
        "p50_ms": round(statistics.median(ms), 3), "p99_ms": round(ms[len(ms) * 99 // 100], 3),
        "max_ms": round(ms[-1], 3), "by_consumer": [len(each) for each in seen],
    }  # fmt: skip


# The servers.


def _ours(stack: ExitStack, folder: Path, crew: Crew, options: argparse.Namespace) -> Servers:
    return _share_group(ShareGroup(), stack, folder, options)


def _before(stack: ExitStack, folder: Path, crew: Crew, options: argparse.Namespace) -> Servers:
    return _share_group(Release(options.before), stack, folder, options)


def _share_group(group: ShareGroup, stack: ExitStack, folder: Path, options: argparse.Namespace) -> Servers:
    stack.callback(group.close)
    task = drain.Task(drain.SHAPES["1p1c"], 0, fsync=options.fsync)
    address = group.start_node(task, folder)
    group.make_topic(1)
    return Servers(
        address, group.servers, group.await_settled, {"appendfsync": options.fsync, "ack": "with the next poll"}
    )


def _valkey(stack: ExitStack, folder: Path, crew: Crew, options: argparse.Namespace) -> Servers:
    import redis  # noqa: PLC0415 - only this side needs it here

    server, port = store_server("valkey", options.fsync, folder, crew)
    stack.callback(server.stop, terminate=True)
    with redis.Redis(port=port) as client:
        client.xgroup_create("bench", "bench", id="0", mkstream=True)
    settings = {"appendfsync": options.fsync, "ack": "XACK after each read"}
    return Servers(f"redis://127.0.0.1:{port}", {"valkey": server.pid}, _no_settling, settings)


def _nats(stack: ExitStack, folder: Path, crew: Crew, options: argparse.Namespace) -> Servers:
    processes, address = peers.start_nats(folder, crew)
    for process in processes:
        stack.callback(process.stop, terminate=True)
    setup = peers.client(options.python, "latency_clients", "setup", json.dumps({"address": address}), crew)
    stack.callback(setup.stop)
    setup.expect("made", _READY_S)
    settings = {"storage": "file, not fsynced", "ack": "each", "pull": "a standing request"}
    return Servers(address, {"nats": processes[0].pid}, _no_settling, settings)


def _rabbit(stack: ExitStack, folder: Path, crew: Crew, options: argparse.Namespace) -> Servers:
    processes, address = peers.start_rabbit(folder, crew)
    for process in processes:
        stack.callback(process.stop, terminate=True)
    pids = {name: pid for process in processes for name, pid in process_tree(process.pid).items()}
    return Servers(address, pids, _no_settling, {"queue": "quorum, one node, fsynced", "ack": "each", "prefetch": 256})


def _kafka(stack: ExitStack, folder: Path, crew: Crew, options: argparse.Namespace) -> Servers:
    side, name = Kafka(options.kafka, options.python), f"bench-{time.time_ns()}"
    stack.callback(side.close)
    address = side.start_broker()
    side.make_topic(address, name, 1)
    settings = {"broker": options.kafka, "linger.ms": 0, "ack": "with the next poll"}
    return Servers(address, side.servers, lambda consumers: side.settle(), settings, name)


def _no_settling(consumers: int) -> None:
    """Do not wait: the server has no assignment, and gives records to any consumer."""


Start = Callable[[ExitStack, Path, Crew, argparse.Namespace], Servers]
_START: Final[dict[str, Start]] = {
    OURS: _ours, BEFORE: _before, "valkey-group": _valkey, NATS: _nats, "rabbitmq": _rabbit, "kafka": _kafka,
}  # fmt: skip


# The table.


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the medians of each system in each case, and the medians of the per-round ratios to NATS."""
    lines = [
        f"{'records/s, consumers':24}{'p50 ms':>9}{'/ nats':>8}{'p99 ms':>9}{'/ nats':>8}{'CPU us':>9}  rounds, flagged"
    ]
    for rate, consumers in dict.fromkeys((run["per_second"], run["consumers"]) for run in runs):
        cell = [run for run in runs if (run["per_second"], run["consumers"]) == (rate, consumers)]
        base = {run["round"]: run for run in cell if run["system"] == NATS}
        lines.append(f"{rate:g}, {consumers}")
        for system in dict.fromkeys(run["system"] for run in cell):
            mine = [run for run in cell if run["system"] == system]
            cells = [f"  {system:22}"]
            grades = []
            for field, goal in (("p50_ms", LATENCY), ("p99_ms", LATENCY_P99)):
                rounds = [run[field] / base[run["round"]][field] for run in mine if run["round"] in base]
                ratio = f"{median(rounds):8.2f}" if rounds else f"{'':8}"
                cells.append(f"{median([run[field] for run in mine]):9.2f}{ratio}")
                if system == OURS and rounds:
                    grades.append(goal.grade(median(rounds)))
            flagged = sum(run["flagged"] for run in mine)
            cells.append(f"{median([run['cpu_us_per_record'] for run in mine]):9.0f}  {len(mine)}, {flagged}")
            cells.append(f"  goals: {', '.join(grades)}" if grades else "")
            cells.append(_beside_before(mine, cell) if system == OURS else "")
            lines.append("".join(cells))
    return "\n".join(lines)


def _beside_before(mine: Sequence[Mapping[str, Any]], cell: Sequence[Mapping[str, Any]]) -> str:
    """Return the ratios of p50 and p99 to the previous release's, as medians of the rounds that have both."""
    before = {run["round"]: run for run in cell if run["system"] == BEFORE}
    both = [(run, before[run["round"]]) for run in mine if run["round"] in before]
    if not both:
        return ""
    p50, p99 = (median([run[field] / other[field] for run, other in both]) for field in ("p50_ms", "p99_ms"))
    return f"  / before: {p50:.2f}, {p99:.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--systems", nargs="+", choices=tuple(_NEEDS), default=list(_NEEDS))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--consumers", nargs="+", type=int, default=list(CONSUMERS))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--fsync", choices=("everysec", "always"), default="everysec")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the extra `bench`")
    parser.add_argument("--kafka", default="", metavar="HOST:PORT", help="a broker that runs, or `mock`")
    parser.add_argument(
        "--before", default="", metavar="PYTHON", help="an interpreter with another release of this suite"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
