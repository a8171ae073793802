"""B14, turns: what a record costs here and in another release, while both take turns of a few hundredths of a second.

    python -m benchmarks.turns --before /path/of/a/release/bin/python      # about two minutes
    python -m benchmarks.turns --before python --rounds 60 --kinds consume-one

Where a machine's speed changes by half within a minute, the ratio of two runs that follow each other says little. Here
each release has two nodes, each with its own store and client, and all are up at the same time. In each turn one of
them does a fixed amount of work; the order changes from round to round. A ratio is the median over the rounds of what
this release needed divided by what the other one did. `same` is that ratio between the two nodes of this release: what
is nearer to 1 than that is noise. JSON lines on standard output, the table on standard error.
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
from pathlib import Path
from typing import Any, Final

from benchmarks.drain import SHAPES, Task
from benchmarks.machine import thread_seconds
from benchmarks.processes import BenchmarkError, Process, hear_words, run_loop, say
from benchmarks.report import BEFORE, OURS, median
from benchmarks.session import Session
from benchmarks.share_group import Release, ShareGroup

#: What is done in a turn: the records of each kind. The last two handle one record at a time.
KINDS: Final[Mapping[str, int]] = {"produce": 30_000, "consume": 30_000, "produce-one": 60, "consume-one": 60}
MEASURES: Final = ("wall_us", "node_us", "client_us")
_COPIES: Final = 2
_WARM_ROUNDS: Final = 2
_VALUE: Final = b"v" * 100
_READY_S: Final = 60.0
_TURN_S: Final = 60.0
_POLL_S: Final = 5.0


class _Side(ShareGroup):
    """A node and its client."""

    _client: Process

    def begin(self, folder: Path) -> None:
        """Start both. Raises BenchmarkError."""
        self.start_node(Task(SHAPES["1p1c"], 0, benchmark="B14"), folder)
        self._client = self._worker("client", {}, module="turns")
        self._client.expect("ready", _READY_S)

    def turn(self, kind: str, records: int) -> dict[str, Any]:
        """Do the work of one turn. Returns what a record took, in µs. Raises BenchmarkError."""
        pids = (self._servers["node"], self._client.pid)
        before = [thread_seconds(pid) for pid in pids]
        self._client.send(f"{kind} {records}")
        wall_s = float(self._client.expect("took_s", _TURN_S)["took_s"])
        used = [thread_seconds(pid) - cpu_s for pid, cpu_s in zip(pids, before, strict=True)]
        figures = zip(MEASURES, (wall_s, *used), strict=True)
        return {"system": self.name} | {name: round(seconds / records * 1e6, 3) for name, seconds in figures}


class _Before(Release, _Side):
    """A node and its client, of another release."""


def main(arguments: list[str] | None = None) -> int:
    """Run all rounds. Returns the exit status: 1 when the run could not be counted."""
    options = _parser().parse_args(arguments)
    session = Session()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turns-", ignore_cleanup_errors=True)))
        pair = [_Side(), _Before(options.before)]
        pairs = [pair, *([_Side(), _Before(options.before)][::-1] for _ in range(_COPIES - 1))]
        sides = [side for each in pairs for side in each]
        try:
            for number, side in enumerate(sides):
                stack.callback(side.close)
                side.begin(folder / str(number))
            for number in range(1, options.rounds + _WARM_ROUNDS + 1):
                _round(sides, number, options, session)
        except BenchmarkError as error:
            print(error, file=sys.stderr, flush=True)
            return 1
    print("\n" + table(session.runs), file=sys.stderr, flush=True)
    return 0


def _round(sides: Sequence[_Side], number: int, options: argparse.Namespace, session: Session) -> None:
    first = number % len(sides)
    for kind in options.kinds:
        records = max(1, int(KINDS[kind] * options.scale))
        done = {side: side.turn(kind, records) for side in (*sides[first:], *sides[:first])}
        if number > _WARM_ROUNDS:
            session.add({"benchmark": "B14", "kind": kind, "round": number, "turns": [done[side] for side in sides]})


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return for each kind and measure the medians of both releases, their ratio, and that of equal nodes."""
    lines = [f"{'µs per record':28}{'here':>10}{'before':>10}{'ratio':>8}{'same':>8}"]
    for kind in dict.fromkeys(run["kind"] for run in runs):
        turns = [run["turns"] for run in runs if run["kind"] == kind]
        for measure in MEASURES:
            ours, before = (
                [[turn[measure] for turn in one if turn["system"] == name] for one in turns] for name in (OURS, BEFORE)
            )
            ratio = median([sum(one) / sum(other) for one, other in zip(ours, before, strict=True)])
            same = median([one[0] / one[-1] for one in ours])
            figures = [median([sum(each) / len(each) for each in side]) for side in (ours, before)]
            cells = f"{figures[0]:>10,.2f}{figures[1]:>10,.2f}{ratio:>8.2f}{same:>8.2f}"
            lines.append(f"{f'{kind}, {measure[:-3]}':28}{cells}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.turns", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", required=True, metavar="PYTHON", help="an interpreter with another release")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the records, for a smoke run")
    return parser


async def _client(settings: dict[str, Any]) -> None:
    from sharegroups.admin_values import AlterConfig, ConfigResource, NewTopic  # noqa: PLC0415
    from sharegroups.aio import Admin, Producer, ShareConsumer  # noqa: PLC0415 - the parent needs no client

    bootstrap = settings["bootstrap"]
    earliest = [AlterConfig("share.auto.offset.reset", "earliest")]
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("many", 1), NewTopic("one", 1)])
        await admin.incremental_alter_configs({ConfigResource.group(name): earliest for name in ("many", "one")})
    one_by_one = {"max.poll.records": 1, "share.acquire.mode": "record_limit"}
    async with (
        Producer(bootstrap_servers=bootstrap) as producer,
        ShareConsumer(bootstrap_servers=bootstrap, group_id="many") as many,
        ShareConsumer(one_by_one, bootstrap_servers=bootstrap, group_id="one") as one,
    ):
        for consumer, topic in ((many, "many"), (one, "one")):
            consumer.subscribe([topic])
            await consumer.poll(1.0)
        say(ready=True)
        while words := await asyncio.to_thread(hear_words):
            kind, records = words[0], int(words[1])
            began = time.monotonic()
            if kind == "produce":
                for number in range(records):
                    await producer.produce("many", _VALUE)
                    if number % 500 == 0:
                        await asyncio.sleep(0)  # let the sender run, which is a task of this loop
                await producer.flush()
            elif kind == "produce-one":
                for _ in range(records):
                    await producer.produce("one", _VALUE)
                    await producer.flush()
            else:
                await _consume(many if kind == "consume" else one, records)
            say(took_s=time.monotonic() - began)


async def _consume(consumer: Any, records: int) -> None:
    seen = 0
    while seen < records:
        found = await consumer.poll(_POLL_S)
        if not found:
            sys.exit(f"{seen} of {records} records came, and none for {_POLL_S:g} s")
        seen += len(found)


if __name__ == "__main__":
    # The first word of a worker is its role.
    if sys.argv[1:2] == ["client"]:
        run_loop(_client(json.loads(sys.argv[2])))
    else:
        sys.exit(main())
