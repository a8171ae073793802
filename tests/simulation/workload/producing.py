"""Idempotent producers that send in bursts, to any partition or to chosen ones, and are sometimes slow."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Self

from kip932.errors import KafkaError
from sharegroups.aio import Producer
from sharegroups.reports import DeliveryReport
from tests.simulation.history import HeadersSeen, Produced, ProduceFailed, ProduceSent
from tests.simulation.workload.asked import UNKNOWN
from tests.simulation.workload.cast import Cast
from tests.simulation.workload.tap import ProduceTap
from tests.simulation.workload.witness import Witness, error_text

_CLOSE_S = 4.0
#: Approximate records per second.
_RATE = 7
#: The number of records in a burst that exceeds every threshold of a share-partition.
BULK = 2_400


@dataclass(frozen=True)
class Habits:
    """How a producer produces. `spread`: the fraction of records without a key; others go to a chosen partition, or by
    key.

    `batch`: the maximum number of records in one batch. `vanishes`: its process sometimes dies.
    """

    topics: tuple[str, ...]
    burst: int
    batch: int
    spread: float
    vanishes: bool

    @classmethod
    def draw(cls, rng: Random, topics: tuple[str, ...]) -> Self:
        """Draw habits."""
        return cls(
            topics,
            burst=rng.choice([5, 12, 30]),
            batch=rng.choice([1, 4, 1000]),
            spread=rng.choice([0.0, 0.5, 1.0]),
            vanishes=rng.random() < 0.2,
        )


class BurstyProducer:
    """One producer after another under one name; every record has a different value."""

    def __init__(self, cast: Cast, rng: Random, name: str, habits: Habits) -> None:
        self.name = name
        self._cast = cast
        self._world = cast.world
        self._rng = rng
        self._labels = cast.world.random(f"{name}/labels")
        self._habits = habits
        self._number = 0
        self._open: dict[bytes, None] = {}

    async def work(self) -> None:
        """Produce in several successive client processes."""
        life = 0
        while await self._cast.topic(self._habits.topics[0]):
            life += 1
            process = f"{self.name}.{life}"
            with self._world.client(process):
                task = asyncio.create_task(self._live(Witness(self._world, process)))
            await asyncio.wait([task], timeout=self._rng.uniform(2, 6) if self._habits.vanishes else None)
            if not task.done():
                await self._world.kill_client(process)
            if task.done() and not task.cancelled():
                task.result()
            for value in self._open:
                Witness(self._world, process).saw(ProduceFailed, value, UNKNOWN)
            self._open.clear()

    async def drain(self) -> None:
        """Do nothing."""

    async def _live(self, witness: Witness) -> None:
        tap = ProduceTap(self._world.transport(witness.process))
        settings = {
            "bootstrap.servers": self._world.bootstrap(),
            "delivery.timeout.ms": 6_000,
            "request.timeout.ms": 2_000,
            "max.block.ms": 2_000,
            "batch.num.records": self._habits.batch,
        }
        producer = Producer(settings, transport=tap)
        while self._cast.working:
            burst = self._rng.randint(1, self._habits.burst)
            for _ in range(burst):
                await self._send(producer, witness, tap)
            slow = 3 if self._rng.random() < 0.1 else 1
            await self._cast.pause(self._rng.uniform(0.5, 1.5) * burst / _RATE * slow)
        with witness.trying("Producer.close"):
            await producer.close(_CLOSE_S)

    async def _send(self, producer: Producer, witness: Witness, tap: ProduceTap) -> None:
        rng = self._rng
        self._number += 1
        value = f"{self.name}:{self._number}".encode()
        topic = rng.choice(self._habits.topics)
        draw, where = rng.random(), rng.random()
        key = None if draw < self._habits.spread else f"k{rng.randrange(5)}"
        known = producer.cluster.topics.get(topic)
        partition = None
        if key is not None and known is not None and draw > (1 + self._habits.spread) / 2:
            partition = int(where * known.partitions)

        def delivered(error: KafkaError | None, report: DeliveryReport) -> None:
            self._open.pop(value, None)
            if error is not None:
                witness.saw(ProduceFailed, value, error_text(error))
                return
            place = tap.places[value]
            if place[1:] != (report.partition(), report.offset()):
                raise AssertionError(f"{value!r} was reported at {report!r} and confirmed at {place}")
            witness.saw(Produced, value, place)

        headers = self._headers()
        witness.saw(ProduceSent, topic, value, None if key is None else key.encode(), headers)
        self._open[value] = None
        with witness.trying("produce") as attempt:
            await producer.produce(topic, value, key, partition=partition, on_delivery=delivered, headers=[*headers])
        if attempt.error and self._open.pop(value, value) is None:
            witness.saw(ProduceFailed, value, attempt.error)

    def _headers(self) -> HeadersSeen:
        """Usually return None; otherwise a few headers, including repeated names and null or empty values."""
        rng = self._labels
        count = rng.choice([0, 0, 0, 1, 3])
        return tuple((rng.choice("hik"), rng.choice([None, b"", b"%d" % self._number])) for _ in range(count))
