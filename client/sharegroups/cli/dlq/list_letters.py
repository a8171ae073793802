"""`sharegroups dlq list`: one line for each letter, or the number of letters of each kind (CT-123)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from sharegroups.cli.columns import legend
from sharegroups.cli.dlq.choosing import Filters, choice_of, filter_options, topic_options
from sharegroups.cli.dlq.reading import Found, Reading, queue_of
from sharegroups.cli.dlq.rows import LetterTable, document_of, is_duplicate, row_of, text_of
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.dlq.values import Values
from sharegroups.cli.dlq.which import which_letters
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_table,
    settings,
    tell,
)
from sharegroups.cli.reaching import reached_admin
from sharegroups.core.dead_letters import Letter
from sharegroups.core.letter_tally import Row, Tally
from sharegroups.core.met_origins import MetOrigins

#: A partition, a letter in it, and whether it is a duplicate.
Listed = tuple[int, Found, Letter, bool]


@click.command("list", epilog=legend("sharegroups dlq list", "sharegroups dlq list --summary"))
@topic_options
@filter_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N letters.")
@click.option("--summary", is_flag=True, help="How many letters of each group, origin topic and cause.")
@connection_options
@output_option
def list_(
    *,
    topic: str | None,
    group: str | None,
    origin: str | None,
    cause: str | None,
    since: str | None,
    until: str | None,
    limit: int | None,
    summary: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """List the dead letters of a DLQ topic, the oldest of each partition first. Listing changes nothing.

    With --output json each letter is an object on a line of its own.
    """
    given = settings(bootstrap_server, command_config)
    if topic is None and group is None:
        with failures("Listing dead letters"), reached_admin(given) as admin:
            raise UsageFailure(which_letters(admin))
    choice = choice_of(topic, group, origin=origin, cause=cause, since=since, until=until)
    with failures("Listing dead letters"), reached_admin(given) as admin:
        queue = queue_of(admin, choice, changes=False)
        reading, values = Reading(admin, queue), Values(choice.filters)
        pages = _chosen(reading, choice.filters, values, limit)
        if summary:
            _summarise(pages, output)
        else:
            _print(queue.topic, pages, output)
    for line in values.missing():
        tell(line)
    reading.tell_strangers()
    finish(reading.is_whole and not queue.is_partly)


def _chosen(reading: Reading, filters: Filters, values: Values, limit: int | None) -> Iterator[list[Listed]]:
    """Yield the letters that pass the filters, in pages that are not empty."""
    met = MetOrigins()
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
                listed.append((page.partition, found, letter, twice))
        if listed:
            yield listed[:left]
        if left is not None:
            left -= len(listed)
            if left <= 0:
                return


def _print(topic: str, pages: Iterator[list[Listed]], output: str) -> None:
    table = LetterTable()
    listed = None
    for listed in pages:
        if output == "json":
            for partition, found, letter, twice in listed:
                print_json(document_of(topic, partition, found, letter, twice))
        else:
            table.print([row_of(partition, found, letter, twice) for partition, found, letter, twice in listed])
    if listed is None and output != "json":
        tell(f"No such dead letter in {topic}.")


def _summarise(pages: Iterator[list[Listed]], output: str) -> None:
    tally = Tally()
    for listed in pages:
        for _, found, letter, twice in listed:
            topic = "-" if letter.origin is None else letter.origin.topic
            tally.add((letter.group_text, topic, letter.cause or "-"), found.stored_ms, twice)
    rows = tally.rows()
    if tally.others.letters:
        rows.append((("(others)", "-", "-"), tally.others))
    if output == "json":
        print_json([_document(key, row) for key, row in rows])
    else:
        header = ("GROUP", "ORIGIN", "LETTERS", "DUPLICATES", "FIRST", "LAST", "CAUSE")
        cells = [
            (group, topic, row.letters, row.duplicates, time_text(row.first_ms), time_text(row.last_ms), cause)
            for (group, topic, cause), row in rows
        ]
        print_table(header, cells, (15, 15, 10, 10, 20, 20, 0))


def _document(key: tuple[str, ...], row: Row) -> dict[str, object]:
    group, topic, cause = map(text_of, key)
    return {
        "group": group,
        "origin_topic": topic,
        "cause": cause,
        "letters": row.letters,
        "duplicates": row.duplicates,
        "first_stored_ms": row.first_ms,
        "last_stored_ms": row.last_ms,
    }
