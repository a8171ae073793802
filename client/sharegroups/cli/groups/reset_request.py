"""Parses the options of `groups reset-offsets`: which partitions, to which offsets, dry run or not (CT-18, CT-25)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kip932.ids import OFFSET_MAX, TopicPartition
from kip932.printable import printable
from sharegroups.cli.output import UsageFailure

SCOPES: Final = ("all-topics", "from-file", "topic")
TARGETS: Final = ("from-file", "to-current", "to-datetime", "to-earliest", "to-latest", "to-offset")
_DATETIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d(:\d\d)?)?", re.ASCII)
_DATETIME_FORM: Final = (
    "expected YYYY-MM-DDThh:mm:ss.sss, as in 2025-07-20T01:20:38.198; UTC, or with Z, +hh or +hh:mm at its end"
)
_PLAN_FORM: Final = "expected topic,partition,offset, or group,topic,partition,offset, without a header"
_PARTITIONS_MAX: Final = 2**31


class PlanLine(NamedTuple):
    """One line of a plan; `group` is None if the lines name no groups."""

    number: int
    group: str | None
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request to reset offsets. `topics`: partitions by topic name, None for all of the topic; empty for every topic
    of the group.

    `target`: one of TARGETS. `offset`: that of to-offset. `timestamp_ms`: that of to-datetime. `plan`: that of
    from-file. `create`: whether a missing group is created.
    """

    group: str
    execute: bool
    create: bool
    target: str
    topics: Mapping[str, tuple[int, ...] | None]
    offset: int | None = None
    timestamp_ms: int | None = None
    plan: Mapping[TopicPartition, int] | None = None


def request_of(names: Sequence[str], given: Mapping[str, Any]) -> Request:
    """Return the request. `given`: options by name. Raises UsageFailure; click.ClickException for an invalid file."""
    used = {name.replace("_", "-") for name, value in given.items() if _is_given(value)}
    _check_mode(used)
    if len(set(names)) != 1:
        found = f", found {', '.join(names)}" if names else ""
        raise UsageFailure(f"Option [reset-offsets] takes the option [group] once{found}")
    _only_one([name for name in SCOPES if name in used], SCOPES)
    target = _only_one([name for name in TARGETS if name in used], TARGETS)
    if "from-file" in used and (others := used & {*SCOPES, *TARGETS} - {"from-file"}):
        raise UsageFailure(_excluding("from-file", min(others)))
    if "export" in used and given["output"] == "json":
        raise UsageFailure('Option "[export]" can\'t be used with option "[output]" json')
    file: Path | None = given["from_file"]
    when: str | None = given["to_datetime"]
    return Request(
        group=names[0],
        execute=given["execute"],
        create=given["create"],
        target=target,
        topics=topics_of(given["topic"]),
        offset=given["to_offset"],
        timestamp_ms=None if when is None else timestamp_of(when),
        plan=None if file is None else plan_from_file(file, names[0]),
    )


def _is_given(value: object) -> bool:
    """Return whether an option was given; an offset of 0 counts as given."""
    return value is not None and value is not False and value != ()


def _check_mode(used: set[str]) -> None:
    modes = used & {"dry-run", "execute"}
    if not modes:
        raise UsageFailure("Option [reset-offsets] needs --dry-run, which shows what it would set, or --execute")
    if len(modes) > 1:
        raise UsageFailure(_excluding("dry-run", "execute"))


def _only_one(found: Sequence[str], known: Sequence[str]) -> str:
    if not found:
        raise UsageFailure(f"Option [reset-offsets] takes one of [{'], ['.join(known)}]")
    if len(found) > 1:
        raise UsageFailure(_excluding(found[0], found[1]))
    return found[0]


def _excluding(one: str, other: str) -> str:
    return f'Option "[{one}]" can\'t be used with option "[{other}]"'


def plan_from_file(file: Path, group: str) -> dict[TopicPartition, int]:
    """Return the offsets for the group in a file of `topic,partition,offset` lines, or with `group,` first (CT-25).

    Raises click.ClickException, which names file and line.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:  # skip a spreadsheet's byte order mark
            plan = plan_from_lines(text, group)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise click.ClickException(printable(f"{file}: {error}")) from error
    if not plan:
        raise click.ClickException(printable(f"No reset plan for group {group} found. It should stand in {file}."))
    return plan


def plan_from_lines(lines: Iterable[str], group: str) -> dict[TopicPartition, int]:
    """Return the offsets for the group, empty when there are none. Raises ValueError, which names the line."""
    plan: dict[TopicPartition, int] = {}
    at: dict[TopicPartition, int] = {}
    for line in _plan_lines(lines):
        if line.group not in (None, group):
            continue
        if line.partition in plan:
            place = f"{line.partition.topic}-{line.partition.partition}"
            raise ValueError(f"line {line.number}: {place} is in line {at[line.partition]} too; expected it once")
        plan[line.partition], at[line.partition] = line.offset, line.number
    return plan


def _plan_lines(lines: Iterable[str]) -> Iterator[PlanLine]:
    """Parse the lines, skipping blank ones. All others must have the same number of columns."""
    reader = csv.reader(lines, strict=True)
    columns = 0
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            number = reader.line_num
            if len(cells) not in (3, 4):
                raise ValueError(f"line {number} has {len(cells)} column{'' if len(cells) == 1 else 's'}; {_PLAN_FORM}")
            if columns not in (0, len(cells)):
                raise ValueError(f"line {number} has {len(cells)} columns, the lines before it {columns}; {_PLAN_FORM}")
            columns = len(cells)
            yield _plan_line(number, [cell.strip() for cell in cells])
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}; {_PLAN_FORM}") from error


def _plan_line(number: int, cells: Sequence[str]) -> PlanLine:
    *before, topic, partition, offset = cells
    if not topic or before == [""]:
        raise ValueError(f"line {number}: the {'group' if topic else 'topic'} is empty; {_PLAN_FORM}")
    if not _is_number(partition, _PARTITIONS_MAX):
        raise ValueError(f"line {number}: the partition is {partition!r}; expected a whole number, 0 or more")
    if not _is_number(offset, OFFSET_MAX):
        raise ValueError(f"line {number}: the offset is {offset!r}; expected a whole number, 0 or more")
    return PlanLine(number, before[0] if before else None, TopicPartition(topic, int(partition)), int(offset))


def _is_number(text: str, limit: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < limit


def topics_of(texts: Sequence[str]) -> dict[str, tuple[int, ...] | None]:
    """Parse `name` and `name:0,1` texts into partitions by topic (CT-6). A name alone means all its partitions.

    Raises UsageFailure for a wrong partition number.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        name, colon, listed = text.partition(":")
        numbers: tuple[int, ...] | None = None
        if colon:
            numbers = tuple(_partition(part.strip(), text) for part in listed.split(","))
            earlier = found.get(name, ())
            numbers = None if earlier is None else tuple(sorted({*earlier, *numbers}))
        found[name] = numbers
    return found


def _partition(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**31):
        raise UsageFailure(
            f"Invalid partition '{text}' specified in topic arg '{whole}'; expected orders or orders:0,1"
        )
    return int(text)


def timestamp_of(text: str) -> int:
    """Parse a date and time into ms since 1970 (CT-25). Raises UsageFailure."""
    if _DATETIME.fullmatch(text) is None:
        raise UsageFailure(f"--to-datetime {text!r}: {_DATETIME_FORM}")
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageFailure(f"--to-datetime {text!r} is not a date and time: {error}; {_DATETIME_FORM}") from error
    at = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    if milliseconds < 0:
        raise UsageFailure(f"--to-datetime {text!r} is before 1970, and no record is that old; expected a later time")
    return milliseconds
