"""`sharegroups groups reset-offsets`: sets an empty group's start offsets (CT-11 to CT-13, CT-18, CT-23g, CT-24)."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click

from kip932.errors import KafkaError, NonEmptyGroupError
from kip932.ids import OFFSET_MAX, TopicPartition
from sharegroups.admin import Admin
from sharegroups.cli.columns import legend
from sharegroups.cli.groups.asking import COMMAND, members_text, reached, refuse, timeout_option, undecided
from sharegroups.cli.groups.log_starts import warn_of_deleted_records
from sharegroups.cli.groups.named import NamedByOptions
from sharegroups.cli.groups.reset_plan import Plan, plan_of, require_resettable
from sharegroups.cli.groups.reset_request import Request, request_of
from sharegroups.cli.groups.waiting_letters import BY_OFFSET, warn_of_waiting_letters
from sharegroups.cli.output import (
    FILE,
    NAME,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    print_table,
)

Errors = Mapping[TopicPartition, KafkaError | None]


@click.command("reset-offsets", cls=NamedByOptions, epilog=legend("sharegroups groups reset-offsets"))
@click.option("--group", "names", multiple=True, type=NAME, help="The group; it must have no members.")
@click.option("--topic", multiple=True, type=NAME, metavar="TOPIC[:0,1]", help="Topic, or some partitions; repeatable.")
@click.option("--all-topics", is_flag=True, help="Every partition that the group has started on.")
@click.option("--from-file", type=FILE, help="CSV: topic,partition,offset, or group,topic,partition,offset.")
@click.option("--to-earliest", is_flag=True, help="To the beginning of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-current", is_flag=True, help="To where the group is; what it has finished from there comes again.")
@click.option("--to-offset", type=click.IntRange(0, OFFSET_MAX - 1), help="To an offset.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="To the first record at or after a time.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and set none.")
@click.option("--execute", is_flag=True, help="Set them.")
@click.option("--create", is_flag=True, help="Make the group when there is none of the name.")
@click.option("--export", is_flag=True, help="Print lines for --from-file instead of a table.")
@timeout_option
@connection_options
@output_option
def reset_offsets(
    *, names: tuple[str, ...], timeout: int, bootstrap_server: str, command_config: Path | None, **given: Any
) -> None:
    """Set where an empty group continues: in the partitions given, in all that it has started to consume, or as a file
    says.

    Records from there on are delivered again, with delivery count 1, even if the group had finished them. --dry-run
    shows what --execute would do.
    """
    request = request_of(names, given)
    with failures(COMMAND), reached(bootstrap_server, command_config, timeout) as admin:
        require_resettable(admin, request)
        plan = plan_of(admin, request)
        warn_of_waiting_letters(admin, [request.group] if plan else [], BY_OFFSET, plan.__contains__)
        errors = _set(admin, request, plan) if request.execute and plan else dict.fromkeys(plan)
        if request.execute:
            warn_of_deleted_records(admin, {part: plan[part] for part, error in errors.items() if error is None})
    form = "csv" if given["export"] else str(given["output"])
    _print(request, plan, errors, form)
    finish(not any(errors.values()))


def _set(admin: Admin, request: Request, plan: Plan) -> Errors:
    again = f"The offsets may be set, or be set yet. See: sharegroups groups describe --group {quote(request.group)}"
    try:
        with undecided(again):
            errors = admin.alter_share_group_offsets(request.group, plan)
    except NonEmptyGroupError:
        refuse(f"Share group '{request.group}' is not empty. {members_text(request.group, 0)}")
    return {part: errors.get(part) for part in plan}


def _print(request: Request, plan: Plan, errors: Errors, form: str) -> None:
    for part, error in sorted(errors.items()):  # first, since writing the table fails if the pipe is closed
        if error is not None:
            print_stderr(f"Error: {part.topic}-{part.partition} to offset {plan[part]}: {error.name}: {error.message}")
    if not plan:
        print_stderr(
            f"Share group '{request.group}' has no offset information; nothing was set. Name topics with --topic."
        )
    done = {part: offset for part, offset in sorted(plan.items()) if errors[part] is None}
    if form == "json":
        print_json([_document(request.group, part, plan[part], errors[part]) for part in sorted(plan)])
    elif form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows((*part, offset) for part, offset in done.items())
    else:
        rows = [(request.group, *part, offset) for part, offset in done.items()]
        print_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (15, 15, 10, 0))
        click.echo()


def _document(group: str, part: TopicPartition, offset: int, error: KafkaError | None) -> dict[str, object]:
    return {
        "group": group,
        "topic": part.topic,
        "partition": part.partition,
        "new_offset": None if error else offset,
        "error": error.name if error else None,
        "message": error.message if error else None,
    }
