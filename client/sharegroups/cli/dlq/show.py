"""`sharegroups dlq show`: prints one dead letter in full. If it has no copy of its record, also prints the original
record while its topic still has it (CT-124)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kip932.errors import OffsetOutOfRangeError
from kip932.ids import OFFSET_MAX, TopicPartition
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import ReadRecord
from sharegroups.cli.dlq.choosing import Where, choice_of, where_of
from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.origins import origin_of
from sharegroups.cli.dlq.reading import Found, Queue, found_of, queue_of
from sharegroups.cli.dlq.rows import document_of
from sharegroups.cli.dlq.sent_back import SEARCH_S, Sent, SentBack, sent_text
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.groups.asking import refuse
from sharegroups.cli.output import (
    NAME,
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


@click.command()
@click.option("--topic", required=True, type=NAME, metavar="DLQ:P", help="The DLQ topic and the partition.")
@click.option("--offset", required=True, type=click.IntRange(0, OFFSET_MAX), help="Where the letter is.")
@connection_options
@output_option
def show(topic: str, offset: int, bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Show one dead letter in full: where it comes from and why, whether it was sent back, its key, value and headers.

    If it has no copy of its record, the original record is shown while its topic still has it.
    """
    where = where_of("--topic", topic)
    if where.partition is None:
        raise UsageFailure(f"--topic {topic!r}: show needs the partition too, as in {topic}:0")
    given = settings(bootstrap_server, command_config)
    with failures("Showing a dead letter"), open_reachable_admin(given) as admin:
        queue = queue_of(admin, choice_of(topic, None), changes=False)
        if queue.is_partial:
            raise SystemExit(1)
        found = found_of(_record(admin, queue, where, offset))
        sent = SentBack(admin, queue, SEARCH_S, timed=True).of([found])[0]
        letter = found.letter
        origin = None
        if letter is not None and letter.is_headers_only and letter.origin is not None:
            origin = origin_of(admin, letter.origin, letter.topic_id, found.stored_ms)
    if output == "json":
        print_json(_document(queue, where.partition, found, origin, sent))
    else:
        for text in _lines(queue, where.partition, found, origin, sent):
            click.echo(text)
    if letter is None:
        print_stderr("Note: this record is not a dead letter: it does not end with the headers of one.")


def _record(admin: Admin, queue: Queue, where: Where, offset: int) -> ReadRecord:
    """Return the record. Raises KafkaError; exits with 1 when there is none."""
    assert where.partition is not None
    start, end = queue.partitions[where.partition]
    name = f"{where.topic}-{where.partition}"
    held = f"its offsets are {start} to {end - 1}" if end > start else f"it is empty, its next offset is {end}"
    try:
        read = admin.read_records(TopicPartition(where.topic, where.partition), offset, 1)
    except OffsetOutOfRangeError:
        refuse(f"{name} has no offset {offset}; {held}.")
    for lost in read.unreadable:
        refuse(f"{name} offset {offset} cannot be read: {lost.error}")
    found = next((record for record in read.records if record.offset == offset), None)
    if found is None:
        refuse(f"{name} has no record at offset {offset}; {held}.")
    return found


def _lines(queue: Queue, partition: int, found: Found, origin: ReadRecord | str | None, sent: Sent) -> Iterator[str]:
    record, letter = found.record, found.letter
    yield f"{printable(queue.topic)}-{partition} offset {record.offset}"
    yield line("Stored", time_text(found.stored_ms))
    yield line("Timestamp", time_text(record.timestamp_ms))
    if letter is not None:
        yield from _meaning(letter, sent)
    yield from content_lines(record, record.headers if letter is None else letter.others)
    if isinstance(origin, ReadRecord):
        assert letter is not None
        yield ""
        yield f"The record it is about, {printable(letter.origin_text)}"
        yield line("Timestamp", time_text(origin.timestamp_ms))
        yield from content_lines(origin, origin.headers)
    elif origin is not None:
        yield ""
        yield f"The record it is about cannot be shown: {printable(origin)}."


def _meaning(letter: Letter, sent: Sent) -> Iterator[str]:
    yield line("Group", letter.group_text)
    yield line("Origin", letter.origin_text)
    if letter.topic_id:
        yield line("Topic id", letter.topic_id)
    yield line("Deliveries", "-" if letter.delivery_count is None else str(letter.delivery_count))
    yield line("Cause", "-" if letter.cause is None else letter.cause)
    first, *more = ["-"] if letter.reason is None else letter.reason.split("\n")
    yield line("Reason", first)
    yield from (f"    {printable(text)}" for text in more)
    yield line("Redrives", "-" if letter.redrives is None else str(letter.redrives))
    yield line("Sent back", sent_text(sent))
    if letter.is_garbled:
        yield line("Garbled", "a header of the letter cannot be read")
    if letter.is_headers_only:
        yield line("Copy", "none; the letter has headers only")


def _document(
    queue: Queue, partition: int, found: Found, origin: ReadRecord | str | None, sent: Sent
) -> dict[str, Any]:
    letter, record = found.letter, found.record
    if letter is None:
        place = {"topic": queue.topic, "partition": partition, "offset": record.offset, "letter": False}
        return place | {"stored_ms": found.stored_ms} | record_document(record, record.headers)
    document = document_of(queue.topic, partition, found, letter, is_duplicate=False, is_sent=sent.back)
    del document["duplicate"]  # unknown here, since only one dead letter is read
    document |= {"sent_back_ms": sent.at_ms, "sent_back_fault": sent.why or None}
    document |= {"letter": True} | record_document(record, letter.others)
    document["origin_record"] = record_document(origin, origin.headers) if isinstance(origin, ReadRecord) else None
    document["origin_missing"] = origin if isinstance(origin, str) else None
    return document
