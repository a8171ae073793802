"""`sharegroups dlq purge`: shows which dead letters it will delete, and deletes them (CT-128)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import click

from kip932.errors import KafkaError
from kip932.ids import OFFSET_MAX
from kip932.printable import printable
from sharegroups.cli.columns import legend
from sharegroups.cli.dlq.choosing import Where, choice_of, where_of
from sharegroups.cli.dlq.core.letter_tally import Row, SentCounts, Tally
from sharegroups.cli.dlq.reading import Bounds, Page, Queue, Reading, delete_before, queue_of
from sharegroups.cli.dlq.rows import text_of
from sharegroups.cli.dlq.sent_back import SentBack
from sharegroups.cli.dlq.times import duration_ms, time_text
from sharegroups.cli.groups.asking import can_ask, refuse, undecided
from sharegroups.cli.output import (
    NAME,
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

Outcomes = Mapping[int, int | KafkaError]

#: The group and cause printed for dead letters of further kinds, once there are too many kinds to count separately.
_OTHER_KINDS = ("(others)", "-")


class PurgePlan:
    """The dead letters to delete. `ends`: for each partition that loses records, the offset before which they are
    deleted."""

    def __init__(self, whole: Mapping[int, Bounds], search: SentBack | None = None) -> None:
        self.ends: dict[int, int] = {}
        self.sent = SentCounts()
        self._search = search
        self._whole = whole
        self._letters = Tally()
        self._other_records = 0

    def take(self, page: Page, end: int) -> None:
        """Count the page's records before `end`: they will be deleted."""
        going = [found for found in page.found if found.record.offset < end]
        for _, stored_ms, letter in going:
            if letter is None:
                self._other_records += 1
            else:
                self._letters.add((letter.group_text, letter.cause or "-"), stored_ms)
        if self._search is not None:
            for sent in self._search.of([found for found in going if found.letter is not None]):
                self.sent.add(sent.back)
        if end > self._whole[page.partition].start:
            self.ends[page.partition] = end

    @property
    def warnings(self) -> list[str]:
        """How many of the letters were not sent back, and for how many that is not known; empty if nothing was
        searched, or all were."""
        lines: list[str] = []
        if self.sent.waiting:
            lines.append(f"{self.sent.waiting} of the letters {_were(self.sent.waiting)} not sent back")
        if self._search is not None and (unknown := self._search.note()):
            lines.append(unknown[0].upper() + unknown[1:])
        return lines

    def show(self, topic: str) -> None:
        """Print what will be deleted, by group and cause, and the offsets of each partition."""
        if not self.ends:
            return
        rows = [
            (group, row.letters, time_text(row.first_ms), time_text(row.last_ms), cause)
            for (group, cause), row in self._rows()
        ]
        if rows:
            print_table(("GROUP", "LETTERS", "FIRST", "LAST", "CAUSE"), rows, (15, 10, 20, 20, 0))
            click.echo()
        click.echo(f"To be deleted: {self._letters.letters} dead letters and {self._other_records} other records.")
        for warning in self.warnings:
            click.echo(f"{warning}.")
        if self._search is not None and self._letters.letters and not self.warnings:
            click.echo("All of the letters were sent back.")
        for number, end in sorted(self.ends.items()):
            begins, ends = self._whole[number]
            left = f"what is from {end} on stays" if ends > end else "nothing stays"
            click.echo(f"{printable(topic)}-{number}: offsets {begins} to {end - 1}; {left}.")

    def document(self, topic: str, dry_run: bool, found: Mapping[int, int | KafkaError]) -> dict[str, Any]:
        """Return the plan and its outcome for JSON."""
        return {
            "topic": topic,
            "dry_run": dry_run,
            "letters": self._letters.letters,
            "not_sent_back": None if self._search is None else self.sent.waiting,
            "not_known_whether_sent_back": None if self._search is None else self.sent.unknown,
            "other_records": self._other_records,
            "by_cause": [
                {
                    "group": text_of(group),
                    "cause": text_of(cause),
                    "letters": row.letters,
                    "first_stored_ms": row.first_ms,
                    "last_stored_ms": row.last_ms,
                }
                for (group, cause), row in self._rows()
            ],
            "partitions": [
                {
                    "partition": number,
                    "log_start_offset": self._whole[number].start,
                    "end_offset": self._whole[number].end,
                    "delete_before": end,
                    "deleted_before": outcome if isinstance(outcome := found.get(number), int) else None,
                    "error": outcome.name if isinstance(outcome, KafkaError) else None,
                }
                for number, end in sorted(self.ends.items())
            ],
        }

    def _rows(self) -> list[tuple[tuple[str, ...], Row]]:
        rows = self._letters.rows()
        return [*rows, (_OTHER_KINDS, self._letters.others)] if self._letters.others.letters else rows


@click.command(epilog=legend("sharegroups dlq purge"))
@click.option("--topic", required=True, type=NAME, metavar="DLQ[:P]", help="The DLQ topic, or one partition of it.")
@click.option("--before-offset", type=click.IntRange(0, OFFSET_MAX), metavar="N", help="What is before it, of DLQ:P.")
@click.option("--all", "every", is_flag=True, help="All letters that there are now.")
@click.option("--older-than", metavar="DURATION", help="What was stored longer ago: 90s, 15m, 2h, 7d.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also of a topic that is not a dead-letter queue.")
@connection_options
@output_option
def purge(
    *,
    topic: str,
    before_offset: int | None,
    every: bool,
    older_than: str | None,
    dry_run: bool,
    yes: bool,
    force: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Delete dead letters, starting at the beginning of each partition. This cannot be undone.

    First it prints how many dead letters of each group and cause will be deleted, and how many of them were not sent
    back (with --yes only --dry-run looks for that), and asks for confirmation.
    """
    where = where_of("--topic", topic)
    if [before_offset is not None, every, older_than is not None].count(True) != 1:
        raise UsageFailure("which letters? Give one of --before-offset, --all and --older-than")
    if before_offset is not None and where.partition is None:
        raise UsageFailure(f"--before-offset is an offset of one partition: give --topic {topic}:P")
    before_ms = None if older_than is None else int(time.time() * 1_000) - duration_ms("--older-than", older_than)
    if not (yes or dry_run) and (output == "json" or not can_ask()):
        raise UsageFailure("purge asks before it deletes, and there is no terminal to ask on; give --yes, or --dry-run")
    given = settings(bootstrap_server, command_config)
    with failures("Purging dead letters"), open_reachable_admin(given) as admin:
        queue = queue_of(admin, choice_of(topic, None), changes=True, force=force)
        chosen = queue if before_offset is None else _narrowed(queue, where, before_offset)
        reading = Reading(admin, chosen, prints_progress=True)
        plan = purge_plan(reading, queue.partitions, before_ms, SentBack(admin, queue) if dry_run or not yes else None)
        if queue.is_partial or not reading.is_readable:
            refuse(f"Not every partition of {queue.topic} can be read. Nothing was deleted; name one, as in {topic}:0")
        if output == "text":
            plan.show(queue.topic)
        wanted = bool(plan.ends) and not dry_run and (yes or click.confirm(_question(plan), err=True))
        found: Outcomes = {}
        if wanted:
            with undecided(f"They may still be deleted. See it: sharegroups dlq list --topic {quote(topic)} --summary"):
                found = delete_before(admin, queue, plan.ends)
    if output == "json":
        print_json(plan.document(queue.topic, dry_run, found))
    elif not wanted:
        print_stderr("Nothing was deleted." if plan.ends else f"There is no such dead letter in {queue.topic}.")
    _print_outcome(queue.topic, plan, found, output)
    is_declined = bool(plan.ends) and not dry_run and not wanted
    finish(not is_declined and not any(isinstance(one, KafkaError) for one in found.values()))


def _question(plan: PurgePlan) -> str:
    return " ".join([*(f"{warning}." for warning in plan.warnings), "Delete them?"])


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def purge_plan(
    reading: Reading, whole: Mapping[int, Bounds], before_ms: int | None, search: SentBack | None = None
) -> PurgePlan:
    """Read the queue and plan the deletion. `whole`: the bounds of the partitions. With `before_ms`, each partition is
    deleted up to its first record that was stored then or later, or that cannot be decoded. `search`: finds out how
    many of the letters were sent back; None not to."""
    plan = PurgePlan(whole, search)
    for page in reading.pages():
        end = page.next_offset if before_ms is None else _purge_end(page, before_ms)
        plan.take(page, end)
        if end < page.next_offset:
            reading.skip(page.partition)
    return plan


def _purge_end(page: Page, before_ms: int) -> int:
    """Return the first offset of a page that is not known to be older than `before_ms`; the page's end if there is
    none."""
    young = (found.record.offset for found in page.found if found.stored_ms >= before_ms)
    return min(next(young, page.next_offset), page.unreadable)


def _narrowed(queue: Queue, where: Where, before_offset: int) -> Queue:
    """Return the queue up to the offset. Exits with 1 when the partition ends before it."""
    number = where.partition
    assert number is not None
    if number not in queue.partitions:
        return queue
    start, end = queue.partitions[number]
    if before_offset > end:
        refuse(
            f"{queue.topic}-{number} ends at offset {end}; --before-offset {before_offset} is after that. Nothing "
            f"was deleted. All letters: sharegroups dlq purge --topic {quote(f'{queue.topic}:{number}')} --all"
        )
    return replace(queue, partitions={number: Bounds(start, max(start, before_offset))})


def _print_outcome(topic: str, plan: PurgePlan, found: Outcomes, output: str) -> None:
    for number, outcome in sorted(found.items()):
        if isinstance(outcome, KafkaError):
            end = plan.ends[number]
            print_stderr(
                f"Error: {topic}-{number} was not deleted before offset {end}: {outcome.name}: {outcome.message}"
            )
        elif output == "text":
            click.echo(f"{printable(topic)}-{number} begins at offset {outcome} now.")
