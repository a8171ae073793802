"""The processes of `benchmarks.latency`: a producer at a steady rate, and consumers, for each system that is compared.

A value contains the time of its `produce()` (monotonic clock, in ns), its number, and padding. The producer
sends each record when it is due, without waiting for confirmations, and counts these at the end. A consumer notes each
record when user code has it, and acknowledges it. Each system is used as its own documentation recommends for speed,
with the guarantee that an unacknowledged record is delivered again.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from benchmarks.processes import hear, run_loop, say

HEAD: Final = struct.Struct("=qq")
QUEUE: Final = "bench"
_FLUSH_S: Final = 30.0
_NATS_PULL: Final = 256
_PREFETCH: Final = 256


class Notes:
    """The records that a consumer has seen: the number of each, and how long it was in flight, µs."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def take(self, value: bytes) -> None:
        """Note that user code has a record."""
        now = time.monotonic_ns()
        sent_ns, number = HEAD.unpack_from(value)
        self.seen.append((number, round((now - sent_ns) / 1e3, 1)))


async def paced(count: int, per_second: float, value_bytes: int) -> AsyncIterator[bytes]:
    """Yield each value when it is due, or at once if it is late."""
    padding = b"." * (value_bytes - HEAD.size)
    began = time.monotonic()
    for number in range(count):
        wait_s = began + number / per_second - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        yield HEAD.pack(time.monotonic_ns(), number) + padding


Values = AsyncIterator[bytes]
Ready = Callable[[], Awaitable[None]]


async def _confirmations(tasks: Sequence[asyncio.Future[Any]]) -> int:
    """Return how many of these writes were confirmed. A failed write ends the run with its error."""
    done = await asyncio.wait_for(asyncio.gather(*tasks), _FLUSH_S)
    return len(done)


# Ours.


async def _send_ours(settings: dict[str, Any], ready: Ready, values: Values) -> int:
    from sharegroups.aio import Producer  # noqa: PLC0415 - each system's client is imported where it runs

    confirmed = 0

    def stored(error: Exception | None, _: Any) -> None:
        nonlocal confirmed
        if error is not None:
            raise error
        confirmed += 1

    async with Producer(bootstrap_servers=settings["address"]) as producer:
        await producer.ensure_topic(QUEUE)
        await ready()
        async for value in values:
            await producer.produce(QUEUE, value, on_delivery=stored)
        await producer.flush(_FLUSH_S)
    return confirmed


async def _take_ours(settings: dict[str, Any], ready: Ready, notes: Notes, over: asyncio.Event) -> None:
    from sharegroups.aio import ShareConsumer  # noqa: PLC0415

    async with ShareConsumer(bootstrap_servers=settings["address"], group_id=QUEUE) as consumer:
        consumer.subscribe([QUEUE])
        await consumer.poll(0.2)
        await ready()
        while not over.is_set():
            for message in await consumer.poll(0.1):
                notes.take(message.value() or b"")


# A consumer group of Valkey.


async def _send_valkey(settings: dict[str, Any], ready: Ready, values: Values) -> int:
    import redis.asyncio  # noqa: PLC0415

    client: Any = redis.asyncio.Redis.from_url(settings["address"], single_connection_client=True)
    await client.ping()
    await ready()
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def write() -> int:
        """Send in one pipeline all values that have arrived meanwhile."""
        confirmed = 0
        value = await waiting.get()
        while value is not None:
            pipeline = client.pipeline(transaction=False)
            while value is not None:
                pipeline.xadd(QUEUE, {"v": value})
                value = b"" if waiting.empty() else waiting.get_nowait()
                if value == b"":
                    break
            confirmed += len(await pipeline.execute())
            value = await waiting.get() if value == b"" else None
        return confirmed

    writing = asyncio.ensure_future(write())
    async for value in values:
        waiting.put_nowait(value)
    waiting.put_nowait(None)
    confirmed = await asyncio.wait_for(writing, _FLUSH_S)
    await client.aclose()
    return confirmed


async def _take_valkey(settings: dict[str, Any], ready: Ready, notes: Notes, over: asyncio.Event) -> None:
    import redis.asyncio  # noqa: PLC0415

    client: Any = redis.asyncio.Redis.from_url(settings["address"], single_connection_client=True)
    await client.ping()
    await ready()
    me = f"consumer-{settings['number']}"
    while not over.is_set():
        found = await client.xreadgroup(QUEUE, me, {QUEUE: ">"}, count=500, block=100)
        for parts in found.values() if isinstance(found, dict) else [[entries] for _, entries in found or ()]:
            entries = [entry for part in parts for entry in part]
            for _, fields in entries:
                notes.take(fields[b"v"])
            await client.xack(QUEUE, QUEUE, *[entry_id for entry_id, _ in entries])
    await client.aclose()


# NATS JetStream.


async def setup_nats(address: str) -> None:
    """Create a stream on disk, and one durable pull consumer that all processes share."""
    import nats  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - of the extra `bench`
    from nats.js import api  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    client = await nats.connect(address)
    stream = client.jetstream()
    await stream.add_stream(name=QUEUE, subjects=[QUEUE], storage=api.StorageType.FILE)
    explicit = api.ConsumerConfig(durable_name=QUEUE, ack_policy=api.AckPolicy.EXPLICIT, max_ack_pending=20_000)
    await stream.add_consumer(QUEUE, explicit)
    await client.close()


async def _send_nats(settings: dict[str, Any], ready: Ready, values: Values) -> int:
    import nats  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    client = await nats.connect(settings["address"])
    stream = client.jetstream()
    await ready()
    confirmations = [await stream.publish_async(QUEUE, value) async for value in values]
    found = await _confirmations(confirmations)
    await client.close()
    return found


async def _take_nats(settings: dict[str, Any], ready: Ready, notes: Notes, over: asyncio.Event) -> None:
    """Keep a pull request open all the time, as newer clients' `consume` does; `fetch` would wait for its batch."""
    import nats  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    client = await nats.connect(settings["address"])
    inbox = client.new_inbox()
    request = json.dumps({"batch": _NATS_PULL}).encode()
    left = _NATS_PULL

    async def pull() -> None:
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{QUEUE}.{QUEUE}", request, reply=inbox)

    async def got(message: Any) -> None:
        nonlocal left
        notes.take(message.data)
        await message.ack()
        left -= 1
        if left == _NATS_PULL // 2:
            left += _NATS_PULL
            await pull()

    await client.subscribe(inbox, cb=got)
    await pull()
    await client.flush()
    await ready()
    await over.wait()
    await client.flush()
    await client.close()


# A quorum queue of RabbitMQ.


async def _rabbit(settings: dict[str, Any]) -> tuple[Any, Any]:
    import aio_pika  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    connection = await aio_pika.connect(settings["address"])
    return connection, await connection.channel(publisher_confirms=True)


async def _send_rabbit(settings: dict[str, Any], ready: Ready, values: Values) -> int:
    import aio_pika  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    connection, channel = await _rabbit(settings)
    await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
    await ready()
    tasks = []
    async for value in values:
        message = aio_pika.Message(value, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        tasks.append(asyncio.ensure_future(channel.default_exchange.publish(message, QUEUE)))
    found = await _confirmations(tasks)
    await connection.close()
    return found


async def _take_rabbit(settings: dict[str, Any], ready: Ready, notes: Notes, over: asyncio.Event) -> None:
    connection, channel = await _rabbit(settings)
    await channel.set_qos(prefetch_count=_PREFETCH)
    queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})

    async def got(message: Any) -> None:
        notes.take(message.body)
        await message.ack()

    await queue.consume(got)
    await ready()
    await over.wait()
    await connection.close()


# Kafka.


async def _send_kafka(settings: dict[str, Any], ready: Ready, values: Values) -> int:
    import confluent_kafka  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    confirmed = 0

    def stored(error: Any, _: Any) -> None:
        nonlocal confirmed
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        confirmed += 1

    producer = confluent_kafka.Producer({"bootstrap.servers": settings["address"], "acks": "all", "linger.ms": 0})
    await asyncio.to_thread(producer.list_topics, settings["name"], 30.0)
    await ready()
    async for value in values:
        producer.produce(settings["name"], value, partition=0, on_delivery=stored)
        producer.poll(0)
    await asyncio.to_thread(producer.flush, _FLUSH_S)
    return confirmed


async def _take_kafka(settings: dict[str, Any], ready: Ready, notes: Notes, over: asyncio.Event) -> None:
    from confluent_kafka import ShareConsumer  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415

    consumer = ShareConsumer({"bootstrap.servers": settings["address"], "group.id": settings["name"], "log_level": 3})
    consumer.subscribe([settings["name"]])
    await asyncio.to_thread(consumer.poll, 5.0)  # joins the group
    await ready()

    def loop() -> None:
        while not over.is_set():
            for message in consumer.poll(0.1):
                if message.error() is None:
                    notes.take(message.value())

    await asyncio.to_thread(loop)
    await asyncio.to_thread(consumer.close)


_SEND: Final = {
    "sharegroups": _send_ours,
    "valkey-group": _send_valkey,
    "nats": _send_nats,
    "rabbitmq": _send_rabbit,
    "kafka": _send_kafka,
}
_TAKE: Final = {
    "sharegroups": _take_ours,
    "valkey-group": _take_valkey,
    "nats": _take_nats,
    "rabbitmq": _take_rabbit,
    "kafka": _take_kafka,
}


async def _producer(settings: dict[str, Any]) -> None:
    async def ready() -> None:
        say(ready=True)
        await asyncio.to_thread(hear, "go")

    values = paced(settings["count"], settings["per_second"], settings["value_bytes"])
    say(produced=await _SEND[settings["system"]](settings, ready, values))


async def _consumer(settings: dict[str, Any]) -> None:
    notes, over = Notes(), asyncio.Event()

    async def ready() -> None:
        say(ready=True)
        asyncio.get_running_loop().create_task(listen())

    async def listen() -> None:
        await asyncio.to_thread(hear, "stop")
        over.set()

    await _TAKE[settings["system"]](settings, ready, notes, over)
    say(seen=notes.seen)


async def _setup(settings: dict[str, Any]) -> None:
    await setup_nats(settings["address"])
    say(made=True)


if __name__ == "__main__":
    run_loop({"producer": _producer, "consumer": _consumer, "setup": _setup}[sys.argv[1]](json.loads(sys.argv[2])))
