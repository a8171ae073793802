"""Uses and deletes topics and groups on a node in this process, and counts the product's objects that remain.

    python -m tests.integration.share_node.counted_objects DIRECTORY

Prints as JSON the kinds of objects, and the containers, that grew with each round. It ends once none grows or a bound
is reached. Objects that are kept on purpose are left out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import Counter, deque
from pathlib import Path

import share_node.grpc_library  # noqa: F401 - before anything imports grpc
from share_node.node.up import Ready, UpOptions, up
from sharegroups import Admin, Producer, ShareConsumer

#: The topics, and the groups, of one round.
EACH = 8
#: The second round is compared with the first, in which caches and pools are first used.
_ROUNDS = 2
_CHECKS = 120
_SETTLING_S = 8
#: Objects that are kept on purpose, within bounds: the newest deletions of topics (CM-20, CM-21), deleted groups for a
#: week (GC-93) with the positions of their entries, caches of keys, time marks in the logs (SR-29), and the connections
#: of the last half hour (CM-194).
_KEPT = (
    "group_coordinator.core.deletion.", "group_coordinator.core.records.DeletedGroup", "kip932.ids.SharePartitionKey",
    "shard_runtime.cluster.deleted_topics.", "shard_runtime.cluster.metadata.",
    "shard_runtime.hosting.shard_tenure.EntryAges", "shard_runtime.hosting.compaction_plan.",
    "shard_runtime.record_log.protocol.StreamId", "shard_runtime.rpc.connection_ages.",
)  # fmt: skip
_OURS = (
    "group_coordinator", "kafka_listener", "partition_leader", "share_coordinator", "share_persister", "shard_runtime",
    "transaction_coordinator", "kip932",
)  # fmt: skip


def use(bootstrap: str, number: int) -> None:
    """Create, use and delete one round of topics and groups."""
    topics = [f"round{number}-t{each}" for each in range(EACH)]
    groups = [f"round{number}-g{each}" for each in range(EACH)]
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(topics)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for topic in topics:
            producer.produce(topic, b"x")
    for group, topic in zip(groups, topics, strict=True):
        with ShareConsumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
            consumer.subscribe([topic])
            while not consumer.poll(5):
                pass
            consumer.commit_sync()
    with Admin(bootstrap_servers=bootstrap) as admin:
        for refused in (admin.delete_share_groups(groups), admin.delete_topics(topics)):
            assert not any(refused.values()), refused


def count() -> Counter[str]:
    """Count the objects of each of the product's types, and the elements in their containers."""
    gc.collect()
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        room = kind.__module__
        if isinstance(room, str) and room.split(".")[0] in _OURS:  # in some extension types it is a descriptor
            found[f"{room}.{kind.__qualname__}"] += 1
            for name, value in _held(each):
                if isinstance(value, dict | set | list | deque):
                    found[f"in {room}.{kind.__qualname__}.{name}"] += len(value)
    return found


def _held(each: object) -> list[tuple[str, object]]:
    """Return the attributes of an object."""
    names = [*getattr(each, "__dict__", {})]
    for kind in type(each).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [(name, getattr(each, name, None)) for name in names if not name.startswith("__")]


async def _main(folder: Path) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()

    def announced(found: Ready) -> None:
        ready.set_result(found.bootstrap)

    options = UpOptions(folder / "data", "127.0.0.1", 0, None, "everysec", False, 1, False, frozenset(), None,
                        {"log.level": "error"}, "")  # fmt: skip
    running = asyncio.ensure_future(up(options, announced, stop))
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        sys.exit(running.result())
    before: Counter[str] = Counter()
    grown: dict[str, tuple[int, int]] = {}
    for number in range(_ROUNDS):
        # In another process: objects that a client leaves are not the node's.
        using = await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, ready.result(), str(number))
        if await using.wait():
            sys.exit("the topics and groups could not be used")
        for _ in range(_CHECKS):
            last = count()
            grown = {name: (before[name], last[name]) for name in last if _is_more(name, before[name], last[name])}
            if not grown:
                break
            await asyncio.sleep(1)
            if not number and _ == _SETTLING_S:
                break
        before = last
    stop.set()
    await running
    print(json.dumps(grown))


def _is_more(name: str, before: int, after: int) -> bool:
    return after - before >= EACH // 2 and not name.removeprefix("in ").startswith(_KEPT)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        use(sys.argv[1], int(sys.argv[2]))
    else:
        asyncio.run(_main(Path(sys.argv[1])))
