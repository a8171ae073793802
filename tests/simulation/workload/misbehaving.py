"""Members that break the rules: wrong epochs; acknowledgements that are repeated, late, out of range or for other
members' records; requests to nodes that do not lead; sessions that are abandoned or opened again. They also accept
records as other members do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.simulation.workload.by_hand import Ack, HandSession, Part
from tests.simulation.workload.by_hand_member import HandMember
from tests.simulation.workload.cast import Cast, GroupRules
from tests.simulation.workload.witness import Witness

_ROUNDS: Final = (6, 25)
_UNKNOWN_TOPIC: Final = bytes(range(16))
#: Invalid batches (PL-401, PL-321).
_MALFORMED: Final[tuple[list[Ack], ...]] = (
    [(3, 1, (ACK_ACCEPT,))],
    [(0, 2, (ACK_ACCEPT, ACK_REJECT))],
    [(0, 2, (ACK_ACCEPT,)), (2, 4, (ACK_ACCEPT,))],
    [(5, 6, (ACK_ACCEPT,)), (1, 2, (ACK_ACCEPT,))],
    [(0, 0, ())],
    [(0, 0, (7,))],
    [(-2, 1, (ACK_GAP,))],
)


class Misbehaving:
    """Runs one such client after another; each joins the group and does a dozen forbidden things."""

    def __init__(self, cast: Cast, rng: Random, name: str, rules: GroupRules) -> None:
        self.name = name
        self._cast = cast
        self._rng = rng
        self._rules = rules

    async def work(self) -> None:
        """Misbehave until the work is over."""
        world, life = self._cast.world, 0
        while await self._cast.topic(self._rules.topics[0]):
            life += 1
            witness = Witness(world, f"{self.name}.{life}")
            with world.client(witness.process):
                member = HandMember(self._cast, self._rules, witness, self._rng)
                task = asyncio.create_task(self._live(member, witness))
            await asyncio.wait([task])
            await world.kill_client(witness.process)
            member.gone()
            task.result()
            await self._cast.pause(self._rng.uniform(0.1, 1.5))

    async def drain(self) -> None:
        """Do nothing: their locks and memberships expire."""

    async def _live(self, member: HandMember, witness: Witness) -> None:
        """Join, do some forbidden things, and end by leaving or silently."""
        tricks = Tricks(member)
        with witness.trying("by hand"):
            await member.join()
        for _ in range(self._rng.randint(*_ROUNDS)):
            if not self._cast.working:
                break
            with witness.trying("by hand"):
                session = await member.session()
                if session is not None:
                    await self._rng.choice(tricks.all)(session)
            await asyncio.sleep(self._rng.uniform(0.02, 0.4))
        if self._rng.random() < 0.6 or not self._cast.working:
            with witness.trying("by hand"):
                await member.leave()


class Tricks:
    """The possible next actions of such a member, including correct ones; `all` contains likelier ones more than
    once."""

    def __init__(self, member: HandMember) -> None:
        self._member = member
        self._rng = member.rng
        self.all: list[Callable[[HandSession], Awaitable[None]]] = [
            self.take, self.take, self.take, self.settle, self.settle, self.settle_on_fetch, self.renew, self.again,
            self.stale_epoch, self.stale_epoch, self.replay, self.steal, self.steal, self.out_of_window, self.malformed,
            self.elsewhere, self.strangers, self.forget, self.reopen, self.close_and_go_on, self.go, self.twin,
            self.beat, self.beat_wrongly,
        ]  # fmt: skip
        if member.rules.delays:
            self.all += [self.settle, self.renew_on_fetch, self.renew_and_settle]

    # ---- correct actions

    async def take(self, session: HandSession) -> None:
        """Fetch."""
        await self._member.fetch(session, [])

    async def settle(self, session: HandSession) -> None:
        """Acknowledge some of the records that it holds, in order."""
        if acks := self._member.some_held(session):
            await self._member.acknowledge(session, acks)

    async def settle_on_fetch(self, session: HandSession) -> None:
        """Do the same with a fetch."""
        await self._member.fetch(session, [], self._member.some_held(session))

    async def renew(self, session: HandSession) -> None:
        """Renew locks."""
        if acks := self._renewals(session):
            await self._member.acknowledge(session, acks)

    async def renew_on_fetch(self, session: HandSession) -> None:
        """Do the same with a fetch, which then gets no records (PL-322)."""
        await self._member.fetch(session, [], self._renewals(session))

    async def renew_and_settle(self, session: HandSession) -> None:
        """Renew some records and settle others, in one request."""
        await self._member.acknowledge(session, {**self._renewals(session), **self._member.some_held(session)})

    def _renewals(self, session: HandSession) -> dict[Part, list[Ack]]:
        held = self._member.some_held(session)
        return {part: [(first, last, (ACK_RENEW,))] for part, ((first, last, _),) in held.items()}

    async def beat(self, _session: HandSession) -> None:
        """Send a correct heartbeat, or a rejoin."""
        await self._member.join()

    # ---- forbidden actions

    async def again(self, session: HandSession) -> None:
        """Acknowledge settled records again, with the same types or others."""
        if self._member.settled:
            part, (first, last, types) = self._rng.choice(self._member.settled)
            kind = self._rng.choice([types, (ACK_RELEASE,), (ACK_ACCEPT,)])
            await self._member.acknowledge(session, {part: [(first, last, kind)]})

    async def stale_epoch(self, session: HandSession) -> None:
        """Use an epoch that is not the next one; it must have no effect (PL-502)."""
        wrong = session.epoch + self._rng.choice([-2, -1, 1, 2, 1000])
        right = session.epoch, session.session_id
        if wrong > 0:
            await self._under(session, self._member.some_held(session), wrong)
            session.epoch, session.session_id = right

    async def replay(self, session: HandSession) -> None:
        """Send the same acknowledgement twice under one epoch, as after a lost response (INV-14)."""
        acks = self._member.some_held(session)
        epoch = session.epoch
        if acks and await self._member.acknowledge(session, acks):
            await self._under(session, acks, epoch)
            session.epoch = epoch + 1

    async def steal(self, session: HandSession) -> None:
        """Acknowledge records that other members hold (INV-6)."""
        member = self._member
        parts = dict.fromkeys(member.parts_at(session.address))
        held = [
            ((bytes.fromhex(place.topic_id), place.partition), place.offset)
            for place, owner in member.cast.holding.get(member.rules.name, {}).items()
            if owner != session.member_id
        ]
        held = [each for each in held if each[0] in parts]
        if held:
            part, offset = self._rng.choice(held)
            kind = self._rng.choice([ACK_ACCEPT, ACK_RELEASE, ACK_REJECT])
            await member.acknowledge(session, {part: [(offset, offset, (kind,))]})

    async def out_of_window(self, session: HandSession) -> None:
        """Acknowledge offsets that were finished long ago or do not exist yet."""
        if parts := self._member.parts_at(session.address):
            first = self._rng.choice([0, 500, 1 << 40])
            await self._member.acknowledge(session, {self._rng.choice(parts): [(first, first + 3, (ACK_ACCEPT,))]})

    async def malformed(self, session: HandSession) -> None:
        """Acknowledge with invalid batches together with a valid one, which must succeed (PL-415)."""
        if parts := self._member.parts_at(session.address):
            acks = dict(self._member.some_held(session))
            acks[self._rng.choice(parts)] = self._rng.choice(_MALFORMED)
            await self._member.acknowledge(session, acks)

    async def elsewhere(self, session: HandSession) -> None:
        """Open a session with a node that does not lead the requested partitions."""
        member = self._member
        addresses = [address for address in member.layout.nodes if address != session.address]
        if addresses and (parts := member.parts_at(session.address)):
            stray = member.new_session(self._rng.choice(addresses), session.member_id)
            response = await stray.fetch(parts, wait_ms=0)
            member.failed("fetch elsewhere", response.error_code)
            for topic in response.responses:
                for part in topic.partitions:
                    member.failed("fetch elsewhere", part.error_code)
            member.given(stray, response)
            await stray.drop()

    async def strangers(self, session: HandSession) -> None:
        """Add topics and partitions that do not exist to the session, and remove them again."""
        known = self._member.parts_at(session.address)[:1]
        parts = [(_UNKNOWN_TOPIC, 0), *((topic_id, 77) for topic_id, _ in known)]
        if await self._member.fetch(session, parts):
            self._member.given(session, await session.fetch([], forget=parts, wait_ms=0))

    async def forget(self, session: HandSession) -> None:
        """Remove a partition from the session while its records are held, and add it again (PL-508)."""
        if parts := self._member.parts_at(session.address):
            part = self._rng.choice(parts)
            self._member.given(session, await session.fetch([], forget=[part], wait_ms=0))
            await self._member.fetch(session, [part])

    async def reopen(self, session: HandSession) -> None:
        """Open a new session with epoch 0 while records are held, perhaps including acknowledgements, which is not
        allowed."""
        acks = self._member.some_held(session) if self._rng.random() < 0.5 else {}
        response = await session.fetch(self._member.parts_at(session.address), acks, epoch=0)
        self._member.failed("epoch 0 again", response.error_code)
        self._member.given(session, response)

    async def close_and_go_on(self, session: HandSession) -> None:
        """Close the session, then continue to use it."""
        epoch = session.epoch
        acks = self._member.some_held(session)
        response = await session.acknowledge(acks, epoch=-1)
        self._member.failed("close", response.error_code)
        self._member.answered(session, acks, response)
        late = await session.fetch([], epoch=epoch + 1, wait_ms=0)
        self._member.failed("fetch after close", late.error_code)
        await self._member.drop(session)

    async def go(self, session: HandSession) -> None:
        """Disconnect without a message while holding records."""
        await self._member.drop(session)

    async def twin(self, session: HandSession) -> None:
        """Open another session with the same leader, as the same member or a different one."""
        member_id = self._member.member_id
        await self._member.open(session.address, member_id if self._rng.random() < 0.5 else f"{member_id}x")

    async def beat_wrongly(self, _session: HandSession) -> None:
        """Send past, future or invalid member epochs, for this member or an unknown one (GC-18, GC-22, GC-23)."""
        epoch = self._rng.choice([self._member.epoch - 1, self._member.epoch + 3, -2, 1 << 30])
        await self._member.beat(epoch, None, self._rng.choice([self._member.member_id, "no member", ""]))

    async def _under(self, session: HandSession, acks: Mapping[Part, list[Ack]], epoch: int) -> None:
        """Fetch or acknowledge under a wrong epoch."""
        if self._rng.random() < 0.5:
            fetched: ShareFetchResponse = await session.fetch([], acks, epoch=epoch)
            self._member.failed("wrong epoch", fetched.error_code)
        else:
            acknowledged: ShareAcknowledgeResponse = await session.acknowledge(acks, epoch=epoch)
            self._member.failed("wrong epoch", acknowledged.error_code)
