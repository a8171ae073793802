"""`sharegroups dlq purge`: shows which letters it will delete, and deletes them (CT-128)."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote

import click

from kip932.errors import KafkaError
from kip932.ids import OFFSET_MAX
from kip932.printable import printable
from sharegroups.cli.columns import legend
from sharegroups.cli.dlq.choosing import Where, choice_of, where_of
from sharegroups.cli.dlq.purge_plan import Plan, plan_of
from sharegroups.cli.dlq.reading import Bounds, Queue, Reading, delete_before, queue_of
from sharegroups.cli.dlq.times import duration_ms
from sharegroups.cli.groups.asking import refuse, undecided
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    settings,
    tell,
)
from sharegroups.cli.reaching import reached_admin

Outcomes = Mapping[int, int | KafkaError]


@click.command(epilog=legend("sharegroups dlq purge"))
@click.option("--topic", required=True, type=NAME, metavar="DLQ[:P]", help="The DLQ topic, or one partition of it.")
@click.option("--before-offset", type=click.IntRange(0, OFFSET_MAX), metavar="N", help="What is before it, of DLQ:P.")
@click.option("--all", "every", is_flag=True, help="All letters that there are now.")
@click.option("--older-than", metavar="DURATION", help="What was stored longer ago: 90s, 15m, 2h, 7d.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also of a topic that is no dead-letter queue.")
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
    """Delete dead letters, from the beginning of each partition on. It cannot be taken back.

    It says first how many letters of each group and cause go, and asks.
    """
    where = where_of("--topic", topic)
    if [before_offset is not None, every, older_than is not None].count(True) != 1:
        raise UsageFailure("which letters? Give one of --before-offset, --all and --older-than")
    if before_offset is not None and where.partition is None:
        raise UsageFailure(f"--before-offset is an offset of one partition: give --topic {topic}:P")
    before_ms = None if older_than is None else int(time.time() * 1_000) - duration_ms("--older-than", older_than)
    if not (yes or dry_run) and (output == "json" or not can_ask()):
        raise UsageFailure("purge asks before it deletes, and nobody can be asked here; give --yes, or --dry-run")
    given = settings(bootstrap_server, command_config)
    with failures("Purging dead letters"), reached_admin(given) as admin:
        queue = queue_of(admin, choice_of(topic, None), changes=True, force=force)
        reading = Reading(admin, queue if before_offset is None else _narrowed(queue, where, before_offset))
        plan = plan_of(reading, queue.partitions, before_ms)
        if queue.is_partly or not reading.is_readable:
            refuse(f"Not every partition of {queue.topic} can be read. Nothing was deleted; name one, as in {topic}:0")
        if output == "text":
            plan.show(queue.topic)
        wanted = bool(plan.ends) and not dry_run and (yes or click.confirm("Delete them?", err=True))
        found: Outcomes = {}
        if wanted:
            with undecided(f"They may still be deleted. See it: sharegroups dlq list --topic {quote(topic)} --summary"):
                found = delete_before(admin, queue, plan.ends)
    if output == "json":
        print_json(plan.document(queue.topic, dry_run, found))
    elif not wanted:
        tell("Nothing was deleted." if plan.ends else f"There is no such dead letter in {queue.topic}.")
    _tell_outcome(queue.topic, plan, found, output)
    is_declined = bool(plan.ends) and not dry_run and not wanted
    finish(not is_declined and not any(isinstance(one, KafkaError) for one in found.values()))


def can_ask() -> bool:
    """Return whether a person can be asked. Tests replace it."""
    return sys.stdin.isatty()


def _narrowed(queue: Queue, where: Where, before_offset: int) -> Queue:
    """Return the queue up to the offset. Exits with 1 when the partition ends before it."""
    number = where.partition
    assert number is not None
    if number not in queue.partitions:
        return queue
    start, end = queue.partitions[number]
    if before_offset > end:
        refuse(
            f"{queue.topic}-{number} ends at offset {end}; --before-offset {before_offset} lies behind that. Nothing "
            f"was deleted. All letters: sharegroups dlq purge --topic {quote(f'{queue.topic}:{number}')} --all"
        )
    return replace(queue, partitions={number: Bounds(start, max(start, before_offset))})


def _tell_outcome(topic: str, plan: Plan, found: Outcomes, output: str) -> None:
    for number, outcome in sorted(found.items()):
        if isinstance(outcome, KafkaError):
            end = plan.ends[number]
            tell(f"Error: {topic}-{number} was not deleted before offset {end}: {outcome.name}: {outcome.message}")
        elif output == "text":
            click.echo(f"{printable(topic)}-{number} begins at offset {outcome} now.")
