"""A member of a share group that sends its own messages, without the client library, and follows the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.errors import error_class
from kip932.failures import REASON_BYTES_MAX
from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.simulation.final import labels
from tests.simulation.history import ClientFailed, Delivered, Place, Settled
from tests.simulation.workload.asked import UNKNOWN
from tests.simulation.workload.by_hand import Ack, HandSession, Layout, Part, heartbeat, layout
from tests.simulation.workload.cast import Cast, GroupRules
from tests.simulation.workload.manners import reason
from tests.simulation.workload.witness import Witness

_SETTLED_KEPT = 10
_DELAYS_MS = (-1, 0, 100, 700, 1_500)


class HandMember:
    """One client process. `held`: the records that it received and has not settled; `settled`: those it settled
    last."""

    def __init__(self, cast: Cast, rules: GroupRules, witness: Witness, rng: Random) -> None:
        self.cast = cast
        self.rules = rules
        self.rng = rng
        self.member_id = f"{witness.process}-{rng.randrange(1 << 30)}"
        self.epoch = 0
        self.layout = Layout((), {})
        self.sessions: list[HandSession] = []
        self.settled: list[tuple[Part, Ack]] = []
        self.held: dict[Part, dict[int, None]] = {}
        self._witness = witness
        self._transport = witness.world.transport(witness.process)
        self._small = witness.world.random(f"{witness.process}/bytes")
        self._waits = witness.world.random(f"{witness.process}/delays") if rules.delays else None
        self._excuses = witness.world.random(f"{witness.process}/reasons")

    # ---- the group

    async def join(self) -> None:
        """Join, send a heartbeat, or join again, whichever is due."""
        await self.beat(self.epoch, self.rules.topics if self.epoch == 0 else None)

    async def leave(self) -> None:
        """Leave the group; its sessions are not changed."""
        await self.beat(-1, None)

    async def beat(self, epoch: int, topics: tuple[str, ...] | None, member_id: str | None = None) -> None:
        """Send a heartbeat with any epoch, for this member or on behalf of another."""
        mine = member_id is None
        given = self.member_id if member_id is None else member_id
        answer = await heartbeat(self._transport, self._bootstrap(), self.rules.name, given, epoch, topics=topics)
        self.failed("ShareGroupHeartbeat", answer.error_code)
        if mine:
            self.epoch = max(answer.member_epoch, 0) if answer.error_code == 0 else 0

    def gone(self) -> None:
        """Note that its process has ended."""
        for part, offsets in self.held.items():
            for offset in offsets:
                self.cast.settled(self.rules.name, place_of(part, offset), self.member_id)

    # ---- sessions

    async def session(self) -> HandSession | None:
        """Return one of its sessions; if there is none, open one with a leader of its topics."""
        if not self.layout.leaders or self.rng.random() < 0.1:
            self.layout = await layout(self._transport, self._bootstrap())
        if not self.sessions:
            addresses = list(dict.fromkeys(self.layout.leaders[part] for part in self._parts()))
            if not addresses:
                self.layout = Layout((), {})
                return None
            await self.open(self.rng.choice(addresses), self.member_id)
        return self.rng.choice(self.sessions) if self.sessions else None

    async def open(self, address: str, member_id: str) -> None:
        """Open a session with all partitions whose leader is there."""
        session = self.new_session(address, member_id)
        if await self.fetch(session, self.parts_at(address)):
            self.sessions = [*self.sessions[-2:], session]

    def new_session(self, address: str, member_id: str) -> HandSession:
        """Return a session that is not opened yet."""
        session = HandSession(self._transport, address, self.rules.name, member_id, self.rng.random() < 0.7)
        if self._waits is not None:
            session.delays = partial(_delays, self._waits)
        session.reasons = partial(_reason, self._excuses)
        return session

    async def fetch(
        self, session: HandSession, parts: list[Part], acks: Mapping[Part, list[Ack]] | None = None
    ) -> bool:
        """Send a correct fetch; return True if the response has no error. Otherwise drop the session."""
        response = await session.fetch(parts, acks, records=self.rng.choice([1, 5, 50]), max_bytes=self._bytes())
        if response.error_code:
            self.failed("ShareFetch", response.error_code)
            await self.drop(session)
            return False
        self.given(session, response)
        self.answered(session, acks or {}, response)
        return True

    def _bytes(self) -> int:
        return self._small.choice([1, 60, 400]) if "bytes" in self._witness.world.shape.pressures else 1 << 20

    async def acknowledge(self, session: HandSession, acks: Mapping[Part, list[Ack]]) -> bool:
        """Acknowledge under the correct epoch; return True if the response has no top-level error."""
        response = await session.acknowledge(acks)
        self.failed("ShareAcknowledge", response.error_code)
        self.answered(session, acks, response)
        return not response.error_code

    async def drop(self, session: HandSession) -> None:
        """Break a session off."""
        self.sessions = [each for each in self.sessions if each is not session]
        await session.drop()

    def parts_at(self, address: str) -> list[Part]:
        """Return the partitions of its topics whose leader is there."""
        return [part for part in self._parts() if self.layout.leaders[part] == address]

    def some_held(self, session: HandSession) -> dict[Part, list[Ack]]:
        """Return some range that it holds there, to be acknowledged with one type."""
        parts = [part for part in self.parts_at(session.address) if self.held.get(part)]
        if not parts:
            return {}
        part = self.rng.choice(parts)
        first = last = self.rng.choice(sorted(self.held[part]))
        while last + 1 in self.held[part] and self.rng.random() < 0.7:
            last += 1
        kind = self.rng.choice([ACK_ACCEPT, ACK_ACCEPT, ACK_RELEASE, ACK_REJECT])
        return {part: [(first, last, (kind,))]}

    def _parts(self) -> list[Part]:
        topics = self._witness.world.topics
        ids = [bytes.fromhex(topics[name]) for name in self.rules.topics if name in topics]
        return [part for part in self.layout.leaders if part[0] in ids]

    def _bootstrap(self) -> str:
        return self.rng.choice(self._witness.world.bootstrap().split(","))

    # ---- bookkeeping

    def given(self, session: HandSession, response: ShareFetchResponse) -> None:
        """Note the acquired records that came with a response."""
        for topic in response.responses:
            for part in topic.partitions:
                counts = {
                    offset: acquired.delivery_count
                    for acquired in part.acquired_records
                    for offset in range(acquired.first_offset, acquired.last_offset + 1)
                }
                for fetched in part.records if counts else ():
                    for offset, record in enumerate(RecordBatch.FromString(fetched.batch).records, fetched.base_offset):
                        if offset in counts:
                            key = (topic.topic_id, part.partition_index)
                            self._given(session, key, offset, counts[offset], record)

    def _given(self, session: HandSession, part: Part, offset: int, count: int, record: Record) -> None:
        place = place_of(part, offset)
        self.held.setdefault(part, {})[offset] = None
        self.cast.holds(self.rules.name, place, session.member_id)
        self._witness.saw(Delivered, session.member_id, self.rules.name, place, count, record.value, *labels(record))

    def answered(
        self,
        session: HandSession,
        acks: Mapping[Part, list[Ack]],
        response: ShareFetchResponse | ShareAcknowledgeResponse,
    ) -> None:
        """Note the outcome of acknowledgements."""
        codes: dict[Part, int] = {}
        for topic in response.responses:
            for part in topic.partitions:
                found = part.acknowledge_error_code if isinstance(part, _FetchResult) else part.error_code
                codes[topic.topic_id, part.partition_index] = found
        for key, batches in acks.items():
            code = codes.get(key)
            error = UNKNOWN if code is None else "" if code == 0 else error_class(code).name
            for batch in batches:
                self._answered(session, key, batch, error)

    def _answered(self, session: HandSession, part: Part, batch: Ack, error: str) -> None:
        first, last, types = batch
        if len(types) != 1 or first < 0:
            return  # the batch is not an acknowledgement
        done = error == "" and types[0] != ACK_RENEW
        if done:
            self.settled = [*self.settled[1 - _SETTLED_KEPT :], (part, batch)]
        for offset in range(first, last + 1):
            place = place_of(part, offset)
            self._witness.saw(Settled, session.member_id, self.rules.name, place, types[0], error)
            if done:
                self.held.get(part, {}).pop(offset, None)
                self.cast.settled(self.rules.name, place, session.member_id)

    def failed(self, call: str, code: int) -> None:
        """Note the top-level error of a response."""
        if code:
            self._witness.saw(ClientFailed, call, error_class(code).name)


_FetchResult = ShareFetchResponse.PartitionResult


def _delays(rng: Random, ack: Ack) -> Sequence[int]:
    """Draw delays for a batch: none, one for all, or one each; sometimes invalid ones (PL-930)."""
    first, last, types = ack
    if rng.random() < 0.03:
        return rng.choice([(60_000_000,), (-2,), (5, 5, 5, 5, 5, 5, 5), (700,)])
    if types != (ACK_RELEASE,) or rng.random() < 0.3:
        return ()
    if rng.random() < 0.6:
        return (rng.choice(_DELAYS_MS),)
    return rng.choices(_DELAYS_MS, k=max(0, last - first + 1) if last - first < 100 else 1)


def _reason(rng: Random, ack: Ack) -> str:
    """Draw a batch's reason; sometimes one that is too long, or that its type does not have (PL-942)."""
    if rng.random() < 0.02:
        return "x" * (REASON_BYTES_MAX + 1)
    return reason(rng) if ack[2] in {(ACK_RELEASE,), (ACK_REJECT,)} or rng.random() < 0.01 else ""


def place_of(part: Part, offset: int) -> Place:
    """Return a place in the form used in the history."""
    return Place(part[0].hex(), part[1], offset)
