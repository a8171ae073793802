"""The processes of `benchmarks.two_servers`: administrator, producer and consumers, with Kafka's client and with ours.

They stay for the whole run and do what they hear, one line a turn, so that no turn begins with cold clients or a group
that settles. A consumer process is a member of several groups, each with a topic of the same name, and polls only for
the one it was asked for.

An administrator hears `empty TOPIC` and `count TOPIC`. A producer hears `fill TOPIC PARTITIONS RECORDS BYTES` and `pace
TOPIC RECORDS PER_SECOND`. A consumer hears `take TOPIC`, `note TOPIC` (which also reports the latency of each record)
and `settle` (which polls for all its groups), each until `hold`; and with Kafka's client also `join TOPIC GROUP`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.drain import BATCH
from benchmarks.latency_clients import Notes, paced
from benchmarks.processes import Board, hear, hear_words, run_loop, say

if TYPE_CHECKING:
    from sharegroups import KafkaError, TopicIdPartition

#: Values of the paced producer have this many bytes.
PACED_BYTES: Final = 100
_ANSWER_S: Final = 30.0
_FLUSH_S: Final = 120.0
_QUIET_S: Final = 0.7  # longer than a fetch waits
_JOIN_S: Final = 30.0
_HOUR_MS: Final = 3_600_000


class _Notes(Notes):
    """The records that a consumer has seen in a turn."""

    def take_all(self, values: list[bytes]) -> None:
        """Note that user code has these records."""
        for value in values:
            self.take(value)


def _touch(values: list[bytes]) -> None:
    """Read every value, as a program does that has a use for them."""
    sum([len(value) for value in values])


# Kafka's client.


def _kafka_admin(settings: dict[str, Any]) -> None:
    from confluent_kafka import TopicPartition  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - an extra
    from confluent_kafka import admin as tools  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    admin = tools.AdminClient({"bootstrap.servers": settings["address"]})
    topics = [tools.NewTopic(name, count, 1) for name, count in settings["topics"].items()]
    earliest = tools.ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=tools.AlterConfigOpType.SET
    )
    groups = [
        tools.ConfigResource(tools.ResourceType.GROUP, name, incremental_configs=[earliest])
        for name in settings["groups"]
    ]
    for done in (admin.create_topics(topics), admin.incremental_alter_configs(groups)):
        for each in done.values():
            each.result(_ANSWER_S)
    say(made=True)
    while words := hear_words():
        parts = [TopicPartition(words[1], number, -1) for number in range(settings["topics"][words[1]])]
        if words[0] == "empty":
            for each in admin.delete_records(parts).values():
                each.result(_ANSWER_S)
            say(emptied=True)
        else:
            ends = [
                sum(each.result(_ANSWER_S).offset for each in admin.list_offsets(dict.fromkeys(parts, end)).values())
                for end in (tools.OffsetSpec.earliest(), tools.OffsetSpec.latest())
            ]
            say(stored=ends[1] - ends[0])


async def _kafka_producer(settings: dict[str, Any]) -> None:
    from confluent_kafka import KafkaException, Producer  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    confirmed = 0

    def stored(error: Any, _: Any) -> None:
        nonlocal confirmed
        if error is not None:
            raise KafkaException(error)
        confirmed += 1

    common = {"bootstrap.servers": settings["address"], "acks": "all"}
    many = Producer(common | {
        "batch.num.messages": BATCH, "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000,
    })  # fmt: skip
    single = Producer(common | {"linger.ms": 0})
    for producer in (many, single):
        await asyncio.to_thread(producer.list_topics, timeout=_ANSWER_S)
    say(ready=True)
    while words := await asyncio.to_thread(hear_words):
        confirmed = 0
        topic = words[1]
        if words[0] == "fill":
            partitions, records, value = int(words[2]), int(words[3]), b"v" * int(words[4])
            for first in range(0, records, BATCH):
                for _ in range(min(BATCH, records - first)):
                    many.produce(topic, value, partition=first // BATCH % partitions, on_delivery=stored)
                many.poll(0)
            many.flush(_FLUSH_S)
        else:
            async for value in paced(int(words[2]), float(words[3]), PACED_BYTES):
                single.produce(topic, value, partition=0, on_delivery=stored)
                single.poll(0)
            single.flush(_FLUSH_S)
        say(produced=confirmed, at=time.monotonic())


def _kafka_consumer(settings: dict[str, Any]) -> None:
    from confluent_kafka import ShareConsumer  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    number = settings["number"]
    records = cycles = 0
    common = {"bootstrap.servers": settings["address"], "max.poll.interval.ms": _HOUR_MS, "log_level": 3}
    with Board(Path(settings["board"]), settings["consumers"]) as board:

        def committed(offsets: Any, error: Any) -> None:
            nonlocal records
            if error is not None:
                raise RuntimeError(f"an acknowledgement was refused: {error}")
            records += sum(len(found) for found in offsets.values())
            board.post(number, records, time.monotonic(), cycles)

        members = {}
        for name in settings["topics"]:
            member = ShareConsumer(common | {"group.id": name, "max.poll.records": BATCH})
            member.set_acknowledgement_commit_callback(committed)
            member.subscribe([name])
            members[name] = member
        say(ready=True)
        while words := hear_words():
            if words[0] == "join":
                say(first_s=_first(ShareConsumer(common | {"group.id": words[2]}), words[1]))
                continue
            held = threading.Thread(target=hear, args=("hold",), daemon=True)
            held.start()
            polled = list(members.values()) if words[0] == "settle" else [members[words[1]]]
            notes = _Notes()
            use: Callable[[list[bytes]], None] = notes.take_all if words[0] == "note" else _touch
            while held.is_alive():
                for member in polled:
                    values = [message.value() for message in member.poll(0.05) if message.error() is None]
                    use(values)
                    cycles += bool(values)
            time.sleep(_QUIET_S)  # let waiting fetches end: they would acquire records before the next turn's gate
            say(held=True, seen=notes.seen)
        for member in members.values():
            with suppress(Exception):  # the run is over, and its records are counted
                member.close()


def _first(consumer: Any, topic: str) -> float:
    """Return how long a new group's only member waits for the first record, in seconds."""
    began = time.monotonic()
    consumer.subscribe([topic])
    while time.monotonic() < began + _JOIN_S:
        if any(message.error() is None for message in consumer.poll(0.05)):
            took_s = time.monotonic() - began
            consumer.close()
            return took_s
    sys.exit(f"a new group's first record did not come within {_JOIN_S:g} s")


# Ours.


async def _native_producer(settings: dict[str, Any]) -> None:
    from sharegroups.aio import Producer  # noqa: PLC0415 - Kafka's clients need none of it

    bootstrap = settings["address"]
    async with (
        Producer(bootstrap_servers=bootstrap, batch_num_records=BATCH, batch_size=BATCH * 2048) as many,
        Producer(bootstrap_servers=bootstrap) as single,
    ):
        for topic in settings["topics"]:
            await many.ensure_topic(topic)
            await single.ensure_topic(topic)
        say(ready=True)
        while words := await asyncio.to_thread(hear_words):
            topic, waiting = words[1], 0
            if words[0] == "fill":
                partitions, records, value = int(words[2]), int(words[3]), b"v" * int(words[4])
                for first in range(0, records, BATCH):
                    for _ in range(min(BATCH, records - first)):
                        await many.produce(topic, value, partition=first // BATCH % partitions)
                    await asyncio.sleep(0)  # let the sender run, which is a task of this loop
                waiting = await many.flush()
            else:
                records = int(words[2])
                async for value in paced(records, float(words[3]), PACED_BYTES):
                    await single.produce(topic, value)
                waiting = await single.flush()
            say(produced=records - waiting, at=time.monotonic())


async def _native_consumer(settings: dict[str, Any]) -> None:
    from sharegroups.aio import ShareConsumer  # noqa: PLC0415

    number = settings["number"]
    records = cycles = 0
    async with AsyncExitStack() as stack:
        board = stack.enter_context(Board(Path(settings["board"]), settings["consumers"]))

        def committed(offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
            nonlocal records
            if error is not None:
                raise error
            records += sum(len(found) for found in offsets.values())
            board.post(number, records, time.monotonic(), cycles)

        members = {}
        for name in settings["topics"]:
            # Batches as Kafka's client asks for them, but where latency is measured: there it is used as it comes.
            more = {} if name in settings["paced"] else {"share.acquire.mode": "batch_optimized"}
            given = {"max.poll.interval.ms": _HOUR_MS, "max.poll.records": BATCH} | more
            member = ShareConsumer(given, bootstrap_servers=settings["address"], group_id=name)
            member.set_acknowledgement_commit_callback(committed)
            member.subscribe([name])
            members[name] = await stack.enter_async_context(member)
        say(ready=True)
        while words := await asyncio.to_thread(hear_words):
            held = asyncio.create_task(asyncio.to_thread(hear, "hold"))
            polled = list(members.values()) if words[0] == "settle" else [members[words[1]]]
            notes = _Notes()
            use: Callable[[list[bytes]], None] = notes.take_all if words[0] == "note" else _touch
            while not held.done():
                for member in polled:
                    values = [message.value() or b"" for message in await member.poll(0.05)]
                    use(values)
                    cycles += bool(values)
            held.result()
            await asyncio.sleep(_QUIET_S)  # as above
            say(held=True, seen=notes.seen)


if __name__ == "__main__":
    _ROLES: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
        "kafka-admin": _kafka_admin,
        "kafka-producer": lambda settings: run_loop(_kafka_producer(settings)),
        "kafka-consumer": _kafka_consumer,
        "native-producer": lambda settings: run_loop(_native_producer(settings)),
        "native-consumer": lambda settings: run_loop(_native_consumer(settings)),
    }
    _ROLES[sys.argv[1]](json.loads(sys.argv[2]))
