"""Drives a group shard as a host would: decide, replay, append to a list; time is just a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from group_coordinator.core import commands as c
from group_coordinator.core.assignor import Assignor, SimpleAssignor
from group_coordinator.core.group import Group
from group_coordinator.core.lifecycle import Initializing, Lifecycle
from group_coordinator.core.records import Record, StateMetadata, TargetMetadata
from group_coordinator.core.shard import GroupShard
from group_coordinator.core.views import CoordinatorSettings, Topic
from shard_runtime.config.group_config import GroupConfig
from tests.support.clocks import WALL_MS

KAFKA = CoordinatorSettings(fast_first_assignment=False)


@dataclass(frozen=True)
class Image:
    """A metadata image set by a test."""

    topics: tuple[Topic, ...] = ()
    version: int = 1
    complete: bool = True
    deleted: frozenset[bytes] = frozenset()

    @property
    def image(self) -> Image:
        return self

    def is_deleted(self, topic_id: bytes) -> bool:
        return topic_id in self.deleted

    def without(self, name: str) -> Image:
        """Return the next image, in which the topic is deleted."""
        gone = {topic.topic_id for topic in self.topics if topic.name == name}
        left = tuple(topic for topic in self.topics if topic.name != name)
        return replace(self, topics=left, version=self.version + 1, deleted=self.deleted | gone)

    def by_name(self, name: str) -> Topic | None:
        return next((topic for topic in self.topics if topic.name == name), None)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self.topics if topic.topic_id == topic_id), None)


def topic_id(name: str, generation: int = 0) -> bytes:
    """Return the id that a test gives a topic."""
    return name.encode().ljust(15, b"\0") + bytes([generation])


@dataclass
class Driver:
    """A shard, its log, its image and its clock."""

    settings: CoordinatorSettings = KAFKA
    configs: GroupConfig = field(default_factory=lambda: GroupConfig(assignment_interval_ms=0))
    assignor: Assignor = field(default_factory=SimpleAssignor)
    image: Image = field(default_factory=Image)
    now_ms: int = 1_000_000
    log: list[Record] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shard = self.new_shard()
        self.shard.loaded(self.now_ms)

    def new_shard(self) -> GroupShard:
        return GroupShard(lambda: self.image, lambda _: self.configs, self.settings, self.assignor)

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def run(self, command: c.Command) -> object:
        """Run a command to the end; its records are appended to `log`, its effects to `effects`."""
        decision = self.shard.decide(command, self.now_ms, self.wall_ms)
        for record in decision.records:
            self.shard.replay(record)
        self.log.extend(decision.records)
        self.effects.extend(decision.effects)
        return decision.reply

    def beat(
        self,
        member_id: str,
        epoch: int,
        topics: Sequence[str] | None = None,
        group_id: str = "g",
        rack: str | None = None,
    ) -> c.HeartbeatReply:
        names = None if topics is None else tuple(topics)
        command = c.Heartbeat(group_id, member_id, epoch, rack, names, "client", "127.0.0.1")
        return cast(c.HeartbeatReply, self.run(command))

    def new_records(self, since: int) -> list[Record]:
        return self.log[since:]

    def create(self, name: str, partitions: int, generation: int = 0) -> bytes:
        """Create a topic, or grow it."""
        others = tuple(topic for topic in self.image.topics if topic.name != name)
        made = Topic(topic_id(name, generation), name, partitions)
        self.image = replace(self.image, topics=(*others, made), version=self.image.version + 1)
        return made.topic_id

    def delete(self, name: str) -> None:
        self.image = self.image.without(name)

    def take_effects(self) -> list[object]:
        taken, self.effects = self.effects, []
        return taken

    def initialize(self) -> list[c.InitializeState]:
        """Let every outstanding initialisation succeed; return the orders that asked for them."""
        orders = [effect for effect in self.take_effects() if isinstance(effect, c.InitializeState)]
        for order in orders:
            done = tuple(partition for partition, _ in order.partitions)
            self.run(c.InitializationFinished(order.group_id, order.attempt, succeeded=done))
        return orders

    def advance(self, ms: int) -> None:
        """Let time pass; run whatever becomes due, such as expired sessions."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.shard.next_deadline()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            for command in self.shard.due(self.now_ms):
                self.run(command)
        self.now_ms = end_ms

    def reload(self) -> None:
        """Let another coordinator take the shard over, which takes at least a millisecond."""
        self.now_ms += 1
        self.shard = self.new_shard()
        for record in self.log:
            self.shard.replay(persisted(record))
        for command in self.shard.loaded(self.now_ms):
            self.run(command)

    def settle(self, member_id: str, topics: Sequence[str], rounds: int = 6) -> c.HeartbeatReply:
        """Join, then heartbeat until the member's assignment no longer changes."""
        reply = self.beat(member_id, 0, topics)
        for _ in range(rounds):
            self.initialize()
            reply = self.beat(member_id, reply.member_epoch)
        return reply


def persisted(record: Record) -> Record:
    """Return the record as it is read back from the log, without its in-memory parts."""
    if isinstance(record, TargetMetadata):
        return replace(record, basis=None)
    if isinstance(record, StateMetadata):
        return replace(record, lifecycle=_bare(record.lifecycle))
    return record


def bare(groups: dict[str, Group]) -> dict[str, Group]:
    """Return groups without their in-memory parts."""
    return {
        key: replace(group, basis=None, lifecycle=None if group.lifecycle is None else _bare(group.lifecycle))
        for key, group in groups.items()
    }


def _bare(lifecycle: Lifecycle) -> Lifecycle:
    topics = {
        key: replace(
            topic, initializing={i: Initializing(e.start_offset, e.state_epoch) for i, e in topic.initializing.items()}
        )
        for key, topic in lifecycle.topics.items()
    }
    return replace(lifecycle, topics=topics)
