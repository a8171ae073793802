"""The output of `dlq redrive`: what was confirmed on each page, each dead letter that failed, and the totals
(CT-127)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

from kip932.printable import printable
from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.core.letter_tally import ROWS_MAX
from sharegroups.cli.dlq.core.redrive import Fate
from sharegroups.cli.dlq.rows import text_of
from sharegroups.cli.output import print_json, print_stderr, print_table

#: At most this many dead letters that cannot be redriven get an error line each.
FAILURES_MAX: Final = 100
_PRINTED: Final = (Fate.SENT, Fate.BEFORE, Fate.DUPLICATE, Fate.FAILED)
_OTHERS: Final = ("(others)", "-")
_WORDS: Final = {
    Fate.SENT: "redriven",
    Fate.BEFORE: "redriven before",
    Fate.DUPLICATE: "duplicates",
    Fate.FAILED: "not redriven",
}


class Report:
    """Counts the fates of dead letters by group and origin topic. `dry_run`: nothing is sent, and the output says
    so."""

    def __init__(self, topic: str, output: str, *, dry_run: bool) -> None:
        self.counts: Counter[Fate] = Counter()
        self._topic, self._output, self._dry_run = topic, output, dry_run
        self._rows: dict[tuple[str, str], Counter[Fate]] = {}
        self._page: Counter[Fate] = Counter()

    def rows(self) -> list[tuple[tuple[str, str], Counter[Fate]]]:
        """Return the counts by group and origin topic."""
        return sorted(self._rows.items())

    def count(self, letter: Letter, fate: Fate) -> None:
        """Count the fate of one dead letter, once it is certain."""
        key = (letter.group_text, "-" if letter.origin is None else letter.origin.topic)
        if key not in self._rows and len(self._rows) >= ROWS_MAX:
            key = _OTHERS
        self._rows.setdefault(key, Counter())[fate] += 1
        self.counts[fate] += 1
        self._page[fate] += 1

    def fail(self, place: str, letter: Letter, reason: str) -> None:
        """Count a dead letter that was not redriven, and print the reason."""
        self.count(letter, Fate.FAILED)
        if self.counts[Fate.FAILED] <= FAILURES_MAX:
            print_stderr(f"Error: {place}: not redriven: {reason}")

    def end_page(self, partition: int, last_offset: int, log_start: int | None) -> None:
        """Print the fates of the dead letters up to an offset. `log_start`: the start offset after a deletion; else
        None."""
        page, self._page = self._page, Counter()
        if not page.total() or self._dry_run:
            return
        if self._output == "json":
            place = {"topic": self._topic, "partition": partition, "last_offset": last_offset}
            print_json(place | {fate.value: page[fate] for fate in _PRINTED} | {"log_start_offset": log_start})
            return
        said = ", ".join(f"{_WORDS[fate]} {page[fate]}" for fate in _PRINTED if page[fate])
        deleted = "" if log_start is None else f"; deleted before offset {log_start}"
        click.echo(f"{printable(self._topic)}-{partition} to offset {last_offset}: {said}{deleted}.")

    def end(self, unconfirmed: int, deletable: dict[int, int]) -> None:
        """Print the totals. `deletable`: in a dry run, the offset before which each partition would be deleted."""
        if (more := self.counts[Fate.FAILED] - FAILURES_MAX) > 0:
            print_stderr(f"Error: {more} more letters were not redriven; list them with: sharegroups dlq list")
        if unconfirmed:
            print_stderr(
                f"{unconfirmed} letters are not confirmed: they may be redriven or not. The next redrive finds out."
            )
        if self._output == "json":
            print_json(self._document(unconfirmed, deletable))
            return
        if not self.counts.total():
            return
        first = "WOULD-REDRIVE" if self._dry_run else "REDRIVEN"
        rows = [(*key, *(row[fate] for fate in _PRINTED)) for key, row in self.rows()]
        print_table(("GROUP", "ORIGIN", first, "BEFORE", "DUPLICATES", "FAILED"), rows, (15, 15, 13, 10, 10, 0))
        for partition, offset in sorted(deletable.items()):
            click.echo(f"Would delete {printable(self._topic)}-{partition} before offset {offset}.")

    def _document(self, unconfirmed: int, deletable: dict[int, int]) -> dict[str, Any]:
        rows = [
            {"group": text_of(group), "origin_topic": text_of(topic)} | {fate.value: row[fate] for fate in _PRINTED}
            for (group, topic), row in self.rows()
        ]
        document = {"topic": self._topic, "dry_run": self._dry_run} | {
            fate.value: self.counts[fate] for fate in _PRINTED
        }
        return document | {"unconfirmed": unconfirmed, "deletable_before": deletable or None, "by_origin": rows}
