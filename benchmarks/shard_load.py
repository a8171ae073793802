"""Measures how long a share-coordinator shard takes from its claim until it serves: `python -m benchmarks.shard_load`.

A shard's stream in its own Valkey holds the snapshots of `--keys` share-partitions and then `--updates` updates, each
with two state batches, none of them redundant yet. Then a host takes over the shard, as after a crash: claim, replay,
serve, with the event loop and the garbage collector settings of a node (CM-95). The same stream is also read, decoded
and applied step by step, to show where the time goes. Times are CPU seconds of this process, except `wall_s`; compare
them within one run only. `turn_ms` is the longest time for which the event loop could do no other work.

    python -m benchmarks.shard_load                          # 100,000 updates, 2,000 share-partitions, three rounds
    python -m benchmarks.shard_load --profile                # also the most expensive functions of the last round
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import uvloop

from benchmarks.processes import Crew
from benchmarks.valkey_group import store_server
from kip932.ids import STATE_ACKNOWLEDGED, STATE_AVAILABLE, SharePartitionKey
from kip932.state_batches import StateBatch
from shard_runtime.clock import SystemClock
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.host_options import HostOptions
from shard_runtime.hosting.shard_host import ShardHost
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import (
    STREAM_START,
    Claimed,
    ClaimRequest,
    Entry,
    OwnedElsewhere,
    ShardId,
    ShardKind,
    StreamAppend,
    StreamId,
)
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.topology import open_store
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.commands import ShareCommand
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareUpdate
from share_coordinator.core.shard import ShareStateShard
from share_node.process_memory.memory_checks import CycleSearches

SHARD: Final = ShardId(ShardKind.SHARE_STATE, "0")
_TOPIC: Final = bytes(range(1, 17))
_UPDATES_PER_SNAPSHOT: Final = 500
_FLUSH: Final = 2_000
_LEASE_MS: Final = 600_000
#: The interval at which the event loop is checked, in seconds: long enough to cost nothing.
_TICK_S: Final = 0.002


class _Topics:
    """A metadata view in which the topic exists."""

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return a number that is enough for every share-partition."""
        return 1 << 30 if topic_id == _TOPIC else None

    def settled_since(self, now_ms: int) -> bool:
        """Return True for every time."""
        return now_ms >= 0


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds. Returns the exit status."""
    options = _parser().parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="load-", ignore_cleanup_errors=True)))
        crew = Crew()
        server, port = store_server("store", "everysec", folder, crew)
        stack.callback(server.stop, terminate=True)
        searches = CycleSearches()
        searches.start()
        stack.callback(searches.stop)
        uvloop.run(_rounds(f"redis://127.0.0.1:{port}", options))
    return 0


async def _rounds(url: str, options: argparse.Namespace) -> None:
    await _fill(_log(url, 1), options.keys, options.updates)
    for number in range(1, options.rounds + 1):
        profile = cProfile.Profile() if options.profile and number == options.rounds else None
        taken = await _take_over(_log(url, number + 1), number + 1, profile)
        steps = {} if profile else await _steps(_log(url, 100 + number))
        sizes = {"updates": options.updates, "share_partitions": options.keys}
        print(json.dumps({"benchmark": "shard load", "round": number} | sizes | taken | steps), flush=True)
        if profile is not None:
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)


def _log(url: str, number: int) -> StoreRecordLog:
    return StoreRecordLog(open_store(url), StoreSettings(), SystemClock(), Random(number))


def _key(number: int) -> SharePartitionKey:
    return SharePartitionKey("load", _TOPIC, number)


async def _claim(log: StoreRecordLog, number: int) -> Claimed:
    """Claim the shard as a process that knows that every former owner is dead."""
    dead = frozenset(range(1, number))
    request = ClaimRequest(SHARD, number, number, f"node{number}:1", f"n{number}", _LEASE_MS, 1, "", dead, waited=True)
    for _ in range(5):
        answer = await log.claim(request)
        if isinstance(answer, Claimed):
            return answer
        history = "" if isinstance(answer, OwnedElsewhere) else getattr(answer, "history", "")
        request = ClaimRequest(
            SHARD, number, number, f"node{number}:1", f"n{number}", _LEASE_MS, 1, history, dead, waited=True
        )
    raise RuntimeError(f"the shard could not be claimed: {answer}")


async def _fill(log: StoreRecordLog, keys: int, updates: int) -> None:
    """Append the snapshots of all keys, then updates of each key in turn."""
    claimed = await _claim(log, 1)
    codec = ShareStateCodec()
    first, seq = [_snapshot(number) for number in range(keys)], 1
    records: list[ShareRecord] = [*first, *(_update(number % keys, number // keys) for number in range(updates))]
    for begin in range(0, len(records), _FLUSH):
        some = [codec.encode(record, 1) for record in records[begin : begin + _FLUSH]]
        entries = [Entry(StreamId(claimed.epoch, seq + at), kind, data) for at, (kind, data) in enumerate(some)]
        await log.append(SHARD, claimed.epoch, [StreamAppend(SHARD.streams[0], entries)])
        seq += len(some)
    await log.close()


def _snapshot(number: int) -> ShareSnapshot:
    return ShareSnapshot(
        key=_key(number), snapshot_epoch=1, state_epoch=1, leader_epoch=1, generation=1, start_offset=0,
        delivery_complete_count=0, create_ms=1, write_ms=1, batches=(), fence_leader_epoch=1, fence_generation=1,
        fence_state_epoch=1,
    )  # fmt: skip


def _update(number: int, step: int) -> ShareUpdate:
    """Return an update that advances the start offset, with some records after it acknowledged."""
    start = 100 * step
    batches = (
        StateBatch(start + 20, start + 59, STATE_ACKNOWLEDGED, 1),
        StateBatch(start + 60, start + 99, STATE_AVAILABLE, 1),
    )
    return ShareUpdate(_key(number), 1, 1, 1, start, 40, batches)


async def _take_over(log: StoreRecordLog, number: int, profile: cProfile.Profile | None) -> dict[str, Any]:
    """Claim the shard, replay it, and serve. Returns the times that this took."""
    host: ShardHost[ShareCommand, ShareRecord] = ShardHost(
        SHARD,
        lambda: ShareStateShard(_Topics(), _UPDATES_PER_SNAPSHOT, _LEASE_MS),
        ShareStateCodec(),
        log,
        SystemClock(),
        options=HostOptions(compaction=CompactionLimits(entries_min=1 << 40)),  # keep all entries for the next round
    )
    watch = _Watch()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    if profile is not None:
        profile.enable()
    claimed = await _claim(log, number)
    deadline_ms = claimed.sent_ms + _LEASE_MS
    lease = Lease(
        SHARD,
        number,
        claimed.epoch,
        deadline_ms=deadline_ms,
        clock=SystemClock(),
        give_up=lambda reason, above: None,
    )
    await host.gained(claimed, lease)
    if profile is not None:
        profile.disable()
    found = {"wall_s": round(time.perf_counter() - began_s, 3), "cpu_s": round(time.process_time() - cpu_s, 3)}
    turn_ms = await watch.end()
    assert host.shard is not None
    await host.releasing()
    await log.close()
    return found | {"turn_ms": turn_ms}


class _Watch:
    """Measures the longest turn of the event loop."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            before_s = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self._longest_s = max(self._longest_s, time.perf_counter() - before_s - _TICK_S)

    async def end(self) -> float:
        """Stop, and return the longest turn in milliseconds."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return round(self._longest_s * 1000, 1)


async def _steps(log: StoreRecordLog) -> dict[str, float]:
    """Return the CPU seconds of reading, decoding and applying the stream, in separate steps."""
    entries: list[Entry] = []
    marks = [time.process_time()]
    while page := await log.read(SHARD.streams[0], entries[-1].id if entries else STREAM_START, None, 500):
        entries += page
    marks.append(time.process_time())
    codec = ShareStateCodec()
    records = [codec.decode(entry.kind, entry.record) for entry in entries]
    marks.append(time.process_time())
    shard = ShareStateShard(_Topics(), _UPDATES_PER_SNAPSHOT, _LEASE_MS)
    for record in records:
        if record is not None:
            shard.replay(record)
    marks.append(time.process_time())
    await log.close()
    names = ("read_cpu_s", "decode_cpu_s", "apply_cpu_s")
    return {name: round(after - before, 3) for name, before, after in zip(names, marks, marks[1:], strict=False)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shard_load", description=__doc__)
    parser.add_argument("--updates", type=int, default=100_000, help="live updates, 100000 by default")
    parser.add_argument("--keys", type=int, default=2_000, help="share-partitions, 2000 by default")
    parser.add_argument("--rounds", type=int, default=3, help="take-overs, 3 by default")
    parser.add_argument("--profile", action="store_true", help="profile the last round; its times then mean nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
