"""The work on dead letters that runs as tasks: counts them by cause and reason, redrives and purges them, first as a
dry run (CT-166). The parts of `sharegroups dlq` do it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kip932.errors import KafkaError
from sharegroups.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.dlq.choosing import Choice
from sharegroups.cli.dlq.core.letter_tally import Row, Tally
from sharegroups.cli.dlq.core.redrive import Fate
from sharegroups.cli.dlq.core.seen_origins import SeenOrigins
from sharegroups.cli.dlq.purge import purge_plan
from sharegroups.cli.dlq.reading import Bounds, Found, Queue, Reading, delete_before, queue_of
from sharegroups.cli.dlq.redrive import producer_settings
from sharegroups.cli.dlq.redrive_report import FAILURES_MAX, Report
from sharegroups.cli.dlq.redriven_before import first_origins, targets_of
from sharegroups.cli.dlq.redriving import RedriveTask, Redriving
from sharegroups.cli.dlq.rows import is_duplicate
from sharegroups.cli.dlq.sent_back import SentBack
from sharegroups.console.tasks import Task
from sharegroups.console.visit import RefusedError, parts_of_commands
from sharegroups.producer import Producer

#: How many characters of a reason's first line letters are grouped by.
REASON_MAX: Final = 100
#: How long a count, or the dry run of a purge, searches for letters that were sent back, in seconds.
COUNT_SEARCH_S: Final = 30.0
_NOTHING_SENT: Final = "No such dead letter was found; nothing was redriven."
Places = frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asked for. `places`: chosen letters, as partition and offset; None for all that pass the filters."""

    choice: Choice
    places: Places | None = None
    before_ms: int | None = None


@dataclass(slots=True)
class RedriveOutcome:
    """What a redrive did, or a dry run would do. `counts`: by outcome; `rows`: the same by group and origin topic.

    `queue`: what was read, so that what is confirmed is what was shown.
    """

    wish: Wish
    dry_run: bool
    queue: Queue
    counts: Mapping[Fate, int] = field(default_factory=dict)
    rows: list[tuple[str, str, Mapping[Fate, int]]] = field(default_factory=list)
    unconfirmed: int = 0

    @property
    def text(self) -> str:
        """The outcome for the audit log."""
        said = [f"{fate.value} {self.counts[fate]}" for fate in Fate if self.counts.get(fate)]
        return ", ".join([*said, f"unconfirmed {self.unconfirmed}"] if self.unconfirmed else said) or "nothing"


@dataclass(slots=True)
class PurgeOutcome:
    """What a purge deleted, or a dry run would delete. `plan`: as `dlq purge --output json` has it; `ends`: the offset
    before which each partition is deleted; `warnings`: how many of the letters were not sent back, or of how many that
    is not known; empty if all were."""

    wish: Wish
    dry_run: bool
    queue: Queue
    ends: Mapping[int, int] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The outcome for the audit log."""
        parts = [
            f"{part['partition']} before {part['delete_before']}" + (f" {part['error']}" if part["error"] else "")
            for part in self.plan.get("partitions", ())
        ]
        return f"letters {self.plan.get('letters', 0)}, partitions {', '.join(parts) or 'none'}"


class Count:
    """The letters of a queue by group, origin topic, cause and first line of the reason, so far. `note`: of how many it
    is not known whether they were sent back, and why; "" if it is of all."""

    def __init__(self) -> None:
        self.others = 0
        self.note = ""
        self._tally = Tally()
        self._met = SeenOrigins()
        self._lock = threading.Lock()

    def take(self, page: Sequence[Found], search: SentBack) -> None:
        """Count some records."""
        for found, sent in zip(page, search.of(page), strict=True):
            letter = found.letter
            if letter is None:
                self.others += 1
                continue
            topic = "" if letter.origin is None else letter.origin.topic
            key = (letter.group_text, topic, letter.cause or "", first_line(letter.reason))
            with self._lock:
                self._tally.add(key, found.stored_ms, is_duplicate(self._met, found, letter), sent.back)

    @property
    def letters(self) -> int:
        """How many letters were counted."""
        return self._tally.letters

    @property
    def further(self) -> int:
        """How many of them have further keys, which were too many for rows of their own."""
        return self._tally.others.letters

    def rows(self) -> list[tuple[tuple[str, ...], Row]]:
        """Return the rows, those with the most letters first; another thread may be counting."""
        with self._lock:
            return self._tally.rows()


def first_line(reason: str | None) -> str:
    """Return what letters are grouped by of a reason."""
    return (reason or "").strip().partition("\n")[0][:REASON_MAX]


def count_letters(task: Task, admin: Admin, choice: Choice) -> None:
    """Count all letters that pass the filters; `task.data` is a Count, which grows."""
    with parts_of_commands() as lines:
        queue = queue_of(admin, choice, changes=False)
        count = task.data = Count()
        task.total = size_of(queue)
        reading, search, filters = Reading(admin, queue), SentBack(admin, queue, COUNT_SEARCH_S), choice.filters
        for page in reading.pages():
            count.take(
                [one for one in page.found if one.letter is None or filters.passes(one.letter, one.stored_ms)], search
            )
            task.step(len(page.found))
        count.note = search.note()
        task.lines.extend(lines)


def size_of(queue: Queue) -> int:
    """Return how many offsets a queue has."""
    return sum(end - start for start, end in queue.partitions.values())


class Chosen:
    """Decides whether a letter is to be redriven, counts those that are, and notes progress."""

    def __init__(self, wish: Wish, task: Task) -> None:
        self._wish, self._task = wish, task
        self.letters = 0

    def __call__(self, partition: int, found: Found) -> bool:
        """Return whether the record is to be redriven. Raises StoppedError."""
        self._task.step()
        chosen = is_chosen(self._wish, partition, found)
        self.letters += chosen
        return chosen


class _Counts(Report):
    """Counts without printing; failures are printed with their causes."""

    def end_page(self, partition: int, last_offset: int, log_start: int | None) -> None:
        """Print nothing: the counts are shown while they grow."""

    def end(self, unconfirmed: int, deletable: dict[int, int]) -> None:
        """Print what the counts do not say."""


def redrive(task: Task, admin: Admin, settings: Mapping[str, Any], wish: Wish, shown: Queue | None = None) -> None:
    """Redrive letters; without `shown` as a dry run. `shown`: what the dry run read; nothing beyond that is redriven.
    `task.data` is a RedriveOutcome."""
    with parts_of_commands() as lines:
        try:
            _redrive(task, admin, settings, wish, shown)
        finally:
            task.lines.extend(lines)


def _redrive(task: Task, admin: Admin, settings: Mapping[str, Any], wish: Wish, shown: Queue | None) -> None:
    queue = narrowed(queue_of(admin, wish.choice, changes=True), wish.places, shown)
    outcome = task.data = RedriveOutcome(wish, shown is None, queue)
    task.total = 2 * size_of(queue)
    survey, chosen = Reading(admin, queue), Chosen(wish, task)
    firsts = first_origins(survey, chosen)
    if not chosen.letters:
        raise RefusedError(_NOTHING_SENT)
    targets = targets_of(admin, queue.topic_id, firsts, search=True)
    task.step(0)
    report = _Counts(queue.topic, "text", dry_run=shown is None)
    producer = None if shown is None else clients.open_client(Producer, producer_settings(settings))
    reading = Reading(admin, survey.readable, prints_no_errors=True)

    def again(partition: int, found: Found) -> bool:
        task.done += 1
        return is_chosen(wish, partition, found)

    run = Redriving(admin, reading, targets, RedriveTask(again, None, False, producer), report)
    task.on_stop, outcome.counts = run.stop, report.counts
    if task.is_stopping:
        run.stop()
    try:
        run.run()
    finally:
        task.on_stop = None
        outcome.unconfirmed = run.open
        outcome.rows = [(group, topic, counts) for (group, topic), counts in report.rows()]
        task.done = task.total
    if (more := report.counts[Fate.FAILED] - FAILURES_MAX) > 0:
        task.lines.append(f"{more} more letters were not redriven.")
    if task.is_stopping:
        task.error = "It was stopped. What the counts say was done; the next redrive finds out what was sent."


def is_chosen(wish: Wish, partition: int, found: Found) -> bool:
    """Return whether a record is a letter that was asked for."""
    if found.letter is None or (wish.places is not None and (partition, found.record.offset) not in wish.places):
        return False
    return wish.choice.filters.passes(found.letter, found.stored_ms)


def narrowed(queue: Queue, places: Places | None, shown: Queue | None) -> Queue:
    """Return the queue limited to what a dry run has shown, and to the chosen places. Raises RefusedError."""
    partitions = dict(queue.partitions)
    if shown is not None:
        if shown.topic_id != queue.topic_id:
            raise RefusedError(f"{queue.topic} was created again since it was shown; nothing was done. Show it again.")
        partitions = {
            number: Bounds(bounds.start, max(bounds.start, min(bounds.end, shown.partitions[number].end)))
            for number, bounds in partitions.items()
            if number in shown.partitions
        }
    if places is not None:
        chosen: dict[int, Bounds] = {}
        for number, bounds in partitions.items():
            offsets = [offset for place, offset in places if place == number and bounds.start <= offset < bounds.end]
            if offsets:
                chosen[number] = Bounds(min(offsets), max(offsets) + 1)
        partitions = chosen
    return replace(queue, partitions=partitions)


def plan_purge(task: Task, admin: Admin, wish: Wish) -> None:
    """Find out what a purge would delete; `task.data` is a PurgeOutcome."""
    with parts_of_commands() as lines:
        queue = queue_of(admin, wish.choice, changes=True)
        outcome = task.data = PurgeOutcome(wish, True, queue)
        task.total = size_of(queue)
        reading = _Stepping(admin, queue, task)
        plan = purge_plan(reading, queue.partitions, wish.before_ms, SentBack(admin, queue, COUNT_SEARCH_S))
        task.lines.extend(lines)
        if queue.is_partial or not reading.is_readable:
            raise RefusedError(f"Not every partition of {queue.topic} can be read; choose one that can.")
        outcome.ends, outcome.plan = plan.ends, plan.document(queue.topic, True, {})
        outcome.warnings = plan.warnings
        if not plan.ends:
            raise RefusedError(f"There is no such dead letter in {queue.topic}.")


class _Stepping(Reading):
    """Notes the progress of a task."""

    def __init__(self, admin: Admin, queue: Queue, task: Task) -> None:
        super().__init__(admin, queue)
        self._task = task

    def _found(self, number: int, records: Any, end: int) -> list[Found]:
        found = super()._found(number, records, end)
        self._task.step(len(found))
        return found


def purge(task: Task, admin: Admin, shown: PurgeOutcome) -> None:
    """Delete what a dry run has shown, and no more; `task.data` is a PurgeOutcome. Raises UnknownTopicIdError if the
    topic was made again."""
    plan = dict(shown.plan) | {"dry_run": False}
    outcome = task.data = PurgeOutcome(shown.wish, False, shown.queue, shown.ends, plan)
    found = delete_before(admin, shown.queue, shown.ends)
    outcome.plan = plan | {
        "partitions": [
            part
            | {
                "deleted_before": end if isinstance(end := found.get(part["partition"]), int) else None,
                "error": f"{end.name}: {end.message}" if isinstance(end, KafkaError) else None,
            }
            for part in shown.plan["partitions"]
        ]
    }
    failed = [part["partition"] for part in outcome.plan["partitions"] if part["error"]]
    if failed:
        task.error = f"Partitions {', '.join(map(str, failed))} were not deleted; see below."
