"""`sharegroups groups explain`: prints why records are, or are not, delivered to a group (CT-110, CT-111)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, Final, NamedTuple

import click

from kip932.acls import REFUSED_LATELY
from kip932.errors import GroupIdNotFoundError, KafkaError, UnknownTopicOrPartitionError
from kip932.ids import EXPLAINED_OFFSETS_MAX, TopicPartition
from kip932.nearest_name import did_you_mean
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource, RecordExplanation, RecordsExplained
from sharegroups.cli.groups.asking import COMMAND, not_found, reached, refuse, timeout_option
from sharegroups.cli.groups.named import NamedByOptions
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    output_option,
    print_json,
    print_stderr,
)

#: How many times --offset may be given; each causes one request to the leader.
RANGES_MAX: Final = 20
_OFFSETS: Final = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?")
_OFFSET_MAX: Final = 2**63 - 1
_DLQ_NAME: Final = "errors.deadletterqueue.topic.name"
#: States of a record that may have been given up on.
_ENDED_STATES: Final = frozenset({"finished", "archived"})
_NEVER_USED: Final = "no_state"
_TOPICS_NAMED_MAX: Final = 10


class Span(NamedTuple):
    """Offsets from the first to the last, inclusive."""

    first: int
    last: int


@click.command(cls=NamedByOptions)
@click.option("--group", required=True, type=NAME, help="The group.")
@click.option(
    "--topic", "place", required=True, help="Topic and partition, as in orders:0; without --offset a topic will do."
)
@click.option(
    "--offset",
    "texts",
    multiple=True,
    metavar="N|N-M",
    help="Offset, or offsets N to M; repeatable. Without it the first records that the group has not finished.",
)
@timeout_option
@connection_options
@output_option
def explain(
    *,
    group: str,
    place: str,
    texts: tuple[str, ...],
    timeout: int,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Explain why a record is not delivered: its state for a group, who holds it and until when, and what it waits for.

    Without --offset it explains the first records that the group has not finished, and so why it gets no records. It
    changes nothing.
    """
    topic = place if not texts and place.strip() and ":" not in place else None
    partition, spans = TopicPartition(place, 0) if topic is not None else _partition(place), _spans(texts)
    with (
        failures(COMMAND),
        reached(bootstrap_server, command_config, timeout) as admin,
        _missing_refused(admin, group, partition),
    ):
        if spans:
            answers = [admin.explain_record(group, partition, span.first, span.last) for span in spans]
        else:
            chosen = [partition] if topic is None else _partitions(admin, topic)
            answers = [first_unfinished(admin, group, one) for one in chosen[:UNFINISHED_PARTITIONS_MAX]]
        notes = [] if output == "json" else next_checks(admin, group, answers)
    if output == "json":
        print_json([_document(answer) for answer in answers])
        return
    _print(answers, in_one=bool(spans))
    if not spans and len(chosen) > len(answers):
        print_stderr(
            f"Note: {place} has {len(chosen)} partitions; name one to see others, as in {place}:{len(answers)}."
        )
    for note in notes:
        print_stderr(f"Note: {note}")


def _print(answers: Sequence[RecordsExplained], *, in_one: bool) -> None:
    """Print the responses. `in_one`: print them as one, since all are about requested offsets of one partition."""
    if in_one:
        _show(answers)
        return
    for number, answer in enumerate(answers):
        if number:
            click.echo()
        _show([answer])
        if nothing_left(answer):
            click.echo("  The group has finished every record of this partition.")


@contextmanager
def _missing_refused(admin: Admin, group: str, partition: TopicPartition) -> Iterator[None]:
    """End the command when a group, topic or partition does not exist, with an error that names what exists."""
    try:
        yield
    except GroupIdNotFoundError as error:
        _, lately, who = error.message.partition(REFUSED_LATELY)
        if lately:
            print_stderr(f"Note: {lately}{who}")
        refuse(not_found(admin, [group])[group])
    except UnknownTopicOrPartitionError:
        refuse(_missing_text(admin, partition))


def _partitions(admin: Admin, topic: str) -> list[TopicPartition]:
    """Return all partitions of a topic. Raises KafkaError."""
    described = admin.list_topics([topic])[topic]
    if described.error is not None:
        raise described.error
    return [TopicPartition(topic, part.partition) for part in described.partitions]


def _missing_text(admin: Admin, partition: TopicPartition) -> str:
    """Return the error text for a topic or partition that does not exist."""
    topic, number = partition
    known = admin.list_topics()
    if topic in known:
        return f"Topic {topic} has {len(known[topic].partitions)} partitions, from 0 on, and no partition {number}."
    return f"Topic {topic} not found.{did_you_mean(topic, known)} All topics: sharegroups topics list"


def _partition(text: str) -> TopicPartition:
    """Parse TOPIC:PARTITION. Raises UsageFailure."""
    topic, colon, number = text.rpartition(":")
    if not topic or not colon or not number.isascii() or not number.isdigit() or int(number) >= 2**31:
        raise UsageFailure(f"--topic {text!r}: expected one partition of a topic, TOPIC:PARTITION, as in orders:0")
    return TopicPartition(topic, int(number))


def _spans(texts: Sequence[str]) -> list[Span]:
    """Return the requested offsets in the order given. Raises UsageFailure."""
    found = [_span(text) for text in texts]
    count = sum(span.last - span.first + 1 for span in found)
    if len(found) > RANGES_MAX or count > EXPLAINED_OFFSETS_MAX:
        raise UsageFailure(
            f"--offset names {count} offsets in {len(found)} ranges; at most {EXPLAINED_OFFSETS_MAX} in {RANGES_MAX} "
            "are explained at a time"
        )
    return found


def _span(text: str) -> Span:
    match = _OFFSETS.fullmatch(text.strip())
    if match is None:
        raise UsageFailure(f"--offset {text!r}: expected an offset from 0 on, or a range of them, as in 17 or 17-20")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first or last > _OFFSET_MAX:
        raise UsageFailure(f"--offset {text!r}: the range must end at or after its begin, and at {_OFFSET_MAX} at most")
    return Span(first, last)


def _show(answers: Sequence[RecordsExplained]) -> None:
    newest = answers[-1]
    for line in position_lines(newest):
        click.echo(line)
    for answer in answers:
        for record in answer.records:
            click.echo()
            for line in record_lines(record):
                click.echo(line)
    if newest.group_error is not None:
        print_stderr(f"Note: the group's members are not known: {newest.group_error.message}")


def position_lines(newest: RecordsExplained) -> Iterator[str]:
    """Yield where the group is in the partition, its members, and how much of its window is used."""
    topic, partition = newest.partition
    start = "not set" if newest.start_offset is None else newest.start_offset
    log = (
        f"the log has offsets {newest.log_start_offset} to {newest.high_watermark - 1}"
        if newest.high_watermark > newest.log_start_offset
        else f"the log is empty, its next offset is {newest.high_watermark}"
    )
    yield f"Group {printable(newest.group_id)}, {printable(topic)}-{partition}: start offset {start}; {log}."
    yield _members(newest)
    if newest.loaded:
        yield _window(newest)


def _members(answer: RecordsExplained) -> str:
    fetching = f"{answer.fetching_members} fetch this partition now"
    if answer.group_state is None:
        return f"Members: {fetching}."
    return (
        f"{answer.group_state}; members: {answer.members}, {answer.assigned_members} have this partition, {fetching}."
    )


def _window(answer: RecordsExplained) -> str:
    """Return the number of records that members hold, as in the column IN-FLIGHT of `groups describe`, and the number
    of offsets that count towards the lock limit."""
    held = "" if answer.in_flight is None else f"In flight: {answer.in_flight}. "
    many = f"{answer.in_flight_offsets} of at most {answer.max_record_locks} offsets"
    return f"{held}Window from the start offset to the last one fetched, finished ones included: {many}."


def record_lines(record: RecordExplanation) -> Iterator[str]:
    """Yield what is known about a record, or about a run of similar neighbours, escaped."""
    first, last = record.first_offset, record.last_offset
    span = str(first) if first == last else f"{first}-{last} ({last - first + 1} offsets)"
    yield f"{span}: {record.state.replace('_', ' ')}"
    yield f"  {printable(record.explanation)}"
    if record.reason is not None:
        first_line, *more = record.reason.split("\n")
        yield f"  Reason given at delivery {record.reason_delivery_count}: {printable(first_line)}"
        for line in more:
            yield f"    {printable(line)}"
    if record.client_id is not None:
        host = f" at {printable(record.client_host.lstrip('/'))}" if record.client_host else ""
        client = printable(record.client_id) or "a client without client.id"
        yield f"  Member {printable(record.member_id or '')} is {client}{host}."
    if record.append_time_ms is not None:
        which = "It was" if first == last else "The first was"
        yield f"  {which} written {_time(record.append_time_ms)}."


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def next_checks(admin: Admin, group: str, answers: Sequence[RecordsExplained]) -> list[str]:
    """Return hints on what to check next, as lines: for finished records, and for a topic that the
    group never used (CT-110). A hint is left out if the cluster does not return what it needs."""
    lines: list[str] = []
    for answer in answers:
        topic, number = answer.partition
        if any(record.state in _ENDED_STATES for record in answer.records):
            lines.append(_check_of_ended(admin, group, topic, number))
        if any(record.obstacle == _NEVER_USED for record in answer.records):
            lines.extend(_check_of_unused(admin, group, topic))
    return list(dict.fromkeys(lines))


def _check_of_ended(admin: Admin, group: str, topic: str, number: int) -> str:
    """Return where to find out whether the group gave up on a record, and why."""
    entry = None
    with suppress(KafkaError):
        configs = admin.describe_configs([ConfigResource.group(group)])[ConfigResource.group(group)]
        entry = None if isinstance(configs, KafkaError) else configs.get(_DLQ_NAME)
    line = f"a line records_archived of {printable(topic)}-{number} in its leader's log, with offset and cause"
    if entry is None or not entry.value:
        return (
            f"A record that was given up has {line}. Group {printable(group)} has no dead-letter topic ({_DLQ_NAME})."
        )
    command = f"sharegroups dlq list --group {quote(group)} --origin {quote(topic)}:{number}"
    log = "what its job raised is the reason, if its member gave one, and in the log of the worker that ran it"
    return f"A record that was given up has a dead letter: {command}; and {line}; {log}."


def _check_of_unused(admin: Admin, group: str, topic: str) -> Iterable[str]:
    used: set[str] = set()
    with suppress(KafkaError):
        used = {part.topic for part in admin.list_share_group_partitions(group)}
    if not used or topic in used:
        return
    more = len(used) - _TOPICS_NAMED_MAX
    named = ", ".join(sorted(map(printable, used))[:_TOPICS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    yield f"Group {printable(group)} never used {printable(topic)}.{did_you_mean(topic, used)} It has used: {named}."


def _document(answer: RecordsExplained) -> dict[str, Any]:
    document = asdict(answer)
    topic, partition = answer.partition
    del document["partition"]
    error = answer.group_error
    leader = {"node_id": answer.leader.node_id, "host": answer.leader.host, "port": answer.leader.port}
    return {
        "group": document.pop("group_id"),
        "topic": topic,
        "partition": partition,
        **document,
        "leader": leader,
        "group_error": None if error is None else error.message,
    }


#: The maximum number of records, or of runs of similar neighbours, shown for a partition; and of partitions shown.
UNFINISHED_SHOWN_MAX: Final = 5
UNFINISHED_PARTITIONS_MAX: Final = 20
#: States of records that are not delivered to the group, or not delivered again.
_FINISHED_STATES: Final = frozenset({"acknowledged", "archived", "finished", "deleted", "hole"})


def first_unfinished(admin: Admin, group: str, partition: TopicPartition) -> RecordsExplained:
    """Return the leader's response about the first unfinished records from the group's start offset on.

    If all are finished, the response is about the next offset, where no record has been written yet. Raises KafkaError.
    """
    first, last = offsets_to_ask(
        admin.explain_record(group, partition, 0, 0)
    )  # any offset will do: the response contains the bounds
    answer = admin.explain_record(group, partition, first, last)
    return replace(answer, records=unfinished_of(answer.records))


def unfinished_of(records: Sequence[RecordExplanation]) -> tuple[RecordExplanation, ...]:
    """Return the first records that are not finished; the last record if all are finished."""
    left = [record for record in records if record.state not in _FINISHED_STATES]
    return tuple(left[:UNFINISHED_SHOWN_MAX] or records[-1:])


def nothing_left(answer: RecordsExplained) -> bool:
    """Return whether the group has finished every record of the partition."""
    return answer.start_offset is not None and all(record.state == "beyond_end" for record in answer.records)


def offsets_to_ask(answer: RecordsExplained) -> tuple[int, int]:
    """Return the first and the last offset to ask about, both inclusive."""
    first = max(answer.log_start_offset, answer.start_offset or 0)
    return first, max(first, min(first + EXPLAINED_OFFSETS_MAX, answer.high_watermark) - 1)
