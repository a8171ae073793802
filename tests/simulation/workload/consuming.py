"""One member of a share group, from its first poll to its end: its records, its acknowledgements and their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

from kip932.errors import KafkaError
from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from sharegroups.aio import ShareConsumer
from sharegroups.errors import DelayTooLongError
from sharegroups.messages import AcknowledgeType, Message, TopicIdPartition
from tests.simulation.history import Delivered, Place, Settled
from tests.simulation.workload.asked import UNKNOWN, Asked
from tests.simulation.workload.cast import Cast, GroupRules
from tests.simulation.workload.manners import Commit, Ending, Manners, reason
from tests.simulation.workload.witness import Witness, error_text

_POLL_S = 0.8
_CLOSE_S = 3.0
#: The delays that releases request; the last exceeds the maximum delay of many groups.
_DELAYS_S = (None, None, 0, 0.15, 0.6, 0.6, 2.0, 5.0)
_KEEPS = 0.3


def place_of(message: Message) -> Place:
    """Return the place of a message."""
    return Place(message.topic_id().hex(), message.partition(), message.offset())


class Member:
    """A share consumer and the application around it."""

    def __init__(
        self,
        cast: Cast,
        group: GroupRules,
        witness: Witness,
        manners: Manners,
        rng: Random,
        *,
        principal: str | None = None,
    ) -> None:
        self._cast = cast
        self._group = group
        self._witness = witness
        self._manners = manners
        self._rng = rng
        self._asked = Asked()
        self._renewing: dict[Place, int] = {}
        self._in_hand: list[Place] = []
        self._waits = witness.world.random(f"{witness.process}/delays") if group.delays else None
        self._excuses = witness.world.random(f"{witness.process}/reasons")
        settings = {**manners.settings(), "group.id": group.name, "bootstrap.servers": witness.world.bootstrap()}
        self._transport = witness.world.transport(witness.process, principal)
        self._consumer = ShareConsumer(settings, transport=self._transport)
        if manners.has_callback:
            self._consumer.set_acknowledgement_commit_callback(self._acknowledged)

    @property
    def member_id(self) -> str:
        """Return its id in the group."""
        return self._consumer.member_id

    async def live(self) -> None:
        """Consume until its time or the work is over, then leave as its manners define (unless killed before)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._manners.lives_s
        self.join(self._group.topics)
        while self._cast.working and loop.time() < end:
            if self._rng.random() < self._manners.fickle:
                topics = self._group.topics
                self.join([topic for topic in topics if self._rng.random() < 0.7] or topics)
            await self.step()
        await self.leave()

    def join(self, topics: Iterable[str]) -> None:
        """Subscribe."""
        self._consumer.subscribe(topics)

    async def step(self, poll_s: float = _POLL_S) -> int:
        """Poll once and handle the records; return their number."""
        if not self._manners.explicit:
            self._accept_in_hand()
        with self._witness.trying("poll") as attempt:
            messages = await self._consumer.poll(poll_s)
        if attempt.error:
            await asyncio.sleep(0.1)
            return 0
        for message in messages:
            self._given(message)
        if len(messages):
            slow = self._rng.random() < self._manners.dawdle
            took_s = self._group.lock_ms / 1000 * self._rng.uniform(0.8, 1.6) if slow else self._manners.pace_s
            await self._work(messages, took_s if slow else took_s * self._rng.random())
        if self._manners.explicit:
            await self._handle(list(messages))
        if len(messages):
            await self._commit()
        return len(messages)

    async def _work(self, messages: Iterable[Message], seconds: float) -> None:
        """Handle records; in groups that use delays, some members keep their records' locks alive meanwhile (CL-94)."""
        if self._waits is not None and self._manners.explicit and self._waits.random() < _KEEPS:
            async with self._consumer.keep_alive(messages):
                await asyncio.sleep(seconds)
        else:
            await asyncio.sleep(seconds)

    async def leave(self) -> None:
        """Leave as its manners define."""
        if not self._manners.explicit and self._manners.ending is Ending.IN_HAND:
            self._accept_in_hand()
        if self._manners.ending is Ending.PENDING and self._manners.explicit:
            await self._acknowledge_last()
        elif self._manners.ending is Ending.IN_HAND:
            with self._witness.trying("poll"):
                for message in await self._consumer.poll(_POLL_S):
                    self._given(message)
        elif self._manners.ending is Ending.UNSUBSCRIBE:
            self._consumer.unsubscribe()
            await asyncio.sleep(self._rng.uniform(0, 0.3))
        with self._witness.trying("ShareConsumer.close"):
            await self._consumer.close(_CLOSE_S)
        await self._transport.close()
        self.gone()

    def gone(self) -> None:
        """Record the outcomes that it will never learn; also called after a member was killed."""
        for place, kind in self._asked.rest():
            self._witness.saw(Settled, self.member_id, self._group.name, place, kind, UNKNOWN)
        for place in [place for place, owner in self._held().items() if owner == self.member_id]:
            self._cast.settled(self._group.name, place, self.member_id)

    # ---- records

    def _given(self, message: Message) -> None:
        place, count = place_of(message), message.delivery_count()
        self._in_hand.append(place)
        if self._renewing.pop(place, None) == count:
            return  # the same delivery, back from its renewal (CL-27)
        self._cast.holds(self._group.name, place, self.member_id)
        labels = (message.key(), tuple(message.headers()))
        self._witness.saw(Delivered, self.member_id, self._group.name, place, count, message.value(), *labels)

    async def _handle(self, messages: list[Message]) -> None:
        """Acknowledge every record, perhaps in two parts with a commit and a pause in between."""
        rng, manners = self._rng, self._manners
        cut = rng.randrange(len(messages)) if messages and rng.random() < manners.partly else 0
        if cut:
            for message in messages[:cut]:
                self._acknowledge(message, manners.kind(rng, self._poison(message)))
            await self._commit()
            await asyncio.sleep(rng.uniform(0, 0.5))
        renewing = bool(messages) and rng.random() < manners.renew
        for message in messages[cut:]:
            if renewing and rng.random() < 0.5:
                self._renewing[place_of(message)] = message.delivery_count()
                self._acknowledge(message, ACK_RENEW)
            else:
                self._acknowledge(message, manners.kind(rng, self._poison(message)))

    async def _acknowledge_last(self) -> None:
        """Leave acknowledgements for close to send (CL-28)."""
        with self._witness.trying("poll"):
            for message in await self._consumer.poll(_POLL_S):
                self._given(message)
                self._acknowledge(message, self._manners.kind(self._rng, self._poison(message)))

    def _acknowledge(self, message: Message, kind: int) -> None:
        self._asked.note(place_of(message), kind)
        waits = self._waits is not None and kind == ACK_RELEASE
        delay = self._waits.choice(_DELAYS_S) if self._waits is not None and waits else None
        why = reason(self._excuses) if kind in {ACK_RELEASE, ACK_REJECT} else ""
        try:
            self._consumer.acknowledge(message, AcknowledgeType(kind), delay=delay, reason=why)
        except DelayTooLongError as error:  # the record is unchanged (CL-113)
            self._consumer.acknowledge(message, AcknowledgeType(kind), delay=error.maximum, reason=why)

    def _accept_in_hand(self) -> None:
        """Note that the next poll or commit accepts the records in hand (CL-21, CL-24)."""
        for place in self._in_hand:
            self._asked.note(place, ACK_ACCEPT)
        self._in_hand.clear()

    async def _commit(self) -> None:
        if self._manners.commit is Commit.POLL:
            return
        if not self._manners.explicit:
            self._accept_in_hand()
        if self._manners.commit is Commit.ASYNC:
            self._consumer.commit_async()
            return
        with self._witness.trying("commit_sync"):
            results = await self._consumer.commit_sync(self._rng.choice([0.3, 1.0, 4.0]))
            if not self._manners.has_callback:
                for partition, error in results.items():
                    self._settled(partition, self._asked.places(partition.topic_id.hex(), partition.partition), error)

    def _poison(self, message: Message) -> bool:
        return self._manners.fails and self._group.poisonous(message.value())

    def _acknowledged(self, offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        for (_, number, topic_id), found in offsets.items():
            places = [Place(topic_id.hex(), number, offset) for offset in sorted(found)]
            self._settled(TopicIdPartition("", number, topic_id), places, error)

    def _settled(self, partition: TopicIdPartition, places: Iterable[Place], error: KafkaError | None) -> None:
        text = error_text(error) if error is not None else ""
        for place in places:
            for kind, said in self._asked.answered(place, text):
                self._witness.saw(Settled, self.member_id, self._group.name, place, kind, said)
                if kind != ACK_RENEW:
                    self._cast.settled(self._group.name, place, self.member_id)

    def _held(self) -> dict[Place, str]:
        return self._cast.holding.get(self._group.name, {})
