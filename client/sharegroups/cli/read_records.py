"""`sharegroups topics read`: prints records of a partition by their offsets (CT-144)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from kip932.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, OFFSET_MAX, TopicPartition
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import ReadRecord, UnreadableRecords
from sharegroups.cli.dlq.choosing import where_of
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.groups.asking import refuse
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.record_text import content_lines, line, record_document

_COUNT_MAX: Final = 1_000_000


@click.command("read")
@click.argument("place", metavar="TOPIC:PARTITION")
@click.option(
    "--offset", type=click.IntRange(0, OFFSET_MAX), help="Where to start; by default at the first record that is there."
)
@click.option(
    "--count", type=click.IntRange(1, _COUNT_MAX), default=1, show_default=True, help="How many records, at most."
)
@connection_options
@output_option
def read_records(
    *, place: str, offset: int | None, count: int, bootstrap_server: str, command_config: Path | None, output: str
) -> None:
    """Print records of a partition by offset, whether or not they were consumed. No group is involved, none is changed.

    Records of transactions are printed too, also of open and aborted ones.
    """
    where = where_of("TOPIC:PARTITION", place)
    if where.partition is None:
        raise UsageFailure(f"{place!r}: read needs the partition too, as in {place}:0")
    partition = TopicPartition(where.topic, where.partition)
    name = f"{printable(where.topic)}-{where.partition}"
    shown = lost = 0
    with failures(f"Reading {name}"), open_reachable_admin(settings(bootstrap_server, command_config)) as admin:
        start, end = _bounds(admin, partition, name)
        if offset is not None and not start <= offset < end:
            held = f"its offsets are {start} to {end - 1}" if end > start else f"it is empty, its next offset is {end}"
            refuse(f"{name} has no offset {offset}; {held}.")
        for found in _records(admin, partition, name, start if offset is None else offset, end):
            if isinstance(found, UnreadableRecords):
                lost += 1
                span = f"{name} offsets {found.first_offset} to {found.last_offset}"
                print_stderr(f"Error: {span} cannot be read: {found.error}")
                continue
            _print(partition, name, found, output, is_first=not shown)
            shown += 1
            if shown == count:
                break
    if shown < count:
        print_stderr(f"Note: {shown or 'no'} record{'' if shown == 1 else 's'}, since {name} ends there.")
    if lost:
        raise SystemExit(1)


def _bounds(admin: Admin, partition: TopicPartition, name: str) -> tuple[int, int]:
    """Return the log's start and end. Raises KafkaError; exits with 1 for a partition that does not exist."""
    offsets = []
    for which in (OFFSET_EARLIEST, OFFSET_LATEST):
        found = admin.list_offsets({partition: which})[partition]
        if isinstance(found, UnknownTopicOrPartitionError):
            refuse(f"There is no {name}: `sharegroups topics describe` shows the topics and their partitions.")
        if isinstance(found, KafkaError):
            raise found
        offsets.append(found)
    return offsets[0], offsets[1]


def _records(
    admin: Admin, partition: TopicPartition, name: str, offset: int, end: int
) -> Iterator[ReadRecord | UnreadableRecords]:
    """Yield the records from `offset` to the end of the log, as it is while they are read."""
    while offset < end:
        try:
            read = admin.read_records(partition, offset)
        except OffsetOutOfRangeError:
            start, end = _bounds(admin, partition, name)
            if start <= offset < end:
                raise
            offset = max(offset, start)  # records were deleted meanwhile
            continue
        found: list[ReadRecord | UnreadableRecords] = [*read.records, *read.unreadable]
        yield from sorted(found, key=_offset_of)
        if read.next_offset <= offset:
            return
        offset, end = read.next_offset, read.high_watermark


def _offset_of(found: ReadRecord | UnreadableRecords) -> int:
    return found.offset if isinstance(found, ReadRecord) else found.first_offset


def _print(partition: TopicPartition, name: str, record: ReadRecord, output: str, *, is_first: bool) -> None:
    if output == "json":
        place: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition, "offset": record.offset}
        print_json(place | {"append_time_ms": record.append_time_ms} | record_document(record, record.headers))
        return
    if not is_first:
        click.echo()
    click.echo(f"{name} offset {record.offset}")
    if record.append_time_ms is not None:
        click.echo(line("Stored", time_text(record.append_time_ms)))
    click.echo(line("Timestamp", time_text(record.timestamp_ms)))
    for text in content_lines(record, record.headers):
        click.echo(text)
