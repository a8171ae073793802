"""`sharegroups dlq list`: prints one line for each dead letter, or the number of dead letters of each kind (CT-123)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import click

from kip932.errors import KafkaError
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource
from sharegroups.cli.columns import legend
from sharegroups.cli.dlq.choosing import Filters, choice_of, filter_options, topic_options
from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.core.letter_tally import Row, Tally
from sharegroups.cli.dlq.core.seen_origins import SeenOrigins
from sharegroups.cli.dlq.reading import TOPIC_NAME, Found, Reading, queue_of
from sharegroups.cli.dlq.rows import LetterTable, document_of, first_line, for_screen, is_duplicate, row_of, text_of
from sharegroups.cli.dlq.sent_back import SEARCH_S, SentBack
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.dlq.values import Values
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    print_table,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin

#: How many groups are checked; how many topics are printed; and how many groups for each topic.
_GROUPS_MAX: Final = 200
_NAMED_MAX: Final = 10


class Listed(NamedTuple):
    """A dead letter of a partition. `is_sent`: whether it was sent back; None when that is not known."""

    partition: int
    found: Found
    letter: Letter
    is_duplicate: bool
    is_sent: bool | None = None


@click.command("list", epilog=legend("sharegroups dlq list", "sharegroups dlq list --summary"))
@topic_options
@filter_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N letters.")
@click.option("--summary", is_flag=True, help="How many letters of each group, origin topic, cause and reason.")
@connection_options
@output_option
def list_(
    *,
    topic: str | None,
    group: str | None,
    origin: str | None,
    cause: str | None,
    reason: str | None,
    since: str | None,
    until: str | None,
    limit: int | None,
    summary: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """List the dead letters of a DLQ topic, the oldest of each partition first. Listing changes nothing.

    Those whose records were sent back have the flag sent-back. To find them, it searches the topics that the letters
    are about, which needs the right READ there, for at most 5 s; then a note says of how many letters it is not known.

    With --output json each letter is an object on a line of its own.
    """
    given = settings(bootstrap_server, command_config)
    if topic is None and group is None:
        with failures("Listing dead letters"), open_reachable_admin(given) as admin:
            raise UsageFailure(_which_letters(admin))
    choice = choice_of(topic, group, origin=origin, cause=cause, reason=reason, since=since, until=until)
    with failures("Listing dead letters"), open_reachable_admin(given) as admin:
        queue = queue_of(admin, choice, changes=False)
        reading, values = Reading(admin, queue, prints_progress=summary), Values(choice.filters)
        search = SentBack(admin, queue, SEARCH_S)
        pages = _with_sent(_chosen(reading, choice.filters, values, limit), search)
        if summary:
            _summarise(pages, output)
        else:
            _print(reading, pages, output)
    for line in values.missing():
        print_stderr(line)
    if note := search.note():
        print_stderr(f"Note: {note}.")
    reading.note_other_records()
    finish(reading.is_whole and not queue.is_partial)


def _which_letters(admin: Admin) -> str:
    """Return the text for a command that names neither a topic nor a group: which options to give, and the groups'
    dead-letter topics that could be read (CT-120)."""
    topics: dict[str, list[str]] = {}
    with suppress(KafkaError):  # only the hint is missing then
        topics = _dead_letter_topics(admin)
    named = [f"{printable(topic)} (of {_first_names(topics[topic])})" for topic in sorted(topics)]
    there = f"Dead-letter topics of groups: {_first_names(named)}" if named else "No group here has a dead-letter topic"
    return f"which letters? Give --topic DLQ, or --group G for the DLQ topic of a group. {there}."


def _dead_letter_topics(admin: Admin) -> dict[str, list[str]]:
    """Return the dead-letter topics with their groups. Raises KafkaError."""
    groups = [listing.group_id for listing in admin.list_groups(None, ["share"])][:_GROUPS_MAX]
    found = admin.describe_configs([ConfigResource.group(group) for group in groups]) if groups else {}
    topics: dict[str, list[str]] = {}
    for resource, configs in found.items():
        entry = None if isinstance(configs, KafkaError) else configs.get(TOPIC_NAME)
        if entry is not None and entry.value:
            topics.setdefault(entry.value, []).append(printable(resource.name))
    return topics


def _first_names(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _chosen(reading: Reading, filters: Filters, values: Values, limit: int | None) -> Iterator[list[Listed]]:
    """Yield the dead letters that pass the filters, in pages that are not empty."""
    met = SeenOrigins()
    left = limit
    for page in reading.pages():
        listed: list[Listed] = []
        for found in page.found:
            letter = found.letter
            if letter is None:
                continue
            values.note(letter)
            twice = is_duplicate(met, found, letter)
            if filters.passes(letter, found.stored_ms):
                listed.append(Listed(page.partition, found, letter, twice))
        if listed:
            yield listed[:left]
        if left is not None:
            left -= len(listed)
            if left <= 0:
                return


def _with_sent(pages: Iterator[list[Listed]], search: SentBack) -> Iterator[list[Listed]]:
    """Find out of each page's letters whether they were sent back."""
    for listed in pages:
        sent = search.of([one.found for one in listed])
        yield [one._replace(is_sent=found.back) for one, found in zip(listed, sent, strict=True)]


def _print(reading: Reading, pages: Iterator[list[Listed]], output: str) -> None:
    topic, table = reading.queue.topic, LetterTable()
    listed = None
    for listed in pages:
        if output == "json":
            for partition, found, letter, twice, is_sent in listed:
                print_json(document_of(topic, partition, found, letter, twice, is_sent=is_sent))
        else:
            table.print([row_of(*one[:4], one.is_sent is True) for one in listed])
    if listed is None and output != "json" and reading.is_whole:  # else there may be some that could not be read
        print_stderr(f"No such dead letter in {topic}.")


def _summarise(pages: Iterator[list[Listed]], output: str) -> None:
    tally = Tally()
    for listed in pages:
        for _, found, letter, twice, is_sent in listed:
            topic = "-" if letter.origin is None else letter.origin.topic
            key = (letter.group_text, topic, letter.cause or "-", first_line(letter))
            tally.add(key, found.stored_ms, twice, is_sent)
    rows = tally.rows()
    if tally.others.letters:
        rows.append((("(others)", "-", "-", "-"), tally.others))
    if output == "json":
        print_json([_document(key, row) for key, row in rows])
    else:
        header = ("GROUP", "ORIGIN", "LETTERS", "SENT-BACK", "DUPLICATES", "FIRST", "LAST", "CAUSE", "REASON")
        cells = [_cells(*key, row=row) for key, row in rows]
        print_table(header, cells, (15, 15, 10, 10, 10, 20, 20, 15, 0))


def _cells(group: str, topic: str, cause: str, reason: str, *, row: Row) -> tuple[object, ...]:
    times = time_text(row.first_ms), time_text(row.last_ms)
    return group, topic, row.letters, row.sent.text, row.duplicates, *times, cause, for_screen(reason)


def _document(key: tuple[str, ...], row: Row) -> dict[str, object]:
    group, topic, cause, reason = map(text_of, key)
    return {
        "group": group,
        "origin_topic": topic,
        "cause": cause,
        "reason": None if reason == "-" else reason,
        "letters": row.letters,
        "sent_back": row.sent.back,
        "not_known_whether_sent_back": row.sent.unknown,
        "duplicates": row.duplicates,
        "first_stored_ms": row.first_ms,
        "last_stored_ms": row.last_ms,
    }
