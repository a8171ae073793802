"""B9, releases, and B1 with a group's back-off, each in turn with B1: `python -m benchmarks.releases`.

    python -m benchmarks.releases --rounds 5
    python -m benchmarks.releases --ways B1 back-off          # only the cost of an unused back-off

`releases` is B1 with one partition, in explicit mode: the consumer releases every tenth record at its first delivery,
rejects one in a hundred and accepts the rest, each by itself. A record counts when its end, accepted or rejected, is
confirmed, and in the end each has exactly one. `B9` has a second member, which takes one in a hundred records and lets
their locks expire. As in Kafka, a partition delivers at most 2,000 records beyond its start offset (PL-222), so any
server has to wait until such locks end. Locks last 1 s there instead of 30 s. The rate shows how long it waited;
compare the CPU time per record instead.
JSON lines on standard output, medians and ratios on standard error; a run that other processes disturbed is flagged as
in B1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import drain
from benchmarks.goals import RELEASES
from benchmarks.machine import versions
from benchmarks.processes import BenchmarkError, Board, Process, hear, run_loop, say
from benchmarks.report import median
from benchmarks.share_group import GROUP, TOPIC, ShareGroup

if TYPE_CHECKING:
    from sharegroups import KafkaError, TopicIdPartition

LOCK_MS: Final = 1_000
#: The offsets modulo 100 that are released once, and the one that is rejected.
RELEASED: Final = range(3, 100, 10)
REJECTED: Final = 57
#: How many records the forgetful member takes at a time; this leaves most of the 2,000 record locks to the other one.
_FORGOTTEN: Final = 500
_BACK_OFF: Final = {"sharegroups.retry.backoff.initial.ms": "1000"}
_NODE: Final = (
    sys.executable, "-m", "share_node", "up", "--set", "group.share.min.record.lock.duration.ms=1000",
)  # fmt: skip
_LOCK: Final = {"share.record.lock.duration.ms": str(LOCK_MS)}
_LAST: Final = 1  # the number of the forgetful member


class Releasing(ShareGroup):
    """A node whose first consumer decides for each record; a second one, if any, takes `forgets` and ignores them."""

    def __init__(self, forgets: int = 0) -> None:
        super().__init__(_NODE, configs=_LOCK)
        self._forgets = forgets

    def _consumer(self, settings: dict[str, Any]) -> Process:
        if settings["number"] == _LAST:
            return self._worker("forgetful", settings | {"forgets": self._forgets}, "releases")
        return self._worker("deciding", settings, "releases")


SYSTEMS: Final[dict[str, Callable[[int], ShareGroup]]] = {
    "B1": lambda _: ShareGroup(),
    "back-off": lambda _: ShareGroup(configs=_BACK_OFF),
    "releases": lambda _: Releasing(),
    "B9": lambda records: Releasing(records // 100),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds. Returns the exit status: 1 when a run could not be counted."""
    options = _parser().parse_args(arguments)
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways}
    failures = 0
    for number in range(1, options.rounds + 1):
        for way in options.ways if number % 2 else reversed(options.ways):  # so that none always follows the same one
            shape = drain.Shape(1, 2 if way == "B9" else 1)
            task = drain.Task(shape, options.records, benchmark="B9" if way in ("releases", "B9") else "B1")
            try:
                found = drain.run(SYSTEMS[way](options.records), task) | {"way": way}
            except BenchmarkError as error:
                failures += 1
                print(f"{way}, round {number}: {error}", file=sys.stderr, flush=True)
                continue
            runs[way].append(found)
            stamp = {"round": number, "load": os.getloadavg()[0], "at": time.time(), "versions": versions()}
            print(json.dumps(found | stamp), flush=True)
    print("\n" + table(runs), file=sys.stderr, flush=True)
    return 1 if failures else 0


def table(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the medians of each way, and the medians of its per-round ratios to the first way."""
    first, *_ = runs
    lines = [f"{'':10}{'consumed/s':>11}{'ratio':>7}{'CPU us':>8}{'ratio':>7}  flagged"]
    for way, found in runs.items():
        if not found or len(found) != len(runs[first]):
            lines.append(f"{way:10} not all runs were counted")
            continue
        pairs = list(zip(found, runs[first], strict=True))
        rate = median([one["consume_per_s"] / other["consume_per_s"] for one, other in pairs])
        cpu = median([one["cpu_us_per_record"] / other["cpu_us_per_record"] for one, other in pairs])
        line = (
            f"{way:10}{median([one['consume_per_s'] for one in found]):>11,.0f}{rate:>7.2f}"
            f"{median([one['cpu_us_per_record'] for one in found]):>8.2f}{cpu:>7.2f}"
            f"  {sum(one['flagged'] for one in found)} of {len(found)}"
        )
        lines.append(
            line + (f"  {RELEASES.name}: {RELEASES.grade(rate)}" if (way, first) == ("releases", "B1") else "")
        )
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.releases", description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=tuple(SYSTEMS), default=tuple(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=3, help="rounds, 3 by default")
    parser.add_argument("--records", type=int, default=300_000, help="records of a drain, 300000 by default")
    return parser


# The workers.


class Ends:
    """Counts the records that are finished, from the consumer's decisions and the leader's confirmations."""

    def __init__(self) -> None:
        self.ended = self.released = self.rejected = 0
        self._released: set[int] = set()
        self._rejected_offsets: set[int] = set()

    def decide(self, offset: int, delivery_count: int) -> str:
        """Return ACCEPT, RELEASE or REJECT for a delivered record."""
        place = offset % 100
        if place == REJECTED:
            self._rejected_offsets.add(offset)
            return "REJECT"
        if place in RELEASED and delivery_count == 1:
            self._released.add(offset)
            return "RELEASE"
        return "ACCEPT"

    def confirmed(self, offsets: set[int]) -> None:
        """Count acknowledgements that the leader has confirmed."""
        back, up = offsets & self._released, offsets & self._rejected_offsets
        self._released -= back
        self._rejected_offsets -= up
        self.released += len(back)
        self.rejected += len(up)
        self.ended += len(offsets) - len(back)


async def _deciding(settings: dict[str, Any]) -> None:
    from sharegroups.aio import ShareConsumer  # noqa: PLC0415 - parents need no client
    from sharegroups.messages import AcknowledgeType  # noqa: PLC0415

    ends, cycles = Ends(), 0
    consumer = ShareConsumer(
        bootstrap_servers=settings["bootstrap"], group_id=GROUP, max_poll_records=settings["fetch_records"],
        share_acquire_mode="batch_optimized", share_acknowledgement_mode="explicit",
    )  # fmt: skip
    with Board(Path(settings["board"]), settings["consumers"]) as board:

        def committed(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
            if error is not None:
                raise error
            for found in offsets.values():
                ends.confirmed(found)
            board.post(settings["number"], ends.ended, time.monotonic(), cycles)

        consumer.set_acknowledgement_commit_callback(committed)
        consumer.subscribe([TOPIC])
        async with consumer:
            await _gate(consumer)
            while not board.is_over:
                messages = await consumer.poll(0.05)
                for message in messages:
                    kind = ends.decide(message.offset(), message.delivery_count())
                    consumer.acknowledge(message, AcknowledgeType[kind])
                cycles += bool(messages)
    say(done=True, released=ends.released, rejected=ends.rejected)


async def _forgetful(settings: dict[str, Any]) -> None:
    """Take `forgets` records, one in a hundred, and do nothing with them until their locks have expired."""
    from sharegroups.aio import ShareConsumer  # noqa: PLC0415

    left = settings["forgets"]
    consumer = ShareConsumer(
        bootstrap_servers=settings["bootstrap"], group_id=GROUP, max_poll_records=_FORGOTTEN,
        share_acquire_mode="record_limit", share_acknowledgement_mode="implicit",
    )  # fmt: skip
    with Board(Path(settings["board"]), settings["consumers"]) as board:
        consumer.subscribe([TOPIC])
        async with consumer:
            await _gate(consumer)
            while left > 0 and not board.is_over:
                messages = await consumer.poll(0.05, max_records=min(left, _FORGOTTEN))
                left -= len(messages)
                await asyncio.sleep(LOCK_MS * 1.2 / 1000 if messages else 0.0)
                # The next poll tries to accept them, which the leader refuses: their locks have expired.
            while not board.is_over:
                await consumer.poll(0.05, max_records=0)
    say(done=True, forgotten=settings["forgets"] - left)


async def _gate(consumer: Any) -> None:
    """Start as a consumer of B1 does: join, keep the membership until `hold`, and wait for `go`."""
    await consumer.poll(0.2)
    say(ready=True)
    hold = asyncio.create_task(asyncio.to_thread(hear, "hold"))
    while not hold.done():
        await consumer.poll(0.2)
    hold.result()
    await asyncio.sleep(0.7)  # let waiting fetches end: they would acquire records before the gate opens
    say(held=True)
    await asyncio.to_thread(hear, "go")


_ROLES: Final = {"deciding": _deciding, "forgetful": _forgetful}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in _ROLES:
        run_loop(_ROLES[sys.argv[1]](json.loads(sys.argv[2])))
    else:
        sys.exit(main())
