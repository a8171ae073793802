"""Finds the partitions that dead letters go to, and the dead letters that were already redriven: their fresh records
are in those partitions (CT-126)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from kip932.errors import InvalidTopicError, KafkaError, UnknownTopicOrPartitionError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import ReadRecord
from sharegroups.cli.dlq.core.dead_letters import Letter, content_of, redriven_of
from sharegroups.cli.dlq.core.seen_origins import Scope, SeenOrigins
from sharegroups.cli.dlq.reading import PROGRESS_S, SKEW_MS, Found, Reading
from sharegroups.cli.groups.asking import refuse
from sharegroups.cli.output import print_stderr

#: The maximum number of partitions that one run may redrive to; the headers of dead letters could name any number.
TARGETS_MAX: Final = 10_000
_NAMES: Final = 500
#: Takes a fresh record: the scope and offset of its origin, its content, and when it was appended, if that is known.
TakeFresh = Callable[[Scope, int, int, int | None], object]


@dataclass(slots=True)
class Targets:
    """The partitions that dead letters are to be redriven to. `before`: the origins that were already redriven.
    `faults`: why nothing can be redriven to a partition."""

    before: SeenOrigins = field(default_factory=SeenOrigins)
    faults: dict[TopicPartition, str] = field(default_factory=dict)


class First(NamedTuple):
    """Of the dead letters that go to one partition, the smallest origin offset and the earliest time of storage."""

    offset: int
    stored_ms: int


def target_of(letter: Letter) -> TopicPartition:
    """Return the partition that a dead letter is redriven to; the letter must not be garbled."""
    assert letter.origin is not None
    return TopicPartition(letter.origin.topic, letter.origin.partition)


def add_first(firsts: dict[TopicPartition, First], letter: Letter, stored_ms: int) -> None:
    """Add the partition that a dead letter is redriven to; the letter must not be garbled."""
    assert letter.origin is not None
    target, new = target_of(letter), First(letter.origin.offset, stored_ms)
    old = firsts.get(target, new)
    firsts[target] = First(min(old.offset, new.offset), min(old.stored_ms, new.stored_ms))


def first_origins(reading: Reading, is_chosen: Callable[[int, Found], bool]) -> dict[TopicPartition, First]:
    """Return the partitions that the chosen dead letters go to. Exits with 1 when there are too many."""
    firsts: dict[TopicPartition, First] = {}
    for page in reading.pages():
        for found in page.found:
            letter = found.letter
            if letter is not None and is_chosen(page.partition, found) and not letter.is_garbled:
                add_first(firsts, letter, found.stored_ms)
        if len(firsts) > TARGETS_MAX:
            refuse(f"these letters are about more than {TARGETS_MAX} partitions. Choose fewer of them, with --origin")
    return firsts


def targets_of(admin: Admin, topic_id: str, firsts: Mapping[TopicPartition, First], *, search: bool) -> Targets:
    """Check the partitions, and with `search` also find the dead letters that were already redriven. `topic_id`: that
    of the DLQ."""
    targets = Targets(faults=missing_targets(admin, firsts))
    before = targets.before
    for target, first in sorted(firsts.items()):
        if search and target not in targets.faults:
            try:
                FreshRecords(admin, topic_id, target).find(
                    first, lambda scope, offset, content, _: before.add(scope, offset, content)
                )
            except KafkaError as error:
                targets.faults[target] = not_searched(target, error)
    return targets


def missing_targets(admin: Admin, targets: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Return the partitions that nothing can be redriven to, since they do not exist or may not be seen, with the
    reason. Raises KafkaError."""
    wanted = list(targets)
    names = sorted({target.topic for target in wanted})
    counts: dict[str, int] = {}
    refused: dict[str, str] = {}
    for at in range(0, len(names), _NAMES):
        for name, topic in admin.list_topics(names[at : at + _NAMES]).items():
            if topic.error is None:
                counts[name] = len(topic.partitions)
            elif not isinstance(topic.error, UnknownTopicOrPartitionError | InvalidTopicError):
                refused[name] = f"{name} cannot be described: {topic.error.message}"
    return {
        target: refused.get(target.topic, f"there is no topic {target.topic} any more")
        if target.topic not in counts
        else f"{target.topic} has {counts[target.topic]} partitions, and no partition {target.partition}"
        for target in wanted
        if target.partition >= counts.get(target.topic, 0)
    }


def not_searched(target: TopicPartition, error: KafkaError) -> str:
    """Return why it is not known which dead letters were redriven to a partition."""
    return f"{target.topic}-{target.partition} cannot be searched for what was redriven before: {error.message}"


class FreshRecords:
    """Finds the fresh records in one partition that dead letters of a DLQ topic (`topic_id`) were redriven as, up to
    the end that the partition has now. Raises KafkaError."""

    def __init__(self, admin: Admin, topic_id: str, target: TopicPartition) -> None:
        self._admin, self._topic_id, self._target = admin, topic_id, target
        self._start, self._end = (self._offset(spec) for spec in (OFFSET_EARLIEST, OFFSET_LATEST))
        self._found_from = self._end
        oldest = admin.read_records(target, self._start, 1).records
        self._oldest_ms = oldest[0].append_time_ms if oldest else None

    def find(self, first: First, take: TakeFresh, until_s: float = inf) -> bool:
        """Give to `take` all fresh records that dead letters from `first` on can have, except those that were given
        already. Returns False when `until_s` (`monotonic`) came first; then some were not given. Raises KafkaError."""
        begin = at = self._start if self._is_younger(first) else max(self._start, first.offset + 1)
        printed_s = monotonic()
        while at < self._found_from:
            if until_s != inf and monotonic() >= until_s:
                return False
            read = self._admin.read_records(self._target, at)
            self._take(read.records, take)
            if read.next_offset == at:
                break
            at = read.next_offset
            if monotonic() - printed_s >= PROGRESS_S:
                printed_s = monotonic()
                name = f"{self._target.topic}-{self._target.partition}"
                print_stderr(f"Looking for what was redriven before: {name}, offset {at} of {self._end}.")
        self._found_from = min(begin, self._found_from)
        return True

    def _take(self, records: Iterable[ReadRecord], take: TakeFresh) -> None:
        topic, partition = self._target
        for record in records:
            said = redriven_of(record.headers) if record.headers else None
            if said is not None and said.topic_id == self._topic_id:
                scope = Scope(said.group, topic, partition, said.origin_topic_id)
                content = content_of(record.key, record.value, record.timestamp_ms, record.headers)
                take(scope, said.origin_offset, content, record.append_time_ms)

    def _offset(self, spec: int) -> int:
        found = self._admin.list_offsets({self._target: spec})[self._target]
        if isinstance(found, KafkaError):
            raise found
        return found

    def _is_younger(self, first: First) -> bool:
        """Return whether the whole partition may be younger than the first dead letter: its topic may have been
        re-created.

        In a re-created topic the offsets start again. In any other, a fresh record has a higher offset than its origin.
        """
        return self._oldest_ms is None or self._oldest_ms + SKEW_MS >= first.stored_ms
