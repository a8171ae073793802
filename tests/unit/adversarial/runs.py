"""One random run: producers, consumers that accept, release, reject and dawdle, and faults drawn from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from kip932.errors import KafkaError
from kip932.rpc.transport import TransportStatus
from shard_runtime.memory import ConnectionLostError, FaultPoint, Stage
from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer, ShareConsumer
from sharegroups.messages import AcknowledgeType
from tests.unit.adversarial.history import Books, StateBooks, faults_of
from tests.unit.adversarial.world import World

PARTITIONS = 3
LIMIT = 10
#: Locks run out, and owners confirm tails made good, before everything is killed.
REST_S = 8


class Run:
    """A seed's run; `faults` is what went wrong, in words."""

    def __init__(self, seed: int, *, replicas: int = 0, trouble_s: float = 90.0, flags: dict[str, str] | None = None):
        self.seed = seed
        self.rng = Random(seed * 7919)
        self.world = World(seed, replicas, flags)
        self.books = Books()
        self.states = StateBooks()
        self.trouble_s = trouble_s
        self.log: list[str] = []
        self.replayed = self.partial = 0
        self._calm = False
        self._members: list[ShareConsumer] = []
        self._produced = 0

    def say(self, what: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():8.3f} {what}")

    async def run(self) -> list[str]:
        world = self.world
        await world.open()
        await world.start("a")
        await world.start("b")
        admin = Admin({"bootstrap.servers": world.bootstrap()}, transport=world.transport("admin"))
        await admin.create_topics([NewTopic("jobs", PARTITIONS)])
        bootstrap = world.bootstrap()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._produce(bootstrap, n)) for n in range(2)]
            tasks += [group.create_task(self._consume(bootstrap, n)) for n in range(3)]
            group.create_task(self._watch_state())
            await self._trouble()
            world.calm()
            self._calm = True
            self.say("calm")
            for name in {"a", "b"} - world.nodes.keys():
                await world.start(name)
        faults = await self._restarted()
        await self._drain()
        await admin.close()
        faults += faults_of(self.books, world.watch, LIMIT) + self.states.found
        faults += [f"{node.name}: {fatal}" for node in world.nodes.values() for fatal in node.fatal]
        faults += await self._at_rest() + await self._restarted()
        await world.close()
        return faults

    async def _watch_state(self) -> None:
        while not self._calm:
            self.states.sample(asyncio.get_running_loop().time(), self.world.starts())
            await asyncio.sleep(0.25)

    async def _at_rest(self) -> list[str]:
        """When all is drained SPSO and log end meet (INV-9, INV-17)."""
        await self.world.settled()
        states, ends = self.world.states(), self.world.log_ends()
        if {key.topic_partition for key in states} != ends.keys():
            return [f"INV-9: there are states of {sorted(states)}, but logs of {sorted(ends)}"]
        return [
            f"INV-9: {key.text} rests at {state}, its log ends at {ends[key.topic_partition]}"
            for key, state in states.items()
            if state.start_offset != ends[key.topic_partition] or state.batches or state.delivery_complete_count
        ]

    async def _restarted(self) -> list[str]:
        """All processes end as by SIGKILL and start again: state and logs are what they were (INV-11, INV-13)."""
        world = self.world
        await world.settled()
        await asyncio.sleep(REST_S)
        states, ends = world.states(), world.log_ends()
        for name in ("a", "b"):
            await world.kill(name)
        for name in ("a", "b"):
            await world.start(name)
        await world.settled()
        found = []
        now = world.states()
        for key, state in states.items():
            if key not in now or shown(state) != shown(now[key]):
                found.append(f"INV-13: {key.text} was {state} and is replayed as {now.get(key)}")
        if world.log_ends() != ends:
            found.append(f"CM-40: logs ended at {ends} and end at {world.log_ends()}")
        self.replayed += len(states)
        self.partial += sum(bool(state.batches) for state in states.values())
        return found

    # ---- clients

    async def _produce(self, bootstrap: str, number: int) -> None:
        rng = Random(self.seed * 31 + number)
        producer = Producer(
            {"bootstrap.servers": bootstrap, "delivery.timeout.ms": 20_000, "request.timeout.ms": 5_000},
            transport=self.world.transport(f"producer{number}"),
        )
        waiting: set[asyncio.Task[None]] = set()
        while not self._calm:
            for _ in range(rng.randrange(1, 6)):
                self._produced += 1
                value = f"{number}:{self._produced}".encode()
                task = asyncio.ensure_future(self._send(producer, value))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            await asyncio.sleep(rng.random() * 2)
        await asyncio.gather(*waiting)
        await producer.close()

    async def _send(self, producer: Producer, value: bytes) -> None:
        self.books.produced.add(value)
        try:
            report = await producer.send("jobs", value)
        except (KafkaError, Exception) as error:
            self.say(f"produce {value!r}: {type(error).__name__} {error}")
            return
        self.books.stored[value] = (report.partition(), report.offset())

    def _consumer(self, bootstrap: str, name: str) -> ShareConsumer:
        return ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "share.acknowledgement.mode": "explicit",
                "request.timeout.ms": 5_000,
                "max.poll.records": 20,
            },
            transport=self.world.transport(name),
        )

    async def _consume(self, bootstrap: str, number: int) -> None:
        rng = Random(self.seed * 37 + number)
        life = 0
        while not self._calm:
            life += 1
            consumer = self._consumer(bootstrap, f"consumer{number}")
            consumer.subscribe(["jobs"])
            end = asyncio.get_running_loop().time() + rng.uniform(10, 120)
            while not self._calm and asyncio.get_running_loop().time() < end:
                await self._step(consumer, rng, 0.75)
            try:
                await consumer.close(5.0)
            except KafkaError as error:
                self.say(f"close {consumer.member_id}: {error}")

    async def _step(self, consumer: ShareConsumer, rng: Random, accept: float) -> int:
        loop = asyncio.get_running_loop()
        books = self.books
        try:
            messages = await consumer.poll(1.0)
        except (KafkaError, Exception) as error:
            self.say(f"poll: {type(error).__name__} {error}")
            await asyncio.sleep(0.5)
            return 0
        settled: dict[int, list[int]] = {}
        for message in messages:
            count = message.delivery_count()
            place = (message.partition(), message.offset())
            books.delivered.append((loop.time(), consumer.member_id, *place, count, message.value()))
        if len(messages) and rng.random() < 0.2:
            await asyncio.sleep(rng.random() * 8)
        for message in messages:
            place = (message.partition(), message.offset())
            draw = rng.random()
            kind = (
                AcknowledgeType.ACCEPT if draw < accept
                else AcknowledgeType.RELEASE if draw < accept + (1 - accept) * 0.7
                else AcknowledgeType.REJECT
            )  # fmt: skip
            try:
                consumer.acknowledge(message, kind)
            except (KafkaError, Exception) as error:
                self.say(f"acknowledge {place}: {type(error).__name__} {error}")
                continue
            if kind is not AcknowledgeType.RELEASE:
                settled.setdefault(place[0], []).append(place[1])
        if not len(messages):
            return 0
        try:
            results = await consumer.commit_sync(rng.choice([0.5, 3.0, 10.0]))
        except (KafkaError, Exception) as error:
            self.say(f"commit: {type(error).__name__} {error}")
            results = {}
        answered = {key.partition: error for key, error in results.items()}
        for partition, offsets in settled.items():
            sure = partition in answered and answered[partition] is None
            for offset in offsets:
                if sure:
                    books.confirmed.setdefault((partition, offset), loop.time())
                else:
                    books.unsure.add((partition, offset))
        return len(messages)

    async def _drain(self) -> None:
        """A fresh member accepts all that is left."""
        consumer = self._consumer(self.world.bootstrap(), "drain")
        consumer.subscribe(["jobs"])
        rng = Random(1)
        quiet = 0
        for _ in range(600):
            quiet = 0 if await self._step(consumer, rng, 1.0) else quiet + 1
            if quiet > 25:
                break
        await consumer.close(5.0)

    # ---- faults

    async def _trouble(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.trouble_s
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._kill, self._kill, self._stop, self._cut_store, self._lose_replies, self._hold_replies,
            self._break_streams, self._restart_store, self._lossy_network, self._cut_network, self._pause_store,
            self._refuse,
        ]  # fmt: skip
        if self.world.replicas:
            kinds += [self._fail_over, self._fail_over, self._split]
        await asyncio.sleep(self.rng.uniform(1, 6))
        while loop.time() < end:
            await self.rng.choice(kinds)()
            await asyncio.sleep(self.rng.uniform(0, 8))

    def _some(self) -> str:
        return self.rng.choice(sorted(self.world.nodes))

    async def _kill(self) -> None:
        if len(self.world.nodes) < 2:
            return
        name = self._some()
        knows = self.rng.random() < 0.5
        self.say(f"kill {name}, restart knowing the dead: {knows}")
        await self.world.kill(name)
        await asyncio.sleep(self.rng.uniform(0, 6))
        await self.world.start(name, knows_dead=knows)

    async def _stop(self) -> None:
        if len(self.world.nodes) < 2:
            return
        name = self._some()
        self.say(f"stop {name}")
        await self.world.stop(name)
        self.say(f"stopped {name}")
        await asyncio.sleep(self.rng.uniform(0, 4))
        await self.world.start(name)

    async def _cut_store(self) -> None:
        name = self._some()
        span = self.rng.uniform(0.1, 7)
        self.say(f"{name} loses the store for {span:.1f} s")
        self.world.store.cut_off(name)
        await asyncio.sleep(span)
        self.world.store._cut_off.discard(name)

    async def _pause_store(self) -> None:
        span = self.rng.uniform(0.1, 7)
        self.say(f"no store for {span:.1f} s")
        self.world.store.reachable = False
        self.world.store.cut_all()
        await asyncio.sleep(span)
        self.world.store.reachable = True

    async def _lose_replies(self) -> None:
        name, rate, span = self._some(), self.rng.choice([0.05, 0.3]), self.rng.uniform(1, 6)
        self.say(f"{name} loses replies ({rate}) for {span:.1f} s")
        rng = Random(self.rng.random())

        async def hook(point: FaultPoint) -> None:
            if point.client == name and point.stage is not Stage.COMMAND and rng.random() < rate:
                raise ConnectionLostError("the reply was lost")

        self.world.store.hook = hook
        await asyncio.sleep(span)
        self.world.store.hook = None

    async def _hold_replies(self) -> None:
        name, span = self._some(), self.rng.uniform(1, 6)
        hold = self.rng.choice([0.2, 1.0, 4.0])
        stage = self.rng.choice([Stage.SEND, Stage.REPLY])
        self.say(f"{name}: {stage} held for up to {hold} s during {span:.1f} s")
        rng = Random(self.rng.random())

        async def hook(point: FaultPoint) -> None:
            if point.client == name and point.stage is stage and rng.random() < 0.5:
                await asyncio.sleep(rng.random() * hold)

        self.world.store.hook = hook
        await asyncio.sleep(span)
        self.world.store.hook = None

    async def _break_streams(self) -> None:
        self.say("streams break")
        for stream in sorted(self.world.streams, key=id):
            if self.rng.random() < 0.7:
                stream.abort(TransportStatus.UNAVAILABLE, "broken")

    async def _restart_store(self) -> None:
        self.say("the store restarts")
        self.world.store.restart()

    async def _fail_over(self) -> None:
        keep = self.rng.random() < 0.3
        self.say(f"fail-over, connections kept: {keep}")
        followers = self.world.store.master.followers
        followers[0].paused = True
        await asyncio.sleep(self.rng.choice([0, 0.3, 2]))
        if len(followers) > 1 or self.rng.random() < 0.5:
            self.world.store.fail_over(0, keep_connections=keep)
        for follower in self.world.store.master.followers:
            follower.paused = False
            follower.catch_up()

    async def _refuse(self) -> None:
        """The store refuses every write for a while, or lets one in between."""
        code, span = self.rng.choice(["OOM", "NOREPLICAS", "MISCONF"]), self.rng.uniform(0.1, 5)
        self.say(f"the store answers {code} for {span:.1f} s")
        for _ in range(self.rng.choice([1, 4])):
            self.world.store.master.refuse = code
            await asyncio.sleep(span / 4)
            self.world.store.master.refuse = None
            await asyncio.sleep(self.rng.choice([0, 0.01, 0.2]))

    async def _split(self) -> None:
        """A fail-over while one process still reaches the former master."""
        name, span = self._some(), self.rng.uniform(0.5, 6)
        self.say(f"{name} stays with the former master for {span:.1f} s")
        self.world.store.split(name)
        await asyncio.sleep(span)
        self.world.store.heal()

    async def _lossy_network(self) -> None:
        span = self.rng.uniform(1, 6)
        self.world.lose, self.world.slow_ms = self.rng.choice([0.1, 0.4]), self.rng.choice([2, 300, 2000])
        self.say(f"network loses {self.world.lose}, takes {self.world.slow_ms} ms, for {span:.1f} s")
        await asyncio.sleep(span)
        self.world.lose, self.world.slow_ms = 0.0, 2

    async def _cut_network(self) -> None:
        name, span = self._some(), self.rng.uniform(1, 8)
        self.say(f"{name} is unreachable for {span:.1f} s")
        self.world.cut.add(name)
        for stream in sorted(self.world.streams, key=id):
            stream.abort(TransportStatus.UNAVAILABLE, "cut")
        await asyncio.sleep(span)
        self.world.cut.discard(name)


def shown(state: Any) -> tuple[object, ...]:
    """What of a state a restart must not change, fences included (SC-55)."""
    return (state.state_epoch, state.start_offset, state.delivery_complete_count, state.batches, state.fence)


def trial(seed: int, **options: Any) -> tuple[list[str], Run]:
    """Run one seed on a virtual loop."""
    import random  # noqa: PLC0415

    from tests.unit.virtual_time import run  # noqa: PLC0415

    random.seed(seed)
    holder: list[Run] = []

    async def main() -> list[str]:
        holder.append(Run(seed, **options))
        return await asyncio.wait_for(holder[0].run(), 4_000)

    return run(main()), holder[0]
