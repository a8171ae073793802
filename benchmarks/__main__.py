"""`python -m benchmarks [B1 …] [--quick]`: runs benchmarks. Prints JSON lines on standard output, tables on stderr.

Exit status: 0 when every run could be counted, even if its ratios are bad; 1 when one could not.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks import drain, echo, one_by_one, peers, report, state_machine
from benchmarks.kafka_side import MOCK, Kafka
from benchmarks.secure import MODES
from benchmarks.session import Session
from benchmarks.share_group import Release, ShareGroup
from benchmarks.valkey_group import ValkeyGroup

BENCHMARKS: Final = ("B1", "B2", "B3", "B4", "B5", "B8")
FSYNC: Final = ("everysec", "always")  # goals apply to the first


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run does."""

    drain_records: int
    echo_s: float
    core_records: int


#: The mock broker keeps only 5 MB of each partition.
_MOCK_RECORDS: Final = 30_000
_DENOMINATORS: Final = {report.ECHO_BYTES: "B1", report.ECHO_SMALL_BYTES: "B5"}
FULL: Final = Size(300_000, 3.0, 100_000)
QUICK: Final = Size(20_000, 0.5, 5_000)


def main(arguments: list[str] | None = None) -> int:
    """Run the requested benchmarks. Returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.secure and report.OURS not in options.systems:
        _parser().error(f"--secure needs {report.OURS} among --systems, which are {' '.join(options.systems)}")
    wanted = {name.upper() for name in options.benchmarks} or set(BENCHMARKS)
    if (wanted & {"B3"} or options.kafka) and (lack := peers.missing(options.python, ["confluent_kafka"])):
        print(f"B3 and --kafka are left out; they need {lack}; see --python", file=sys.stderr, flush=True)
        options.kafka = ""
        wanted -= {"B3"}
    if unknown := wanted - set(BENCHMARKS):
        _parser().error(f"unknown benchmark {', '.join(sorted(unknown))}; expected some of {', '.join(BENCHMARKS)}")
    size = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.quick else 3)
    session = Session()
    if "B8" in wanted:
        windows = state_machine.WINDOWS[:2] if options.quick else state_machine.WINDOWS
        state_machine.run(rounds, size.core_records, windows, session.add)
    if wanted - {"B8"}:
        for number in range(1, rounds + 1):
            _round(session, wanted, options, size, number)
    _print_tables(session)
    return 1 if session.failures else 0


def _round(session: Session, wanted: set[str], options: argparse.Namespace, size: Size, number: int) -> None:
    """Run all systems in turn. The echo baseline (B4) also runs with B1 and B5, whose results are divided by it."""
    for reply_bytes in echo.REPLY_BYTES:
        if "B4" in wanted or _DENOMINATORS[reply_bytes] in wanted:
            session.attempt("B4", number, partial(echo.run, reply_bytes, size.echo_s))
    for shape in one_by_one.SHAPES.values() if "B5" in wanted else ():
        for system in _in_turn(_releases(options), number):
            name = f"B5 {system.name} {shape.name}"
            session.attempt(name, number, partial(one_by_one.run, system, shape, size.echo_s))
    for task in _tasks(wanted, options, size):
        for system in _in_turn(_systems(options), number):
            name = f"{task.benchmark} {system.name} {task.shape.name} {task.fsync}"
            session.attempt(name, number, partial(drain.run, system, task))
    for system in (_ours(options), Kafka(MOCK, options.python)) if "B3" in wanted else ():
        task = drain.Task(drain.SHAPES["1p1c"], min(size.drain_records, _MOCK_RECORDS), benchmark="B3")
        session.attempt(f"B3 {system.name}", number, partial(drain.run, system, task))


def _in_turn(systems: list[drain.System], number: int) -> list[drain.System]:
    """Return them in the order of this round, so that the same one is not always the first."""
    return systems if number % 2 else systems[::-1]


def _tasks(wanted: set[str], options: argparse.Namespace, size: Size) -> list[drain.Task]:
    records = options.records or size.drain_records
    found: list[drain.Task] = []
    for fsync in options.fsync or FSYNC[: 1 if options.quick else 2]:
        if "B1" in wanted:
            found += [drain.Task(drain.SHAPES[shape], records, fsync=fsync) for shape in options.shapes]
        if "B2" in wanted:
            shape = drain.SHAPES["1p1c"]
            found.append(drain.Task(shape, records // 2, value_bytes=1024, fsync=fsync, benchmark="B2"))
    return found


def _systems(options: argparse.Namespace) -> list[drain.System]:
    found = _releases(options)
    if report.BASELINE in options.systems:
        found.append(ValkeyGroup())
    if options.kafka:
        found.append(Kafka(options.kafka, options.python, options.kafka_pid))
    return found


def _releases(options: argparse.Namespace) -> list[drain.System]:
    """Return the systems of this suite: the current code, also secured in each way, and the release before it."""
    found = [_ours(options, mode) for mode in ("", *options.secure)] if report.OURS in options.systems else []
    return [*found, Release(options.before)] if options.before else found


def _ours(options: argparse.Namespace, secure: str = "") -> drain.System:
    return ShareGroup(shlex.split(options.node), secure=secure) if options.node else ShareGroup(secure=secure)


def _print_tables(session: Session) -> None:
    core = [run for run in session.runs if run["benchmark"] == "B8"]
    rest = [run for run in session.runs if run["benchmark"] != "B8"]
    parts = [state_machine.table(core)] if core else []
    if rest:
        parts += [report.figures(rest), report.table(rest)]
    print("\n" + "\n\n".join(parts), file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help="B1 to B5, B8; all by default")
    parser.add_argument("--quick", action="store_true", help="few records, one round: a smoke run, not a measurement")
    parser.add_argument("--rounds", type=int, default=0, help="rounds, 3 by default")
    parser.add_argument("--records", type=int, default=0, help="records of a drain, 300000 by default")
    parser.add_argument("--shapes", nargs="+", choices=tuple(drain.SHAPES), default=tuple(drain.SHAPES))
    parser.add_argument("--fsync", nargs="+", choices=FSYNC, default=())
    parser.add_argument(
        "--systems", nargs="+", choices=(report.OURS, report.BASELINE), default=(report.OURS, report.BASELINE)
    )
    parser.add_argument("--kafka", default="", metavar="HOST:PORT", help="B10: a broker as a further side of B1 and B2")
    parser.add_argument("--kafka-pid", type=int, default=0, help="that broker's process, if its CPU is to count")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with confluent_kafka, for Kafka's side"
    )
    parser.add_argument(
        "--before",
        default="",
        metavar="PYTHON",
        help="an interpreter with another release: one more side",
    )
    parser.add_argument(
        "--secure",
        nargs="+",
        choices=MODES,
        default=(),
        help="one more side of B1, B2 and B5 each: with TLS, with mutual TLS, and that with access control",
    )
    parser.add_argument("--node", default="", help="command that starts our node, in place of python -m share_node up")
    return parser


if __name__ == "__main__":
    sys.exit(main())
