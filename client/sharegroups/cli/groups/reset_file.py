"""Reads the file of `groups reset-offsets --from-file`: `topic,partition,offset` lines, or with `group,` first (CT-25).

Errors name the line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from kip932.ids import OFFSET_MAX, TopicPartition
from kip932.printable import printable

_FORM: Final = "expected topic,partition,offset, or group,topic,partition,offset, without a header"
_PARTITIONS_MAX: Final = 2**31


class Line(NamedTuple):
    """One line of a plan; `group` is None in the form without groups."""

    number: int
    group: str | None
    partition: TopicPartition
    offset: int


def plan_for(file: Path, group: str) -> dict[TopicPartition, int]:
    """Return the file's offsets for the group. Raises click.ClickException, which names file and line."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:  # skip a spreadsheet's byte order mark
            plan = plan_of(text, group)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is no UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise click.ClickException(printable(f"{file}: {error}")) from error
    if not plan:
        raise click.ClickException(printable(f"No reset plan for group {group} found. It should stand in {file}."))
    return plan


def plan_of(lines: Iterable[str], group: str) -> dict[TopicPartition, int]:
    """Return the offsets for the group, empty when there are none. Raises ValueError, which names the line."""
    plan: dict[TopicPartition, int] = {}
    at: dict[TopicPartition, int] = {}
    for line in _lines(lines):
        if line.group not in (None, group):
            continue
        if line.partition in plan:
            place = f"{line.partition.topic}-{line.partition.partition}"
            raise ValueError(f"line {line.number}: {place} stands in line {at[line.partition]} too; expected it once")
        plan[line.partition], at[line.partition] = line.offset, line.number
    return plan


def _lines(lines: Iterable[str]) -> Iterator[Line]:
    """Parse the lines, skipping blank ones. All others must have the same number of columns."""
    reader = csv.reader(lines, strict=True)
    columns = 0
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            number = reader.line_num
            if len(cells) not in (3, 4):
                raise ValueError(f"line {number} has {len(cells)} column{'' if len(cells) == 1 else 's'}; {_FORM}")
            if columns not in (0, len(cells)):
                raise ValueError(f"line {number} has {len(cells)} columns, the lines before it {columns}; {_FORM}")
            columns = len(cells)
            yield _line(number, [cell.strip() for cell in cells])
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}; {_FORM}") from error


def _line(number: int, cells: Sequence[str]) -> Line:
    *before, topic, partition, offset = cells
    if not topic or before == [""]:
        raise ValueError(f"line {number}: the {'group' if topic else 'topic'} is empty; {_FORM}")
    if not _is_number(partition, _PARTITIONS_MAX):
        raise ValueError(f"line {number}: the partition is {partition!r}; expected a whole number, 0 or more")
    if not _is_number(offset, OFFSET_MAX):
        raise ValueError(f"line {number}: the offset is {offset!r}; expected a whole number, 0 or more")
    return Line(number, before[0] if before else None, TopicPartition(topic, int(partition)), int(offset))


def _is_number(text: str, limit: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < limit
