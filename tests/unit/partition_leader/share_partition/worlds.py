"""`World`: a partition leader over the real core and topic log, with virtual time, an in-memory store and a scripted
persister."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from kip932.errors import (
    KafkaError,
)
from kip932.ids import SharePartitionKey, TopicIdPartition
from kip932.state_values import StoredStart
from partition_leader.fetch.core.fetch_policy import FetchLimits
from partition_leader.led_partitions import TailCaches
from partition_leader.metrics import PartitionLeaderMetrics
from partition_leader.partition_owners import topic_shard
from partition_leader.role import PartitionLeader, Surroundings
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_rpc.values import ShareAnswer, ShareRequest
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.log_directory import Leader
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.redis.connection import StoreSettings
from tests.support.claims import LEASE_MS, claim
from tests.support.clocks import LoopClock
from tests.support.virtual_time import now_s
from tests.support.virtual_time import run as run_virtual
from tests.twin import MemoryStore, memory_log
from tests.unit.partition_leader.share_partition.letter_facts import Elsewhere, ScriptedLetterFacts
from tests.unit.partition_leader.share_partition.persister import OPERATION_TIMEOUT_S, ScriptedPersister
from tests.unit.partition_leader.topic_log.harness import batch

TOPIC = bytes(15) + b"\x01"
GROUP = "g"


def part(number: int = 0, topic_id: bytes = TOPIC) -> TopicIdPartition:
    return TopicIdPartition(topic_id, number)


def key(number: int = 0, group: str = GROUP) -> SharePartitionKey:
    return SharePartitionKey(group, TOPIC, number)


class Facts:
    """The metadata of the topics, set by a test."""

    def __init__(self) -> None:
        self.topics: dict[bytes, int] = {TOPIC: 4}
        self.names: dict[bytes, str] = {TOPIC: "t"}
        self.keep_only_needed: set[bytes] = set()

    def name(self, topic_id: bytes) -> str:
        return self.names.get(topic_id, "")

    def partitions(self, topic_id: bytes) -> int | None:
        return self.topics.get(topic_id)

    def max_message_bytes(self, topic_id: bytes) -> int:
        return 1 << 20

    def consumed(self, topic_id: bytes) -> bool:
        return topic_id in self.keep_only_needed

    def retention(self, topic_id: bytes) -> tuple[int, int]:
        return -1, -1

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        return None

    def created_under(self, topic_id: bytes) -> str:
        return ""


class ScriptedStarts:
    """The groups' stored progress, set by a test: start offsets alone if nothing beyond them is finished. `meanwhile`:
    runs between a request for it and the response."""

    def __init__(self) -> None:
        self.groups: Mapping[bytes, Mapping[str, Mapping[int, int | StoredStart]]] = {}
        self.refusal: KafkaError | None = None
        self.meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.asked: list[list[bytes]] = []

    async def ask(self, topic_ids: Collection[bytes]) -> dict[bytes, dict[str, dict[int, StoredStart]]]:
        self.asked.append(list(topic_ids))
        if self.refusal is not None:
            raise self.refusal
        reported = {
            topic_id: {
                group: {number: StoredStart(one, 0) if isinstance(one, int) else one for number, one in starts.items()}
                for group, starts in groups.items()
            }
            for topic_id, groups in self.groups.items()
            if topic_id in topic_ids
        }
        if self.meanwhile is not None:
            await self.meanwhile()
        return reported


class Member:
    """A consumer's session at this leader."""

    def __init__(self, world: World, name: str, group: str = GROUP, connection: int | None = None) -> None:
        self.world = world
        self.name = name
        self.group = group
        self.connection = connection
        self.session_id: int | None = None
        self.epoch = 0

    def fetch(self, *partitions: int, **fields: Any) -> Pending:
        """Send a ShareFetch that adds `partitions` to the session; when it opens the session, they are its only
        partitions."""
        limits = FetchLimits(
            fields.pop("max_wait_ms", 500),
            fields.pop("min_bytes", 1),
            fields.pop("max_bytes", 1 << 20),
            fields.pop("max_records", 500),
        )
        return self._send(tuple(part(number) for number in partitions), limits, fields)

    def acknowledge(self, acks: dict[int, list[AckBatch]], **fields: Any) -> Pending:
        """Send a ShareAcknowledge."""
        return self._send((), None, fields | {"acks": acks})

    def accept(self, first: int, last: int, partition: int = 0, kind: int = 1) -> Pending:
        return self.acknowledge({partition: [AckBatch(first, last, (kind,))]})

    def _send(
        self, topics: tuple[TopicIdPartition, ...], limits: FetchLimits | None, fields: dict[str, Any]
    ) -> Pending:
        acks = {part(number): tuple(batches) for number, batches in fields.pop("acks", {}).items()}
        epoch = fields.pop("epoch", self.epoch)
        request = ShareRequest(
            group_id=self.group,
            member_id=self.name,
            epoch=epoch,
            session_id=None if epoch == 0 else fields.pop("session_id", self.session_id),
            connection_id=self.connection,
            topics=topics,
            acknowledgements=acks,
            is_renew_ack=fields.pop("is_renew_ack", False),
            limits=limits,
            **fields,
        )
        self.epoch = epoch + 1 if epoch >= 0 else 0
        pending = Pending(self, request)
        pending.handle = self.world.leader.requests.handle(request, pending.on_answer)
        return pending


class Pending:
    """One request and its response, which may be given only once."""

    def __init__(self, member: Member, request: ShareRequest) -> None:
        self.member = member
        self.request = request
        self.answers: list[ShareAnswer] = []
        self.at_s = 0.0
        self.handle: object = None
        self.on_answer: Callable[[ShareAnswer], None] = self.answered

    def answered(self, answer: ShareAnswer) -> None:
        self.answers.append(answer)
        assert len(self.answers) == 1, "answered twice"
        self.at_s = now_s()
        if self.request.epoch == 0 and answer.session_id is not None:
            self.member.session_id = answer.session_id

    @property
    def done(self) -> bool:
        return bool(self.answers)

    async def answer(self) -> ShareAnswer:
        for _ in range(2_000):
            if self.answers:
                return self.answers[0]
            await asyncio.sleep(0.05)
        raise AssertionError("never answered")

    async def ranges(self, partition: int = 0) -> list[tuple[int, int, int]]:
        """Return the ranges acquired from a partition; neither the request nor the partition may have failed."""
        answer = await self.answer()
        assert answer.error is None, answer.error
        for one in answer.partitions:
            if one.partition == part(partition):
                assert one.error is None, one.error
                return [(r[0], r[1], r[2]) for r in one.fetched.ranges] if one.fetched else []
        return []

    async def error(self, partition: int = 0) -> KafkaError | None:
        """Return the fetch error of a partition."""
        answer = await self.answer()
        return next((one.error for one in answer.partitions if one.partition == part(partition)), None)

    async def ack_error(self, partition: int = 0) -> KafkaError | None:
        answer = await self.answer()
        assert answer.error is None, answer.error
        (one,) = [one for one in answer.partitions if one.partition == part(partition)]
        assert one.acknowledged
        return one.acknowledge_error


#: Longer than any scenario: a test that needs a round of progress runs it by itself.
PROGRESS_MS = 86_400_000
#: Settings of the role; all others are settings of topic logs.
_OF_THE_ROLE = ("operation_timeout_ms", "fetch_max_bytes", "enabled")


class World:
    """One leader process, with its store and clocks."""

    def __init__(self, sessions_max: int = 100, **settings: Any) -> None:
        self.clock = LoopClock()
        self.lease_clock = LoopClock()
        self.store = MemoryStore(self.clock, Random(7), 0)
        store_settings = StoreSettings(
            replicas=0, min_insync_replicas=1, wait_ms=20, backoff_ms=1, backoff_max_ms=5, call_ms=2_000
        )
        self.record_log = memory_log(self.store, "node1", store_settings, self.clock)
        self.persister = ScriptedPersister()
        self.starts = ScriptedStarts()
        self.facts = Facts()
        self.config = GroupConfig(auto_offset_reset="earliest")
        self.letters = ScriptedLetterFacts(self.facts.names)
        self.elsewhere = Elsewhere()
        self.given_up: list[tuple[str, int]] = []
        self.leases: dict[int, Lease] = {}
        self.epochs: dict[int, int] = {}
        self.registry = CollectorRegistry()
        caches = settings.pop("caches", TailCaches())
        given = {name: settings.pop(name) for name in _OF_THE_ROLE if name in settings}
        self.surroundings = Surroundings(
            record_log=self.record_log,
            clock=self.clock,
            rng=Random(3),
            persister=self.persister,
            facts=self.facts,
            config=lambda _: self.config,
            sessions_max=sessions_max,
            metrics=PartitionLeaderMetrics(self.registry),
            letters=self.letters,
            transport=self.elsewhere,
            starts=self.starts,
            leader_of=self.elsewhere.leader_of,
            topic_log=TopicLogSettings(**settings),
            caches=caches,
            progress_interval_ms=PROGRESS_MS,
            **given,
        )
        self.leader = PartitionLeader(self.surroundings)

    async def lead(self, *partitions: int) -> None:
        """Claim partitions and load their logs."""
        for number in partitions or (0,):
            shard = topic_shard(part(number))
            claimed = await claim(self.record_log, shard, floor=self.epochs.get(number, 0) + 1)
            self.epochs[number] = claimed.epoch
            lease = self.leases[number] = Lease(
                shard,
                1,
                claimed.epoch,
                deadline_ms=LEASE_MS,
                clock=self.lease_clock,
                give_up=lambda why, above: self.given_up.append((why, above)),
            )
            await self.leader.owner(shard).gained(claimed, lease)

    async def restart(self, **changed: Any) -> None:
        """Replace the process by one with other settings, which leads the same partitions."""
        await self.leader.stop()
        for number in self.leases:
            self.lose(number)
        await settle()
        self.registry = CollectorRegistry()
        metrics = PartitionLeaderMetrics(self.registry)
        self.leader = PartitionLeader(replace(self.surroundings, metrics=metrics, **changed))
        await self.lead(*self.leases)

    def lose(self, number: int = 0) -> None:
        """Lose the leadership of a partition, as ownership reports it."""
        self.leases[number].revoke()
        self.leader.owner(topic_shard(part(number))).lost("test")

    def lapse(self) -> None:
        """Let all leases expire, as if none had been renewed in time."""
        self.lease_clock.ahead_ms = 2 * LEASE_MS

    def renewed(self) -> None:
        self.lease_clock.ahead_ms = 0

    def log(self, number: int = 0) -> TopicLog:
        return self.leader.led.log(part(number))

    async def produce(self, records: int, number: int = 0) -> int:
        """Append one batch; return its base offset."""
        outcome = await self.log(number).append([batch(records)], 10_000)
        return outcome.base_offsets[0]

    def member(self, name: str = "m", group: str = GROUP, connection: int | None = None) -> Member:
        return Member(self, name, group, connection)

    def host(self, number: int = 0, group: str = GROUP) -> Any:
        return self.leader.share_partitions.cached(key(number, group))

    def configure(self, **values: Any) -> None:
        """Change the group's settings."""
        self.config = replace(self.config, **values)
        self.leader.groups_changed()

    def assert_quiet(self) -> None:
        """Check that no waiter, running request or fetch lock is left (PL-1207)."""
        leader = self.leader
        partitions, requests = leader.share_partitions, leader.requests
        assert partitions.parked == 0
        assert partitions._waiters == {} == partitions._waiters_without_bytes
        assert requests.running == 0
        assert requests._by_session == {}
        assert [host.core.overview().fetch_lock for host in partitions.hosts()] == [None] * len(partitions)

    async def end(self) -> None:
        await self.leader.stop()
        assert self.leader._deadlines._timer.at == inf, "a stopped leader would still wake up"
        for number in list(self.leases):
            self.lose(number)
        await settle()
        partitions = self.leader.share_partitions
        assert partitions._retiring == {} == partitions._handing_over
        assert len(partitions) == 0
        assert len(self.leader._deadlines) == 0
        assert self.persister.running == 0, "an operation outlived its host"
        await self.record_log.close()
        await self.store.close()


async def settle(turns: int = 60) -> None:
    """Let the event loop run until everything has happened that needs no time to pass."""
    for _ in range(turns):
        await asyncio.sleep(0)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scenario against a leader of partitions 0-3 in virtual time; nothing may be left running at its end."""

    async def main() -> None:
        world = World(**settings)
        await world.lead(0, 1, 2, 3)
        await scenario(world)
        world.leader.drain()
        await asyncio.sleep(OPERATION_TIMEOUT_S + 5)
        world.assert_quiet()
        await world.end()

    run_virtual(main())


def code(error: KafkaError | None) -> str | None:
    return None if error is None else error.name
