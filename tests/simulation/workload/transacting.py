"""Transactional producers: they commit, abort, die in the middle, exceed their time-out, and fence each other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Self

from kip932.errors import KafkaError
from kip932.rpc.transport import TransportError
from sharegroups.aio import Producer
from sharegroups.errors import IllegalStateError
from tests.simulation.history import Produced, ProduceFailed, ProduceSent
from tests.simulation.transaction_events import TransactionEnded
from tests.simulation.workload.asked import UNKNOWN
from tests.simulation.workload.cast import Cast
from tests.simulation.workload.tap import ProduceTap
from tests.simulation.workload.witness import Witness, error_text

COMMITTED, ABORTED = "committed", "aborted"
_CLOSE_S = 4.0
#: The time-out of a transaction, in ms: short enough to expire within a run.
TIMEOUTS_MS = (1_500, 3_000, 5_000)
#: Errors after which it is unknown whether a transaction was committed.
_IN_DOUBT = frozenset({"REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"})


class GivenUpError(Exception):
    """The application abandons its transaction."""


@dataclass(frozen=True)
class TransactionHabits:
    """How a producer uses transactions. Chances are 0 to 1: `gives_up` and `dawdles` (it exceeds its time-out) per
    transaction; `overlaps`: the next life starts while this one is still working. `records`: the maximum number in one
    transaction."""

    topics: tuple[str, ...]
    records: int
    timeout_ms: int
    gives_up: float
    dawdles: float
    overlaps: float

    @classmethod
    def draw(cls, rng: Random, topics: tuple[str, ...]) -> Self:
        """Draw habits."""
        return cls(
            topics,
            records=rng.choice([2, 6, 12]),
            timeout_ms=rng.choice(TIMEOUTS_MS),
            gives_up=rng.choice([0.1, 0.3]),
            dawdles=rng.choice([0.0, 0.1]),
            overlaps=rng.choice([0.0, 0.5]),
        )


class TransactionalProducer:
    """Runs lives, that is, client processes, under one transactional id, one after another or two at a time."""

    def __init__(self, cast: Cast, rng: Random, name: str, habits: TransactionHabits) -> None:
        self.name = name
        self._cast = cast
        self._world = cast.world
        self._rng = rng
        self._habits = habits
        self._number = 0

    async def work(self) -> None:
        """Run lives until the work is over; each is killed in the middle of something, or overlaps with the next."""
        life = 0
        left: list[asyncio.Task[None]] = []
        while await self._cast.topic(self._habits.topics[0]):
            life += 1
            process = f"{self.name}.{life}"
            with self._world.client(process):
                task = asyncio.create_task(_Life(self, Witness(self._world, process)).live())
            await asyncio.wait([task], timeout=self._rng.uniform(2, 6))
            if not task.done() and self._rng.random() >= self._habits.overlaps:
                await self._world.kill_client(process)
            left.append(task)
        for task in left:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def drain(self) -> None:
        """Do nothing: open transactions end at their time-out."""

    def next_value(self) -> bytes:
        """Return a value that has not been used before."""
        self._number += 1
        return f"{self.name}:{self._number}".encode()


class _Life:
    """One client process."""

    def __init__(self, of: TransactionalProducer, witness: Witness) -> None:
        self._of = of
        self._cast = of._cast
        self._rng = Random(of._rng.getrandbits(64))
        self._habits = of._habits
        self._witness = witness
        self._values: list[bytes] = []

    async def live(self) -> None:
        habits, world = self._habits, self._cast.world
        tap = ProduceTap(world.transport(self._witness.process))
        settings = {
            "bootstrap.servers": world.bootstrap(),
            "transactional.id": self._of.name,
            "transaction.timeout.ms": habits.timeout_ms,
            "delivery.timeout.ms": 4_000,
            "request.timeout.ms": 2_000,
            "default.api.timeout.ms": 4_000,
            "max.block.ms": 2_000,
            "batch.num.records": self._rng.choice([1, 1000]),
        }
        producer = Producer(settings, transport=tap)
        try:
            while self._cast.working and await self._transact(producer, tap):
                await self._cast.pause(self._rng.uniform(0, 0.6))
        finally:
            self._ended(UNKNOWN, tap)  # it was killed in the middle
        with self._witness.trying("Producer.close"):
            await producer.close(_CLOSE_S)

    async def _transact(self, producer: Producer, tap: ProduceTap) -> bool:
        """Run one transaction; return False if another instance has taken over."""
        self._values = []
        outcome = UNKNOWN
        try:
            async with producer.transaction():
                outcome = ABORTED  # the outcome if this block does not complete
                await self._write(producer)
                if self._rng.random() < self._habits.gives_up:
                    raise GivenUpError
                outcome = UNKNOWN
        except GivenUpError:
            self._ended(outcome, tap)
        except (KafkaError, TransportError, IllegalStateError) as error:
            name = error_text(error)
            self._ended(outcome if outcome == ABORTED or name in _IN_DOUBT else ABORTED, tap)
            return name != "PRODUCER_FENCED"
        else:
            self._ended(COMMITTED, tap)
        return True

    async def _write(self, producer: Producer) -> None:
        rng = self._rng
        for _ in range(rng.randint(1, self._habits.records)):
            value, topic = self._of.next_value(), rng.choice(self._habits.topics)
            known = producer.cluster.topics.get(topic)
            partition = None if known is None else rng.randrange(known.partitions)
            self._values.append(value)
            self._witness.saw(ProduceSent, topic, value, None, ())
            await producer.produce(topic, value, None, partition=partition, on_delivery=lambda *_: None)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0, 0.3))
        if rng.random() < self._habits.dawdles:
            await producer.flush(2)
            await asyncio.sleep(self._habits.timeout_ms / 1000 + 1)

    def _ended(self, outcome: str, tap: ProduceTap) -> None:
        """Record the outcome that the application knows, once per transaction."""
        values, self._values = self._values, []
        if not values:
            return
        self._witness.saw(TransactionEnded, self._of.name, tuple(values), outcome)
        for value in values:
            if outcome == COMMITTED and value in tap.places:
                self._witness.saw(Produced, value, tap.places[value])
            else:
                self._witness.saw(ProduceFailed, value, outcome)
