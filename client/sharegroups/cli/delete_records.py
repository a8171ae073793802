"""`sharegroups topics delete-records`: moves the start offsets of partitions forward (CT-94)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from sharegroups.cli.columns import legend
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

_END: Final = -1
_OFFSET_MAX: Final = 2**63 - 1
_FORM: Final = "expected TOPIC:PARTITION=OFFSET, as in orders:0=100, or orders:0=-1 for all records"


@click.command("delete-records", epilog=legend("sharegroups topics delete-records"))
@click.argument("texts", metavar="TOPIC:PARTITION=OFFSET...", nargs=-1, required=True)
@connection_options
@output_option
def delete_records(texts: tuple[str, ...], bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Delete the records of partitions before an offset, for every group; -1 deletes all current records.

    This cannot be undone. Groups that had not finished the deleted records continue with the first remaining one.
    """
    wanted = _wanted(texts)
    given = settings(bootstrap_server, command_config)
    with failures("Deleting records"), open_reachable_admin(given) as admin:
        found = admin.delete_records(wanted)
    done = {part: start for part, start in sorted(found.items()) if not isinstance(start, KafkaError)}
    failed = {part: error for part, error in sorted(found.items()) if isinstance(error, KafkaError)}
    if output == "json":
        print_json([_document(part, found[part]) for part in sorted(found)])
    elif done:
        rows = [(part.topic, part.partition, start) for part, start in done.items()]
        print_table(("TOPIC", "PARTITION", "LOG-START-OFFSET"), rows, (15, 10, 0))
    for part, start in done.items():
        if _END < wanted[part] < start:
            print_stderr(
                f"Note: {part.topic}-{part.partition} began at offset {start} already, after {wanted[part]}; "
                "nothing was deleted."
            )
    for part, error in failed.items():
        print_stderr(f"Error: {part.topic}-{part.partition} to offset {wanted[part]}: {error.name}: {error.message}")
    finish(not failed)


def _wanted(texts: tuple[str, ...]) -> dict[TopicPartition, int]:
    """Return the offsets by partition. Raises UsageFailure."""
    wanted: dict[TopicPartition, int] = {}
    for text in texts:
        place, equals, offset = text.rpartition("=")
        topic, colon, number = place.rpartition(":")
        digits = offset.removeprefix("-")
        if not (equals and colon and topic.strip() and number.isdecimal() and digits.isdecimal()):
            raise UsageFailure(f"{text!r}: {_FORM}")
        if not _END <= int(offset) <= _OFFSET_MAX:
            raise UsageFailure(f"{text!r}: the offset is {offset}; expected 0 or more, or -1 for all records")
        part = TopicPartition(topic, int(number))
        if part in wanted:
            raise UsageFailure(f"{topic}:{number} is given more than once; give one offset for each partition")
        wanted[part] = int(offset)
    return wanted


def _document(part: TopicPartition, outcome: int | KafkaError) -> dict[str, object]:
    failed = outcome if isinstance(outcome, KafkaError) else None
    return {
        "topic": part.topic,
        "partition": part.partition,
        "log_start_offset": None if failed else outcome,
        "error": failed.name if failed else None,
        "message": failed.message if failed else None,
    }
