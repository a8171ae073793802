"""The plan of `dlq purge`: the offset before which each partition is deleted, and the letters affected (CT-128)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kip932.errors import KafkaError
from kip932.printable import printable
from sharegroups.cli.dlq.reading import Bounds, Page, Reading
from sharegroups.cli.dlq.rows import text_of
from sharegroups.cli.dlq.times import time_text
from sharegroups.cli.output import print_table
from sharegroups.core.letter_tally import Row, Tally

_OTHERS = ("(others)", "-")


class Plan:
    """The letters to delete. `ends`: the offset before which each partition is deleted, for those that lose records."""

    def __init__(self, whole: Mapping[int, Bounds]) -> None:
        self.ends: dict[int, int] = {}
        self._whole = whole
        self._letters = Tally()
        self._strangers = 0

    def take(self, page: Page, end: int) -> None:
        """Count the records of a page before `end`, which are to be deleted."""
        for record, stored_ms, letter in page.found:
            if record.offset >= end:
                break
            if letter is None:
                self._strangers += 1
            else:
                self._letters.add((letter.group_text, letter.cause or "-"), stored_ms)
        if end > self._whole[page.partition].start:
            self.ends[page.partition] = end

    def show(self, topic: str) -> None:
        """Print what is to be deleted, by group and cause, and the offsets of each partition."""
        if not self.ends:
            return
        rows = [
            (group, row.letters, time_text(row.first_ms), time_text(row.last_ms), cause)
            for (group, cause), row in self._rows()
        ]
        if rows:
            print_table(("GROUP", "LETTERS", "FIRST", "LAST", "CAUSE"), rows, (15, 10, 20, 20, 0))
            click.echo()
        click.echo(f"To be deleted: {self._letters.letters} dead letters and {self._strangers} other records.")
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
            "other_records": self._strangers,
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
        return [*rows, (_OTHERS, self._letters.others)] if self._letters.others.letters else rows


def plan_of(reading: Reading, whole: Mapping[int, Bounds], before_ms: int | None) -> Plan:
    """Read the queue and plan the deletion. `whole`: the bounds of the partitions. With `before_ms`, each partition is
    deleted up to its first record that was stored then or later, or that cannot be decoded."""
    plan = Plan(whole)
    for page in reading.pages():
        end = page.next_offset if before_ms is None else _end(page, before_ms)
        plan.take(page, end)
        if end < page.next_offset:
            reading.pass_over(page.partition)
    return plan


def _end(page: Page, before_ms: int) -> int:
    """Return the first offset of a page that is not known to be older than `before_ms`; else the page's end."""
    young = (found.record.offset for found in page.found if found.stored_ms >= before_ms)
    return min(next(young, page.next_offset), page.unreadable)
