"""Run the same commands of Kafka's tools against a node and a Kafka broker, and print where their output differs.

    python -m tools.kafka_transcripts --ours 127.0.0.1:9092 --broker 127.0.0.1:19092 --kafka build/kafka-java
    python -m tools.kafka_transcripts … --out build/transcripts     # and keep both transcripts

Both need access control with `User:ANONYMOUS` among the super users, and groups that start at the end. The commands
make topics, groups and users with names of their own, and delete them. Each difference that is meant is counted, every
other one is printed, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.kafka_transcripts.comparing import Difference, Hunk, hunks, named, normal
from tools.kafka_transcripts.differences import DIFFERENCES
from tools.kafka_transcripts.running import Done, KafkaTools, Running, missing
from tools.kafka_transcripts.steps import END, STEPS, Step


class Server:
    """One of the two, and its transcript."""

    def __init__(self, name: str, address: str, tools: KafkaTools, mark: str) -> None:
        self.name = name
        self.transcript: list[str] = []
        self._address = address
        self._tools = tools
        self._mark = mark
        self._running: dict[str, tuple[Step, Running, str]] = {}

    def ask(self, step: Step) -> list[str]:
        """Run a command; return the lines that count of what it printed, and its exit status."""
        if step.tool == END:
            begun, running, first = self._running.pop(step.words)
            status, rest, errors = running.stop()
            done, shown = Done(status, first + rest, errors), begun
        elif step.keep:
            running = self._tools.start(step.tool, *self._words(step))
            self._running[step.keep] = (step, running, running.line())
            return []
        else:
            done, shown = self._tools.run(step.tool, *self._words(step), given=step.given), step
        lines = normal(shown, f"{done.out}{done.errors}", address=self._address, mark=self._mark)
        lines.append(f"[exit status {done.status}]")
        self.transcript += [f"$ {shown.command}", *lines, ""]
        return lines

    def close(self) -> None:
        """End what still runs."""
        for _, running, _ in self._running.values():
            running.stop()

    def _words(self, step: Step) -> list[str]:
        words, address = shlex.split(named(step, self._mark)), ["--bootstrap-server", self._address]
        return [*words, *address] if step.tool == "cluster" else [*address, *words]


class Findings(NamedTuple):
    """The differences of a run: how often each one that is meant was seen, and all others."""

    meant: Counter[Difference]
    others: list[Hunk]


def compare(broker: Server, ours: Server, steps: Sequence[Step]) -> Findings:
    """Run the commands against both, one after the other."""
    found = Findings(Counter(), [])
    for step in steps:
        expected = broker.ask(step)
        for hunk in hunks(step, expected, ours.ask(step)):
            known = next((each for each in DIFFERENCES if each.explains(hunk)), None)
            if known is None:
                found.others.append(hunk)
                print(f"$ {hunk.command}", *(f"- {line}" for line in hunk.broker), *(f"+ {line}" for line in hunk.ours),
                      "", sep="\n", flush=True)  # fmt: skip
            else:
                found.meant[known] += 1
    return found


def main(arguments: list[str] | None = None) -> int:
    """Compare the two. Returns 1 when there are differences that are not meant, 2 when the tools cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m tools.kafka_transcripts", description=__doc__.partition("\n")[0])
    parser.add_argument("--ours", required=True, metavar="HOST:PORT", help="a node's Kafka listener")
    parser.add_argument("--broker", required=True, metavar="HOST:PORT", help="a Kafka broker")
    parser.add_argument("--kafka", required=True, type=Path, metavar="FOLDER", help="a folder with Kafka's jars")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep both transcripts there")
    parser.add_argument("--only", default="", metavar="TOOL", help="leave out the commands of other tools")
    options = parser.parse_args(arguments)
    if lacking := missing(options.kafka):
        print(lacking, file=sys.stderr)
        return 2
    mark, tools = f"-{secrets.token_hex(2)}", KafkaTools(options.kafka)
    servers = Server("broker", options.broker, tools, mark), Server("ours", options.ours, tools, mark)
    steps = [step for step in STEPS if options.only in ("", step.tool)]
    try:
        found = compare(*servers, steps)
    finally:
        for server in servers:
            server.close()
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        for server in servers:
            (options.out / f"{server.name}.txt").write_text("\n".join(server.transcript), encoding="utf-8")
    print(f"{len(steps)} commands, {found.meant.total()} differences that are meant, {len(found.others)} others")
    return 1 if found.others else 0


if __name__ == "__main__":
    sys.exit(main())
