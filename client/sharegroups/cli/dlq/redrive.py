"""`sharegroups dlq redrive`: sends dead letters back to their original topic, as fresh records (CT-125 to CT-127)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kip932.ids import OFFSET_MAX
from sharegroups.cli import clients
from sharegroups.cli.columns import legend
from sharegroups.cli.dlq.choosing import Choice, Filters, choice_of, filter_options, topic_options
from sharegroups.cli.dlq.core.redrive import Fate
from sharegroups.cli.dlq.reading import Bounds, Found, Queue, Reading, queue_of
from sharegroups.cli.dlq.redrive_report import Report
from sharegroups.cli.dlq.redriven_before import first_origins, targets_of
from sharegroups.cli.dlq.redriving import RedriveTask, Redriving
from sharegroups.cli.dlq.values import Values
from sharegroups.cli.groups.asking import refuse
from sharegroups.cli.interrupts import attended
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.stall_warning import Warnings
from sharegroups.config import ADMIN, PRODUCER
from sharegroups.producer import Producer

#: How many times --offset may be given.
SPANS_MAX: Final = 1_000
_FILTERS: Final = "--origin, --cause, --reason, --since or --until"
_OFFSETS: Final = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)
#: Unless the settings say otherwise, the time that the leaders of the original topics may take is limited: a person is
#: waiting, and a dead letter that failed can be redriven again. The leader, not the client, decides how large a record
#: may be.
_PRODUCER: Final[dict[str, Any]] = {
    "max.block.ms": "15000",
    "delivery.timeout.ms": "30000",
    "max.request.size": str(64 << 20),
    "buffer.memory": str(128 << 20),
}


class Span(NamedTuple):
    """Offsets from the first to the last, both included."""

    first: int
    last: int


@click.command(epilog=legend("sharegroups dlq redrive"))
@topic_options
@filter_options
@click.option("--all", "every", is_flag=True, help="All letters of the topic, or of the group.")
@click.option("--offset", "offsets", multiple=True, metavar="N|N-M", help="Letters of DLQ:P by offset; repeatable.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N letters.")
@click.option("--again", is_flag=True, help="Also letters that were redriven before.")
@click.option("--purge", is_flag=True, help="Delete the beginning of the DLQ partition in which all are redriven.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; send and delete nothing.")
@click.option("--force", is_flag=True, help="Also from a topic that is not a dead-letter queue.")
@connection_options
@output_option
def redrive(
    *,
    topic: str | None,
    group: str | None,
    every: bool,
    offsets: tuple[str, ...],
    limit: int | None,
    again: bool,
    purge: bool,
    dry_run: bool,
    force: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
    **filters: str | None,
) -> None:
    """Send dead letters back to the topic and partition of their origin, as fresh records, which all groups of that
    topic get.

    After each page of dead letters it prints how many are confirmed. If it is interrupted, run it again: it finds the
    records that it has already sent, and skips their dead letters. The headers of a dead letter say where it goes;
    check that with --dry-run first.

    Exit codes: 0 all were redriven, now or before; 1 some were not, or an error; 130 after Ctrl-C, 143 after SIGTERM.
    """
    choice = choice_of(topic, group, **filters)
    chosen = _Chosen(choice.filters, _spans(offsets))
    _check(choice, every, chosen)
    given = settings(bootstrap_server, command_config)
    with failures("Redriving dead letters"), open_reachable_admin(_for_admin(given)) as admin:
        queue = chosen.narrow(queue_of(admin, choice, changes=True, force=force), purge)
        survey = Reading(admin, queue, prints_progress=True)
        firsts = first_origins(survey, chosen)
        chosen.require(survey.readable)
        targets = targets_of(admin, queue.topic_id, firsts, search=not again)
        reading, report = (
            Reading(admin, survey.readable, prints_no_errors=True),
            Report(queue.topic, output, dry_run=dry_run),
        )
        producer = None if dry_run else clients.open_client(Producer, producer_settings(given))
        run = Redriving(admin, reading, targets, RedriveTask(chosen, limit, purge, producer), report)
        try:
            with Warnings():
                attended(run.run, run.leave)
        finally:
            run.print_totals()
    if not report.counts.total() and output != "json" and survey.is_whole and reading.is_whole:
        print_stderr(f"No such dead letter in {queue.topic}; nothing was redriven.")
    reading.note_other_records()
    is_whole = survey.is_whole and reading.is_whole and not queue.is_partial
    finish(is_whole and run.is_purged and not report.counts[Fate.FAILED])


class _Chosen:
    """Decides whether a dead letter is to be redriven. `spans`: offsets to redrive; empty for all (needs one
    partition)."""

    def __init__(self, filters: Filters, spans: Sequence[Span]) -> None:
        self.spans = spans
        self._filters = filters
        self._missed = set(spans)
        self._values = Values(filters)

    def __call__(self, _partition: int, found: Found) -> bool:
        if found.letter is not None:
            self._values.note(found.letter)
        if self.spans:
            offset = found.record.offset
            hit = [span for span in self.spans if span.first <= offset <= span.last]
            if not hit or found.letter is None:
                return False
            self._missed.difference_update(hit)
        return found.letter is not None and self._filters.passes(found.letter, found.stored_ms)

    def narrow(self, queue: Queue, is_purged: bool) -> Queue:
        """Return the queue limited to the offsets that may be chosen; with `is_purged`, it keeps its start."""
        if not self.spans:
            return queue
        first, last = min(span.first for span in self.spans), max(span.last for span in self.spans)
        narrowed = {
            number: Bounds(start if is_purged else max(start, first), min(end, last + 1))
            for number, (start, end) in queue.partitions.items()
        }
        return replace(queue, partitions=narrowed)

    def require(self, queue: Queue) -> None:
        """Exit with 1 if there is no dead letter at one of the given offsets, or no letter has the value of a filter.
        Call it once the queue has been read."""
        if lines := self._values.missing():
            refuse(f"{' '.join(lines)} Nothing was redriven.")
        if self._missed and queue.partitions:
            span = min(self._missed)
            (number,) = queue.partitions
            where = f"at offset {span.first}" if span.first == span.last else f"at offsets {span.first} to {span.last}"
            refuse(f"{queue.topic}-{number} has no dead letter {where}; nothing was redriven.")


def _spans(texts: Sequence[str]) -> list[Span]:
    spans: list[Span] = []
    for text in texts:
        found = _OFFSETS.fullmatch(text.strip())
        span = None if found is None else Span(int(found[1]), int(found[2] or found[1]))
        if span is None or not span.first <= span.last <= OFFSET_MAX:
            raise UsageFailure(f"--offset {text!r}: expected an offset from 0 on, or a range, as in 17 or 17-20")
        spans.append(span)
    if len(spans) > SPANS_MAX:
        raise UsageFailure(f"--offset is given {len(spans)} times; at most {SPANS_MAX} are taken")
    return spans


def _check(choice: Choice, every: bool, chosen: _Chosen) -> None:
    """Raise UsageFailure unless the command line chooses dead letters in exactly one way."""
    by_offset, by_filter = bool(chosen.spans), choice.filters.has_conditions
    if by_offset and (every or by_filter):
        raise UsageFailure("--offset names the letters; --all and filters cannot be given with it")
    if by_offset and (choice.where is None or choice.where.partition is None):
        raise UsageFailure("--offset needs --topic with the partition too, as in --topic dlq.orders:0")
    if every and by_filter:
        raise UsageFailure(f"--all means every letter; it cannot be given with {_FILTERS}")
    if not (every or by_filter or by_offset):
        raise UsageFailure(f"which letters? Give --all, --offset, or {_FILTERS}")


def producer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the producer that sends fresh records."""
    known = {setting.name for setting in PRODUCER}
    return _PRODUCER | {name: value for name, value in given.items() if name in known}


def _for_admin(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that only a producer has; the admin client refuses unknown ones."""
    others = {setting.name for setting in PRODUCER} - {setting.name for setting in ADMIN}
    return {name: value for name, value in given.items() if name not in others}
