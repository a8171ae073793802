"""Prints dead letters as a table, page by page, or converts them to JSON objects (CT-123)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from kip932.printable import printable
from sharegroups.cli.dlq.core.dead_letters import Letter, letter_content
from sharegroups.cli.dlq.core.redrive import scope_of
from sharegroups.cli.dlq.core.seen_origins import SeenOrigins
from sharegroups.cli.dlq.reading import Found
from sharegroups.cli.dlq.times import time_text

_HEADER: Final = (
    "PARTITION", "OFFSET", "STORED", "GROUP", "ORIGIN", "DELIVERIES", "REDRIVES", "FLAGS", "CAUSE", "REASON",
)  # fmt: skip
_WIDTHS: Final = (10, 10, 20, 15, 15, 10, 8, 10, 15)
#: Columns of at least this width grow with their content.
_GROWING: Final = 15
_FLAGS: Final = 7
#: How many characters of a reason's first line are printed.
_REASON_MAX: Final = 60


class LetterTable:
    """Prints dead letters. The first page determines the column widths, since later pages have not been read yet."""

    def __init__(self) -> None:
        self._widths: Sequence[int] = ()

    def print(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Print one page; the first page must not be empty."""
        texts = [[printable(str(cell)) for cell in row] for row in rows]
        if not self._widths:
            self._widths = [
                max(least, *(len(row[index]) for row in texts)) if least >= _GROWING or index == _FLAGS else least
                for index, least in enumerate(_WIDTHS)
            ]
            click.echo()
            texts.insert(0, list(_HEADER))
        for row in texts:
            cells = [cell.ljust(width) for cell, width in zip(row[:-1], self._widths, strict=True)]
            click.echo(" ".join([*cells, row[-1]]))


def row_of(partition: int, found: Found, letter: Letter, is_duplicate: bool, is_sent: bool) -> tuple[object, ...]:
    """Return the cells of a dead letter. `is_sent`: whether it is known to have been sent back."""
    return (
        partition,
        found.record.offset,
        time_text(found.stored_ms),
        letter.group_text,
        letter.origin_text,
        "-" if letter.delivery_count is None else letter.delivery_count,
        "-" if letter.redrives is None else letter.redrives,
        ",".join(flags_of(letter, is_duplicate, is_sent)) or "-",
        "-" if letter.cause is None else letter.cause,
        for_screen(first_line(letter)),
    )


def first_line(letter: Letter) -> str:
    """Return the first line of a dead letter's reason, escaped; `-` without one."""
    return printable((letter.reason or "").strip().partition("\n")[0]) or "-"


def reason_line(letter: Letter) -> str:
    """Return the first line of a dead letter's reason, escaped and cut; `-` without one."""
    return _cut(first_line(letter))


def for_screen(line: str) -> str:
    """Return the first line of a reason, cut if standard output is a terminal: a pipe or a file gets all of it."""
    return _cut(line) if sys.stdout.isatty() else line


def _cut(line: str) -> str:
    return line[: _REASON_MAX - 1] + "…" if len(line) > _REASON_MAX else line


def document_of(
    topic: str, partition: int, found: Found, letter: Letter, is_duplicate: bool, *, is_sent: bool | None
) -> dict[str, Any]:
    """Return the JSON object of a dead letter, with null for unknown values."""
    origin = letter.origin
    return {
        "topic": topic,
        "partition": partition,
        "offset": found.record.offset,
        "stored_ms": found.stored_ms,
        "timestamp_ms": found.record.timestamp_ms,
        "group": text_of(letter.group),
        "origin_topic": None if origin is None else origin.topic,
        "origin_topic_id": text_of(letter.topic_id or None),
        "origin_partition": None if origin is None else origin.partition,
        "origin_offset": None if origin is None else origin.offset,
        "delivery_count": letter.delivery_count,
        "cause": None if letter.cause is None else text_of(letter.cause),
        "reason": text_of(letter.reason),
        "redrives": letter.redrives,
        "headers_only": letter.is_headers_only,
        "duplicate": is_duplicate,
        "sent_back": is_sent,
        "garbled": text_of(f"{letter.group_text} {letter.origin_text}") if letter.is_garbled else None,
    }


def text_of(text: str | None) -> str | None:
    """Return a text for JSON, with bytes that were not valid text escaped."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def flags_of(letter: Letter, is_duplicate: bool, is_sent: bool) -> list[str]:
    """Return the flags of a dead letter: what is special about it."""
    named = (
        ("sent-back", is_sent),
        ("headers-only", letter.is_headers_only),
        ("duplicate", is_duplicate),
        ("garbled", letter.is_garbled),
    )
    return [name for name, holds in named if holds]


def is_duplicate(met: SeenOrigins, found: Found, letter: Letter) -> bool:
    """Return whether an earlier dead letter had this origin, group and content, and remember this one. A garbled letter
    is never a duplicate."""
    if letter.origin is None or letter.group is None:
        return False
    record = found.record
    return not met.add(*scope_of(letter), letter_content(letter, record.key, record.value, record.timestamp_ms))
