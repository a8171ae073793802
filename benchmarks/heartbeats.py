"""Measures what a group coordinator with many members costs: `python -m benchmarks.heartbeats`.

One node has all roles. This process runs the members of `--groups` groups, `--members` each, all on one topic with
`--partitions` partitions; they only send heartbeats over gRPC, at the interval that the coordinator sets. Once every
group is stable, `--seconds` are measured; then one more member joins each group, one group after the other.

- `cpu_ms_per_1000`: CPU time of the node for a thousand heartbeats that change nothing, including all its other work;
- `late`: how much later than its interval a heartbeat was sent, as a fraction of the interval, at the 99th percentile;
  `lost`: the heartbeats that failed;
- `join`: how long it took until every other member had received the epoch of a join, as a fraction of the bound: one
  heartbeat interval and one assignment interval.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.machine import cpu_seconds
from benchmarks.processes import BenchmarkError, Crew, Process
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError
from sharegroups import NewTopic
from sharegroups.aio import Admin
from sharegroups.connection import wire

_TOPIC: Final = "load"
_WAIT_S: Final = 60.0
_SETTLE_S: Final = 180.0
_CALL_S: Final = 10.0


@dataclass
class Member:
    """One member, as far as it knows. `gaps_s`: how much later than the interval each next heartbeat was sent."""

    group: str
    name: str
    epoch: int = 0
    partitions: int = 0
    interval_s: float = 1.0
    failures: int = 0
    gaps_s: list[float] = field(default_factory=list)

    async def beat(self, transport: GrpcTransport, address: str) -> None:
        """Send one heartbeat, which is a join at epoch 0. Raises TransportError."""
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.name, member_epoch=self.epoch)
        if self.epoch == 0:
            request.subscribed_topic_names.CopyFrom(StringList(values=[_TOPIC]))
        answer: ShareGroupHeartbeatResponse = await transport.call(address, wire.HEARTBEAT, request, _CALL_S)
        if answer.error_code:
            self.failures += 1
            return
        self.epoch, self.interval_s = answer.member_epoch, answer.heartbeat_interval_ms / 1000
        if answer.HasField("assignment"):
            self.partitions = sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)

    async def live(self, transport: GrpcTransport, address: str, delay_s: float) -> None:
        """Send heartbeats at the interval that the coordinator sets."""
        await asyncio.sleep(delay_s)
        while True:
            began_s = time.perf_counter()
            try:
                await self.beat(transport, address)
            except TransportError:
                self.failures += 1
            await asyncio.sleep(max(0.0, self.interval_s - (time.perf_counter() - began_s)))
            self.gaps_s.append(time.perf_counter() - began_s - self.interval_s)


def main(arguments: list[str] | None = None) -> int:
    """Start a node, measure and print. Returns the exit status."""
    options = _parser().parse_args(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="beats-", ignore_cleanup_errors=True))
        words = ["share_node", "up", "--data", str(Path(folder)), "--port", "0", "--output", "json"]
        words += ["--fsync", "everysec", "--log-level", "warning"]
        node = Process("node", [sys.executable, "-m", *words], Crew(), is_server=True)
        stack.callback(node.stop, terminate=True)
        address = str(node.expect("bootstrap", _WAIT_S)["bootstrap"])
        print(json.dumps(asyncio.run(_run(address, node.pid, options))), flush=True)
    return 0


async def _run(address: str, pid: int, options: argparse.Namespace) -> dict[str, Any]:
    """Settle, measure, join. Raises BenchmarkError."""
    async with Admin({"bootstrap.servers": address}) as admin:
        await admin.create_topics([NewTopic(_TOPIC, options.partitions)])
    transport, rng = GrpcTransport(), Random(1)
    members = [
        Member(f"g{group}", f"g{group}-{one}") for group in range(options.groups) for one in range(options.members)
    ]
    tasks = [asyncio.create_task(each.live(transport, address, rng.uniform(0, 5.0))) for each in members]
    settled_s = await _settled(members, options)
    for each in members:
        each.gaps_s.clear()
    before_s, began_s = cpu_seconds(pid), time.perf_counter()
    await asyncio.sleep(options.seconds)
    cpu_s, took_s = cpu_seconds(pid) - before_s, time.perf_counter() - began_s
    gaps = sorted(gap / each.interval_s for each in members for gap in each.gaps_s)
    joins = [await _joins(members, f"g{group}", transport, address) for group in range(options.groups)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await transport.close()
    bound_s = members[0].interval_s + options.assignment_s
    return {
        "benchmark": "heartbeats",
        "groups": options.groups,
        "members": options.members,
        "partitions": options.partitions,
        "settled_s": round(settled_s, 1),
        "heartbeats": len(gaps),
        "per_second": round(len(gaps) / took_s, 1),
        "cpu_ms_per_1000": round(cpu_s * 1e6 / max(1, len(gaps))),
        "cpu_share": round(cpu_s / took_s, 3),
        "late": round(gaps[len(gaps) * 99 // 100], 3) if gaps else -1,
        "lost": sum(each.failures for each in members),
        "join": round(sorted(joins)[len(joins) // 2] / bound_s, 2),
        "join_worst": round(max(joins) / bound_s, 2),
    }


async def _settled(members: list[Member], options: argparse.Namespace) -> float:
    """Wait until every group has one epoch and every partition an owner. Returns how long that took, in seconds."""
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < _SETTLE_S:
        await asyncio.sleep(0.2)
        groups: dict[str, list[Member]] = {}
        for each in members:
            groups.setdefault(each.group, []).append(each)
        if all(_is_stable(some, options.partitions) for some in groups.values()):
            return time.perf_counter() - began_s
    raise BenchmarkError(f"the groups did not stand still within {_SETTLE_S:.0f} s")


def _is_stable(members: list[Member], partitions: int) -> bool:
    same = len({each.epoch for each in members}) == 1 and members[0].epoch > 0
    return same and sum(each.partitions for each in members) >= partitions


async def _joins(members: list[Member], group: str, transport: GrpcTransport, address: str) -> float:
    """Have one more member join. Returns the seconds until every other member had its epoch."""
    others = [each for each in members if each.group == group]
    late = Member(group, f"{group}-late")
    began_s = time.perf_counter()
    await late.beat(transport, address)
    while any(each.epoch < late.epoch for each in others):
        if time.perf_counter() - began_s > _SETTLE_S:
            raise BenchmarkError(f"a join of {group} did not reach the others within {_SETTLE_S:.0f} s")
        await asyncio.sleep(0.01)
    return time.perf_counter() - began_s


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heartbeats", description=__doc__)
    parser.add_argument("--groups", type=int, default=10, help="groups, 10 by default")
    parser.add_argument("--members", type=int, default=50, help="members of each, 50 by default")
    parser.add_argument("--partitions", type=int, default=200, help="partitions of their topic, 200 by default")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long is measured, 30 by default")
    parser.add_argument("--assignment-s", type=float, default=1.0, help="least time between assignments, 1 by default")
    return parser


if __name__ == "__main__":
    sys.exit(main())
