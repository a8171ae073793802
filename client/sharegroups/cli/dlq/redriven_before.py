"""Finds the partitions that dead letters go to, and the dead letters that were already redriven: their fresh records
are in those partitions (CT-126)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kip932.errors import KafkaError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from sharegroups.admin import Admin
from sharegroups.cli.dlq.core.dead_letters import Letter, content_of, redriven_of
from sharegroups.cli.dlq.core.seen_origins import Scope, SeenOrigins
from sharegroups.cli.dlq.reading import SKEW_MS, Found, Reading
from sharegroups.cli.groups.asking import refuse
from sharegroups.cli.output import print_stderr

#: The maximum number of partitions that one run may redrive to; the headers of dead letters could name any number.
TARGETS_MAX: Final = 10_000
#: The interval at which the progress of reading a long log is printed, in seconds.
_PROGRESS_S: Final = 5.0
_NAMES: Final = 500


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


def first_origins(reading: Reading, is_chosen: Callable[[int, Found], bool]) -> dict[TopicPartition, First]:
    """Return the partitions that the chosen dead letters go to. Exits with 1 when there are too many."""
    firsts: dict[TopicPartition, First] = {}
    for page in reading.pages():
        for found in page.found:
            letter = found.letter
            if letter is None or not is_chosen(page.partition, found) or letter.is_garbled:
                continue
            assert letter.origin is not None
            target = target_of(letter)
            new = First(letter.origin.offset, found.stored_ms)
            old = firsts.get(target, new)
            firsts[target] = First(min(old.offset, new.offset), min(old.stored_ms, new.stored_ms))
        if len(firsts) > TARGETS_MAX:
            refuse(f"these letters are about more than {TARGETS_MAX} partitions. Choose fewer of them, with --origin")
    return firsts


def targets_of(admin: Admin, topic_id: str, firsts: Mapping[TopicPartition, First], *, search: bool) -> Targets:
    """Check the partitions, and with `search` also find the dead letters that were already redriven. `topic_id`: that
    of the DLQ."""
    targets = Targets(faults=_missing(admin, firsts))
    for target, first in sorted(firsts.items()):
        if search and target not in targets.faults:
            try:
                _read(admin, topic_id, target, first, targets.before)
            except KafkaError as error:
                place = f"{target.topic}-{target.partition}"
                targets.faults[target] = f"{place} cannot be searched for what was redriven before: {error.message}"
    return targets


def _missing(admin: Admin, firsts: Mapping[TopicPartition, First]) -> dict[TopicPartition, str]:
    names = sorted({target.topic for target in firsts})
    counts: dict[str, int] = {}
    for at in range(0, len(names), _NAMES):
        found = admin.list_topics(names[at : at + _NAMES])
        counts |= {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}
    return {
        target: f"there is no topic {target.topic} any more"
        if target.topic not in counts
        else f"{target.topic} has {counts[target.topic]} partitions, and no partition {target.partition}"
        for target in firsts
        if target.partition >= counts.get(target.topic, 0)
    }


def _read(admin: Admin, topic_id: str, target: TopicPartition, first: First, before: SeenOrigins) -> None:
    """Add the origins whose fresh records are in the partition to `before`."""
    offsets: dict[int, int] = {}
    for spec in (OFFSET_EARLIEST, OFFSET_LATEST):
        found = admin.list_offsets({target: spec})[target]
        if isinstance(found, KafkaError):
            raise found
        offsets[spec] = found
    start, end = offsets[OFFSET_EARLIEST], offsets[OFFSET_LATEST]
    at = start if _is_younger(admin, target, start, first) else max(start, first.offset + 1)
    printed_s = time.monotonic()
    while at < end:
        read = admin.read_records(target, at)
        for record in read.records:
            said = redriven_of(record.headers) if record.headers else None
            if said is not None and said.topic_id == topic_id:
                scope = Scope(said.group, target.topic, target.partition, said.origin_topic_id)
                content = content_of(record.key, record.value, record.timestamp_ms, record.headers)
                before.add(scope, said.origin_offset, content)
        if read.next_offset == at:
            return
        at = read.next_offset
        if time.monotonic() - printed_s >= _PROGRESS_S:
            printed_s = time.monotonic()
            print_stderr(
                f"Looking for what was redriven before: {target.topic}-{target.partition}, offset {at} of {end}."
            )


def _is_younger(admin: Admin, target: TopicPartition, start: int, first: First) -> bool:
    """Return whether the whole partition may be younger than the first dead letter: its topic may have been re-created.

    In a re-created topic the offsets start again. In any other, a fresh record has a higher offset than its origin.
    """
    read = admin.read_records(target, start, 1)
    if not read.records:
        return True
    append_ms = read.records[0].append_time_ms
    return append_ms is None or append_ms + SKEW_MS >= first.stored_ms
