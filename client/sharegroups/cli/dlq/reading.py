"""Reads a DLQ topic page by page: dead letters, and records that are not dead letters (CT-121, CT-122)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from shlex import quote
from time import monotonic
from typing import Final, NamedTuple

from kip932.errors import (
    GroupIdNotFoundError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, OFFSET_MAX, TopicPartition, topic_id_text
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigEntry, ConfigResource, ReadRecord, RecordsRead
from sharegroups.cli.dlq.choosing import Choice, Where
from sharegroups.cli.dlq.core.dead_letters import Letter, Place, letter_of
from sharegroups.cli.groups.asking import ALL_GROUPS, refuse
from sharegroups.cli.output import print_stderr

TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
#: The interval at which the progress of reading a long log is printed, in seconds.
PROGRESS_S: Final = 5.0
#: The assumed maximum difference between the clocks of two nodes, in ms.
SKEW_MS: Final = 60_000
ENABLE: Final = "errors.deadletterqueue.group.enable"


class Bounds(NamedTuple):
    """The offsets of a partition to read: from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A DLQ topic, and the offsets to read in each partition. `is_enabled`: whether groups may use it."""

    topic: str
    topic_id: str
    is_enabled: bool
    partitions: Mapping[int, Bounds]
    #: True if the offsets of a partition could not be read; an error was printed.
    is_partial: bool

    def place(self, partition: int, offset: int) -> Place:
        """Return the place of a dead letter in the topic."""
        return Place(self.topic, self.topic_id, partition, offset)


class Found(NamedTuple):
    """A record, when it was stored (ms since 1970), and its dead letter; None when it is not a dead letter."""

    record: ReadRecord
    stored_ms: int
    letter: Letter | None


@dataclass(slots=True)
class Page:
    """Some records of a partition, in offset order. The next page starts at `next_offset`.

    `unreadable`: the first offset that cannot be decoded; OFFSET_MAX when all can.
    """

    partition: int
    next_offset: int
    found: Sequence[Found]
    unreadable: int = OFFSET_MAX


@dataclass(slots=True)
class Reading:
    """Reads a queue once, and counts the records that are not dead letters.

    `prints_no_errors`: print no errors about undecodable records. `prints_progress`: print now and then how far it is,
    for what shows nothing before the end. `is_whole`: False when something could not be read.
    """

    admin: Admin
    queue: Queue
    prints_no_errors: bool = False
    prints_progress: bool = False
    strangers: int = 0
    first_other: str = ""
    is_whole: bool = True
    _failed: set[int] = field(default_factory=set)
    _skipped: set[int] = field(default_factory=set)
    _printed_s: float = 0.0

    def skip(self, number: int) -> None:
        """Stop reading a partition."""
        self._skipped.add(number)

    @property
    def is_readable(self) -> bool:
        """True if every partition could be read to its end."""
        return not self._failed

    @property
    def readable(self) -> Queue:
        """The queue without the partitions that could not be read to their end."""
        left = {number: bounds for number, bounds in self.queue.partitions.items() if number not in self._failed}
        return replace(self.queue, partitions=left)

    def pages(self) -> Iterator[Page]:
        """Yield all pages, partition by partition. When a partition cannot be read, print its error and go on with the
        next one."""
        self._printed_s = monotonic()
        for number in sorted(self.queue.partitions):
            try:
                yield from self._pages(number)
            except KafkaError as error:
                self.is_whole = False
                self._failed.add(number)
                print_stderr(f"Error: {self.queue.topic}-{number}: {error.name}: {error.message}")

    def note_other_records(self) -> None:
        """Print on standard error how many records were not dead letters."""
        if self.strangers:
            many = "1 record is" if self.strangers == 1 else f"{self.strangers} records are"
            print_stderr(
                f"Note: {many} no dead letter, without the headers of one at the end; first {self.first_other}."
            )

    def _pages(self, number: int) -> Iterator[Page]:
        at, end = self.queue.partitions[number]
        place = TopicPartition(self.queue.topic, number)
        while at < end and number not in self._skipped:
            try:
                read = self.admin.read_records(place, at)
            except OffsetOutOfRangeError:  # deleted meanwhile, by retention or another client
                start = self.admin.list_offsets({place: OFFSET_EARLIEST})[place]
                if isinstance(start, KafkaError) or start <= at:
                    raise
                at = start
                continue
            self._print_unreadable(number, read)
            page = Page(number, min(read.next_offset, end), self._found(number, read.records, end))
            page.unreadable = min((lost.first_offset for lost in read.unreadable), default=OFFSET_MAX)
            yield page
            if read.next_offset == at:  # no records up to the end
                return
            at = read.next_offset
            if self.prints_progress and monotonic() - self._printed_s >= PROGRESS_S:
                self._printed_s = monotonic()
                print_stderr(f"Reading dead letters: {self.queue.topic}-{number}, offset {at} of {end}.")

    def _print_unreadable(self, number: int, read: RecordsRead) -> None:
        for lost in read.unreadable:
            self.is_whole = False
            if not self.prints_no_errors:
                span = f"{lost.first_offset} to {lost.last_offset}"
                print_stderr(f"Error: {self.queue.topic}-{number}, offsets {span}: {lost.error}")

    def _found(self, number: int, records: Sequence[ReadRecord], end: int) -> list[Found]:
        found = [found_of(record) for record in records if record.offset < end]
        for record, _, letter in found:
            if letter is None:
                self.strangers += 1
                self.first_other = self.first_other or f"{self.queue.topic}-{number} offset {record.offset}"
        return found


def found_of(record: ReadRecord) -> Found:
    """Return a record with its time and its dead letter."""
    stored_ms = record.timestamp_ms if record.append_time_ms is None else record.append_time_ms
    return Found(record, stored_ms, letter_of(record.headers, record.key, record.value))


def queue_of(admin: Admin, choice: Choice, *, changes: bool, force: bool = False) -> Queue:
    """Return the chosen DLQ topic with its current bounds. Raises KafkaError; exits with 1 if it is missing (CT-120).

    A topic that is not a DLQ is refused if `changes` is set and `force` is not; otherwise only a note is printed.
    """
    where = choice.where or Where(_topic_of(admin, choice.filters.group or ""), None)
    described = admin.list_topics([where.topic])[where.topic]
    if isinstance(described.error, UnknownTopicOrPartitionError):
        near = did_you_mean(where.topic, admin.list_topics())
        whose = "" if choice.where else f", the dead-letter topic of group {choice.filters.group},"
        refuse(f"Topic {where.topic}{whose} not found.{near} All topics: sharegroups topics list")
    if described.error is not None:
        raise described.error
    count = len(described.partitions)
    if where.partition is not None and where.partition >= count:
        refuse(f"Topic {where.topic} has {count} partitions, from 0 on, and no partition {where.partition}.")
    enabled = _is_enabled(admin, where.topic)
    if not enabled and not force:
        said = f"{where.topic} is not a dead-letter queue: its config {ENABLE} is not true"
        if changes:
            refuse(f"{said}. Nothing was done. If it is to be one: {_set(where.topic)}; else --force")
        print_stderr(f"Note: {said}.")
    numbers = range(count) if where.partition is None else [where.partition]
    bounds, partly = _bounds(admin, [TopicPartition(where.topic, number) for number in numbers])
    return Queue(where.topic, topic_id_text(described.topic_id), enabled, bounds, partly)


def delete_before(admin: Admin, queue: Queue, ends: Mapping[int, int]) -> dict[int, int | KafkaError]:
    """Delete the records of each partition before an offset. Returns its new start offset or its error by partition.

    If the topic was re-created since the queue was read, it has other records at these offsets. It is then left
    unchanged, and UnknownTopicIdError is raised. Raises KafkaError when the whole call fails.
    """
    described = admin.list_topics([queue.topic])[queue.topic]
    if described.error is not None:
        raise described.error
    if topic_id_text(described.topic_id) != queue.topic_id:
        raise UnknownTopicIdError(f"{queue.topic} was created again meanwhile; nothing was deleted from the new topic")
    found = admin.delete_records({TopicPartition(queue.topic, number): end for number, end in ends.items()})
    return {place.partition: outcome for place, outcome in found.items()}


def _bounds(admin: Admin, places: Sequence[TopicPartition]) -> tuple[dict[int, Bounds], bool]:
    """Return the bounds of the partitions, and whether some are missing; their errors were printed."""
    starts = admin.list_offsets(dict.fromkeys(places, OFFSET_EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(places, OFFSET_LATEST))
    bounds: dict[int, Bounds] = {}
    for place in places:
        start, end = starts[place], ends[place]
        for found in (start, end):
            if isinstance(found, KafkaError):
                print_stderr(f"Error: {place.topic}-{place.partition}: {found.name}: {found.message}")
                break
        else:
            assert isinstance(start, int)
            assert isinstance(end, int)
            bounds[place.partition] = Bounds(start, end)
    return bounds, len(bounds) < len(places)


def _topic_of(admin: Admin, group: str) -> str:
    entries = _configs(admin, ConfigResource.group(group))
    entry = entries.get(TOPIC_NAME)
    if entry is None or not entry.value:
        refuse(_without_topic(admin, group))
    return entry.value


def _without_topic(admin: Admin, group: str) -> str:
    """Return the error text for a group that has no DLQ topic."""
    known: list[str] = []
    with suppress(KafkaError):  # only the hint is missing then
        known = [listing.group_id for listing in admin.list_groups(None, ["share"])]
    if known and group not in known:
        return f"Group {group} not found, and has no dead-letter topic.{did_you_mean(group, known)} {ALL_GROUPS}"
    return (
        f"Group {group} has no dead-letter topic: its config {TOPIC_NAME} is empty. Give --topic, or set it: "
        f"sharegroups configs alter --group {quote(group)} --add-config {TOPIC_NAME}=dlq.TOPIC, "
        f"with a topic that has {ENABLE}=true"
    )


def _is_enabled(admin: Admin, topic: str) -> bool:
    entry = _configs(admin, ConfigResource.topic(topic)).get(ENABLE)
    return entry is not None and entry.value == "true"


def _configs(admin: Admin, resource: ConfigResource) -> Mapping[str, ConfigEntry]:
    try:
        found = admin.describe_configs([resource])[resource]
    except GroupIdNotFoundError:
        return {}
    if isinstance(found, GroupIdNotFoundError):
        return {}
    if isinstance(found, KafkaError):
        raise found
    return found


def _set(topic: str) -> str:
    return f"sharegroups topics alter {quote(topic)} --config {ENABLE}=true"
