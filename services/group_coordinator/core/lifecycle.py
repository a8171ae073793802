"""A group's lists of initialising and initialised share-partitions, and of deleting topics: the STATE record's value.

    absent ──start──▶ initialising ──finished──▶ initialised ──sent_back / altered──▶ initialising
       ▲                 │ ▲ │                        │
       │                 └─┘ │ failed, restart        │          deleting is kept per topic
       └─────────────────────┴─ without / returned ───┘

A frozen value: a change returns a new value, or the same object when nothing changed. A partition is in at most one
list. This module makes no calls: it only computes which calls are needed (GC-63, GC-70…GC-82).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from group_coordinator.core.views import Assignment, Topic, canonical
from kip932.ids import TopicIdPartition

#: `since_ms` of an entry that may be requested again at once, since it was read from the log or refused (GC-69a).
LONG_AGO: Final = -(1 << 62)
START_BY_RESET: Final = -1
START_OF_LOG: Final = 0
#: The name of a deleting topic that is not in the image (GC-63).
UNKNOWN_NAME: Final = "<UNKNOWN>"


class Initializing(NamedTuple):
    """A partition whose initialisation was requested, with the requested values (GC-73); `since_ms` and `attempt` are
    in-memory only (GC-76a).

    `state_epoch`: None in an entry of a build that did not store it; the next request then uses the group epoch.
    """

    start_offset: int
    state_epoch: int | None
    since_ms: int = LONG_AGO
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic's partitions. `first_count`: its number of partitions when it was first initialised (GC-73)."""

    topic_id: bytes
    name: str
    first_count: int
    initializing: Mapping[int, Initializing] = field(default_factory=dict)
    initialized: tuple[int, ...] = ()

    def first_start_offset(self, partition: int) -> int:
        """Return the start offset of a first request. It is 0 for a partition that was added later, whose first records
        would otherwise be skipped."""
        return START_BY_RESET if partition < self.first_count else START_OF_LOG


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The three complete lists of a group (GC-63); `deleting` maps a topic's id to its former name.

    `dropping`: the topics are being deleted because the group is (GC-107); a join or an alteration resets it.
    """

    topics: Mapping[bytes, TopicState] = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    dropping: bool = False

    @property
    def initialized(self) -> Assignment:
        """All initialised partitions."""
        return canonical({topic_id: topic.initialized for topic_id, topic in self.topics.items()})

    def wanted(self, topic: Topic, now_ms: int, retry_ms: int) -> tuple[int, ...]:
        """Return the topic's partitions to initialise now: those not initialised and not requested within `retry_ms`
        (GC-70, GC-72)."""
        state = self.topics.get(topic.topic_id)
        if state is None:
            return tuple(range(topic.partitions))
        known = {index for index, entry in state.initializing.items() if now_ms - entry.since_ms < retry_ms}
        known.update(state.initialized)
        return tuple(index for index in range(topic.partitions) if index not in known)

    def start(
        self, wanted: Iterable[tuple[Topic, tuple[int, ...]]], epoch: int, now_ms: int, attempt: int
    ) -> Lifecycle:
        """Put partitions into initialising with state epoch `epoch`, and take their topics out of deleting (GC-71).

        A retry keeps its start offset and state epoch, so that existing state is not changed (SC-33).
        """
        topics = dict(self.topics)
        deleting = dict(self.deleting)
        for topic, indexes in wanted:
            state = topics.get(topic.topic_id) or TopicState(topic.topic_id, topic.name, topic.partitions)
            entries = dict(state.initializing)
            for index in indexes:
                old = entries.get(index)
                asked = old if old is not None else Initializing(state.first_start_offset(index), epoch)
                asked_epoch = epoch if asked.state_epoch is None else asked.state_epoch
                entries[index] = Initializing(asked.start_offset, asked_epoch, now_ms, attempt)
            topics[topic.topic_id] = replace(state, initializing=dict(sorted(entries.items())))
            deleting.pop(topic.topic_id, None)
        return Lifecycle(topics, deleting)

    def restart(
        self, partitions: Collection[TopicIdPartition], old: int, epoch: int, now_ms: int, attempt: int
    ) -> Lifecycle:
        """Request the entries of attempt `old` again as `attempt`, with the higher state epoch `epoch` (GC-76)."""
        return self._change(partitions, old, lambda entry: Initializing(entry.start_offset, epoch, now_ms, attempt))

    def finished(self, partitions: Collection[TopicIdPartition], attempt: int) -> Lifecycle:
        """Move partitions from initialising to initialised, if their entries are of this attempt (GC-75, GC-76a)."""
        result = self
        for topic_id, indexes in _by_topic(partitions).items():
            state = result.topics.get(topic_id)
            done = _of_attempt(state, indexes, attempt)
            if state is not None and done:
                left = {index: entry for index, entry in state.initializing.items() if index not in done}
                initialized = tuple(sorted({*state.initialized, *done}))
                result = result._with(replace(state, initializing=left, initialized=initialized))
        return result

    def failed(self, partitions: Collection[TopicIdPartition], attempt: int) -> Lifecycle:
        """Make entries of this attempt due at once (GC-76, GC-76a).

        They keep their start offset and state epoch: an earlier attempt may have succeeded although its response was
        lost, and another state epoch would reset the acknowledgements since then.
        """
        return self._change(partitions, attempt, lambda entry: entry._replace(since_ms=LONG_AGO, attempt=0))

    def sent_back(self, partitions: Collection[TopicIdPartition], epoch: int, now_ms: int, attempt: int) -> Lifecycle:
        """Move partitions from initialised back to initialising, from offset 0: their state was lost (GC-82)."""
        result = self
        for topic_id, indexes in _by_topic(partitions).items():
            state = result.topics.get(topic_id)
            lost = indexes.intersection(state.initialized) if state else frozenset[int]()
            if state is not None and lost:
                entries = {
                    **state.initializing,
                    **dict.fromkeys(lost, Initializing(START_OF_LOG, epoch, now_ms, attempt)),
                }
                left = tuple(index for index in state.initialized if index not in lost)
                result = result._with(replace(state, initializing=dict(sorted(entries.items())), initialized=left))
        return result

    def without(self, topic_ids: Collection[bytes]) -> Lifecycle:
        """Remove these topics from all lists (GC-79)."""
        if not any(topic_id in self.topics or topic_id in self.deleting for topic_id in topic_ids):
            return self
        return replace(
            self,
            topics={topic_id: topic for topic_id, topic in self.topics.items() if topic_id not in topic_ids},
            deleting={topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids},
        )

    def altered(self, starts: Mapping[Topic, Mapping[int, int]], epoch: int, now_ms: int, attempt: int) -> Lifecycle:
        """Move partitions to initialising with these start offsets (GC-102).

        A topic leaves deleting only when all of its partitions are in use: the state of the others is still to be
        deleted, and only that list records it.
        """
        topics = dict(self.topics)
        deleting = dict(self.deleting)
        for topic, offsets in starts.items():
            state = topics.get(topic.topic_id) or TopicState(topic.topic_id, topic.name, topic.partitions)
            entries = {index: Initializing(start, epoch, now_ms, attempt) for index, start in offsets.items()}
            initializing = dict(sorted({**state.initializing, **entries}.items()))
            initialized = tuple(index for index in state.initialized if index not in offsets)
            topics[topic.topic_id] = replace(state, initializing=initializing, initialized=initialized)
            if len(initializing) + len(initialized) >= topic.partitions:
                deleting.pop(topic.topic_id, None)
        return Lifecycle(topics, deleting)

    def returned(self, partitions: Collection[TopicIdPartition], attempt: int, before: Lifecycle) -> Lifecycle:
        """Move entries of this attempt back to their place in `before`, since their alteration was refused (GC-103).

        Those whose state was to be deleted put their topic into deleting again, although other partitions of it may be
        in use: only that list records their state.
        """
        result = self
        for topic_id, indexes in _by_topic(partitions).items():
            state = result.topics.get(topic_id)
            if state is None or not (mine := _of_attempt(state, indexes, attempt)):
                continue
            old = before.topics.get(topic_id) or TopicState(topic_id, state.name, state.first_count)
            entries = {index: entry for index, entry in state.initializing.items() if index not in mine}
            entries.update((index, old.initializing[index]) for index in mine if index in old.initializing)
            initialized = tuple(sorted({*state.initialized, *mine.intersection(old.initialized)}))
            result = result._with(replace(state, initializing=dict(sorted(entries.items())), initialized=initialized))
            if topic_id in before.deleting and mine.difference(old.initialized, old.initializing):
                result = replace(result, deleting={**result.deleting, topic_id: before.deleting[topic_id]})
        return result

    def moved_to_deleting(self, names: Mapping[bytes, str]) -> Lifecycle:
        """Move these topics to deleting, including their initialising partitions (GC-97, GC-99)."""
        topics = {topic_id: state for topic_id, state in self.topics.items() if topic_id not in names}
        return replace(self, topics=topics, deleting={**self.deleting, **names})

    def deleted(self, topic_ids: Collection[bytes]) -> Lifecycle:
        """Take topics out of deleting, since their state was deleted (GC-98)."""
        left = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids}
        return self if len(left) == len(self.deleting) else replace(self, deleting=left)

    def requests(self, attempt: int) -> Mapping[int, tuple[tuple[TopicIdPartition, int], ...]]:
        """Return state epoch → (partition, start offset) of all entries that `attempt` requests (GC-73)."""
        found: dict[int, list[tuple[TopicIdPartition, int]]] = {}
        for topic_id, topic in sorted(self.topics.items()):
            for index, entry in topic.initializing.items():
                if entry.attempt == attempt and entry.state_epoch is not None:
                    found.setdefault(entry.state_epoch, []).append(
                        (TopicIdPartition(topic_id, index), entry.start_offset)
                    )
        return {epoch: tuple(partitions) for epoch, partitions in sorted(found.items())}

    def _change(
        self,
        partitions: Collection[TopicIdPartition],
        attempt: int,
        change: Callable[[Initializing], Initializing],
    ) -> Lifecycle:
        result = self
        for topic_id, indexes in _by_topic(partitions).items():
            state = result.topics.get(topic_id)
            if state is None or not (mine := _of_attempt(state, indexes, attempt)):
                continue
            changed = {i: change(entry) if i in mine else entry for i, entry in state.initializing.items()}
            result = result._with(replace(state, initializing=changed))
        return result

    def _with(self, state: TopicState) -> Lifecycle:
        topics = {**self.topics, state.topic_id: state}
        if not state.initializing and not state.initialized:
            del topics[state.topic_id]
        return replace(self, topics=topics)


def _by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, frozenset[int]]:
    topics: dict[bytes, set[int]] = {}
    for topic_id, index in partitions:
        topics.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}


def _of_attempt(state: TopicState | None, indexes: frozenset[int], attempt: int) -> frozenset[int]:
    if state is None:
        return frozenset()
    return frozenset(i for i in indexes if (entry := state.initializing.get(i)) and entry.attempt == attempt)
