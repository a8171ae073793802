"""A fake cluster that responds late, refuses requests, loses responses and throttles, at random.

It measures time as servers do: a lock from the arrival of its request, a member's session from the last accepted
heartbeat, a throttle time from the response. Tests of the client's clocks compare the client with what it records.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor

from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.coordinator import Coordinator
from tests.support.fake_cluster.faults import NO_ROOM
from tests.support.fake_cluster.leader import Leader
from tests.support.virtual_time import now_s

#: A leader's error: the member does not hold the lock of one of the records.
NOT_HELD: Final = 121
_NEVER_S: Final = 10_000.0

Key = tuple[TopicIdPartition, str, int]


@dataclass
class Chances:
    """The probability of each fault, and how late a response may be, in seconds."""

    late: float = 0.7
    late_s: float = 2.5
    #: For responses to acknowledgements and heartbeats.
    lost: float = 0.0
    #: For acknowledgements of one partition.
    not_held: float = 0.0
    #: For whole requests, with a throttle time of up to `wish_s`.
    no_room: float = 0.0
    wish_s: float = 35.0
    #: For a change of the group's lock duration, on a request, to one of `locks_ms`.
    lock_changed: float = 0.0
    locks_ms: tuple[int, ...] = (6_000,)


class UncertainCluster(FakeCluster):
    """A fake cluster with random faults; a story sets `rng` and `chances`."""

    def __init__(self, nodes: int = 1) -> None:
        self.rng = Random(0)
        self.chances = Chances(late=0.0)
        #: The times at which members' heartbeats arrived, and which were accepted, in seconds.
        self.beaten: list[float] = []
        self.taken: list[float] = []
        #: Requests that arrived while their node throttled, with the remaining time, in seconds.
        self.pushed: list[tuple[str, float]] = []
        #: By node: until when it throttles, and since when it has throttled without a gap, in seconds.
        self.wishes: dict[int, tuple[float, float]] = {}
        #: The previous ends of locks whose renewal has not been answered yet: until then the member relies on them.
        self._before: dict[Key, dict[int, float]] = {}
        self._renewals = 0
        super().__init__(nodes)

    def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
        kinds: dict[type, Any] = {Leader: lambda: _Leader(self, node), Coordinator: lambda: _Coordinator(self)}
        return [
            (name, kinds[type(service)]() if type(service) in kinds else service)
            for name, service in super().services(node)
        ]

    def lock(self, partition: TopicIdPartition, group: str, offset: int) -> None:
        key = partition, group, offset
        if (former := self._locked_until.get(key)) is not None:
            self._before.setdefault(key, {})[self._renewals] = former
        super().lock(partition, group, offset)

    def held_until_s(self, key: Key) -> float:
        """Return until when a lock's holder may rely on it. A renewal that has not been answered yet may have shortened
        the lock."""
        return max(self._locked_until[key], *self._before.get(key, {}).values(), 0.0)

    def answered(self, renewals: int) -> None:
        for before in self._before.values():
            before.pop(renewals, None)

    async def late(self) -> None:
        chances = self.chances
        if self.rng.random() < chances.late:
            await asyncio.sleep(self.rng.uniform(0, chances.late_s))

    def came(self, what: str, node: int = 0) -> None:
        """Record a request that arrived while the node throttles."""
        until_s, _ = self.wishes.get(node, (0.0, 0.0))
        if until_s > now_s():
            self.pushed.append((what, until_s - now_s()))

    def wish(self, response: Any, node: int = 0) -> None:
        """Start a response's throttle time now, when it is sent: 30 s at most, even for consecutive ones."""
        seconds, now = response.throttle_time_ms / 1000, now_s()
        if seconds > 0:
            until_s, since_s = self.wishes.get(node, (0.0, now))
            since_s = since_s if until_s > now else now
            self.wishes[node] = max(until_s, min(now + seconds, since_s + 30)), since_s

    def take_error(self, what: str) -> Any:
        if what in {"fetch_top", "acknowledge_top", "heartbeat"} and self.rng.random() < self.chances.no_room:
            self.throttle_ms = int(self.rng.uniform(0, self.chances.wish_s) * 1000)
            return NO_ROOM
        if what == "acknowledge" and self.rng.random() < self.chances.not_held:
            return NOT_HELD
        return super().take_error(what)


class _Leader(Leader):
    fake: UncertainCluster

    def _begin(self, message: Any, stream: object) -> Any:
        fake, chances = self.fake, self.fake.chances
        if fake.rng.random() < chances.lock_changed:
            fake.lock_ms = fake.rng.choice(chances.locks_ms)
        fake.came("fetch" if message.HasField("fetch") else "acknowledge", self.node)
        fake._renewals += 1
        run: Any = super()._begin(message, stream)
        run.number = fake._renewals
        run.wish_ms = fake.throttle_ms
        return run

    async def _answer(self, message: Any, run: Any, stream: Any) -> None:
        fake = self.fake
        if run.acknowledged and fake.rng.random() < fake.chances.lost:
            return
        fake.throttle_ms = run.wish_ms
        late: Any = _Late(fake, self.node, stream)
        await super()._answer(message, run, late)
        fake.answered(run.number)


class _Late:
    """The responding side of a stream, which writes late."""

    def __init__(self, fake: UncertainCluster, node: int, stream: Any) -> None:
        self._fake, self._node, self._stream = fake, node, stream

    async def write(self, message: Any) -> None:
        await self._fake.late()
        self._fake.wish(message.fetch if message.HasField("fetch") else message.acknowledge, self._node)
        await self._stream.write(message)


class _Coordinator(Coordinator):
    fake: UncertainCluster

    async def share_group_heartbeat(self, request: Any, context: Any) -> Any:
        fake = self.fake
        fake.came("leave" if request.member_epoch < 0 else "heartbeat")
        if request.member_epoch > 0:
            fake.beaten.append(now_s())
        answer = await super().share_group_heartbeat(request, context)
        if not answer.error_code and request.member_epoch > 0:
            fake.taken.append(now_s())
        if fake.rng.random() < fake.chances.lost:
            await asyncio.sleep(_NEVER_S)
        await fake.late()
        fake.wish(answer)
        return answer
