"""The pages of dead letters: topics of groups, letters by cause and reason, a list, one letter; redrive and purge
(CT-166)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kip932.errors import KafkaError, OffsetOutOfRangeError
from kip932.ids import TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource, ReadRecord
from sharegroups.cli.dlq.choosing import Choice, Where, choice_of
from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.core.redrive import Fate
from sharegroups.cli.dlq.origins import origin_of
from sharegroups.cli.dlq.reading import TOPIC_NAME, Bounds, Found, Queue, Reading, found_of, queue_of
from sharegroups.cli.dlq.rows import flags_of
from sharegroups.cli.dlq.sent_back import SEARCH_S, Sent, SentBack
from sharegroups.cli.dlq.times import duration_ms
from sharegroups.console.contents import content_of
from sharegroups.console.letters import (
    Places,
    PurgeOutcome,
    RedriveOutcome,
    Wish,
    count_letters,
    plan_purge,
    purge,
    redrive,
)
from sharegroups.console.tasks import BusyError, Task
from sharegroups.console.topics import record_counts
from sharegroups.console.visit import Moved, Page, RefusedError, Visit, link, parts_of_commands, sliced

GROUPS_PER_PAGE: Final = 200
LETTERS_PER_PAGE: Final = 50
#: The maximum number of records that one page of letters reads, and for how long, before it shows how far it is.
SCANNED_MAX: Final = 20_000
SCAN_S: Final = 5.0
#: How many letters can be chosen one by one.
PLACES_MAX: Final = 1_000
#: How old a count may be before it is made again when its page is opened.
COUNT_MS: Final = 600_000
_PLACE: Final = re.compile(r"(\d{1,10}):(\d{1,19})", re.ASCII)
_FILTERS: Final = ("origin", "cause", "reason", "since", "until")
#: Writes to the audit log that a change begins; returns what writes its outcome.
Audited = Callable[[Visit, str], Callable[[str], object]]


def topics_page(visit: Visit) -> Page:
    """The dead-letter topics of groups."""
    listing = visit.admin.list_groups(None, ["share"])
    wanted = visit.text("find").lower()
    groups = [each.group_id for each in listing.valid() if wanted in each.group_id.lower()]
    shown, part = sliced(visit, groups, GROUPS_PER_PAGE)
    found = visit.admin.describe_configs([ConfigResource.group(group) for group in shown]) if shown else {}
    rows: list[tuple[str, str]] = []
    for resource, configs in found.items():
        entry = None if isinstance(configs, KafkaError) else configs.get(TOPIC_NAME)
        if entry is not None and entry.value:
            rows.append((resource.name, entry.value))
    records = record_counts(visit.admin, sorted({topic for _, topic in rows}))
    values = {
        "rows": sorted(rows),
        "records": records,
        "part": part,
        "find": visit.text("find"),
        "errors": listing.errors(),
    }
    return Page("letter_topics.html", values)


def choice(visit: Visit) -> Choice:
    """Return the topic and the filters that the fields name. Raises RefusedError."""
    with parts_of_commands():
        return choice_of(
            visit.text("topic") or None,
            visit.exact("group") or None,
            **{name: visit.text(name) or None for name in _FILTERS},
        )


def _filters(visit: Visit) -> dict[str, str]:
    """Return the fields that choose letters, as they were given."""
    return {name: visit.exact(name) for name in ("topic", "group", *_FILTERS)}


def counts_page(visit: Visit) -> Page | Moved:
    """The letters of a topic by group, origin, cause and reason. They are counted in the background."""
    wanted, chosen = choice(visit), _filters(visit)
    key = ("count", *chosen.values())
    task = visit.tasks.latest(visit.session, key)
    is_old = task is not None and task.ended_ms is not None and visit.now_ms - task.ended_ms > COUNT_MS
    is_old = is_old or (task is not None and task.is_over and visit.tasks.has_changed(task))
    if task is None or is_old or visit.text("again"):
        task = _begin_count(visit, wanted, key, task)
        if visit.text("again"):
            return Moved(link("/dlq/topic", **chosen))
    is_over = task.is_over  # it may end while its page is made
    rows = [] if task.data is None else task.data.rows()
    shown, part = sliced(visit, rows, LETTERS_PER_PAGE)
    values = {"task": task, "is_over": is_over, "count": task.data, "rows": shown, "part": part, "chosen": chosen}
    return Page("letter_counts.html", values)


def _begin_count(visit: Visit, wanted: Choice, key: object, running: Task | None) -> Task:
    if running is not None and not running.is_over:
        return running
    admin = visit.admin
    subject = wanted.where.topic if wanted.where else f"the dead letters of {wanted.filters.group}"
    try:
        return visit.tasks.begin(
            visit.session,
            f"Count the dead letters of {subject}",
            lambda task: count_letters(task, admin, wanted),
            subject=subject,
            key=key,
        )
    except BusyError as error:
        raise RefusedError(str(error), 503) from error


@dataclass(frozen=True, slots=True)
class Row:
    """A letter of the list."""

    partition: int
    found: Found
    letter: Letter
    flags: list[str]
    sent: Sent


def list_page(visit: Visit) -> Page:
    """The letters one by one, from a place on."""
    wanted, chosen = choice(visit), _filters(visit)
    at = _place(visit.text("at")) if visit.text("at") else None
    with parts_of_commands() as notes:
        queue = queue_of(visit.admin, wanted, changes=False)
        found, following = _some_letters(visit.admin, _from(queue, at), wanted)
        search = SentBack(visit.admin, queue, SEARCH_S, timed=True)
        rows = [
            Row(number, one, letter, flags_of(letter, is_duplicate=False, is_sent=False), sent)
            for (number, one, letter), sent in zip(found, search.of([one for _, one, _ in found]), strict=True)
        ]
        if note := search.note():
            notes.append(f"Note: {note}.")
    values = {"rows": rows, "queue": queue, "chosen": chosen, "notes": notes, "following": following}
    return Page("letters.html", values)


def _from(queue: Queue, at: tuple[int, int] | None) -> Queue:
    if at is None:
        return queue
    left = {
        number: Bounds(min(max(start, at[1]), end) if number == at[0] else start, end)
        for number, (start, end) in queue.partitions.items()
        if number >= at[0]
    }
    return replace(queue, partitions=left)


def _some_letters(admin: Admin, queue: Queue, wanted: Choice) -> tuple[list[tuple[int, Found, Letter]], str]:
    """Return a page of letters, and the place after them; "" at the end."""
    rows: list[tuple[int, Found, Letter]] = []
    until_s, scanned = time.monotonic() + SCAN_S, 0
    for page in Reading(admin, queue).pages():
        for found in page.found:
            letter = found.letter
            if letter is not None and wanted.filters.passes(letter, found.stored_ms):
                if len(rows) == LETTERS_PER_PAGE:
                    return rows, f"{page.partition}:{found.record.offset}"
                rows.append((page.partition, found, letter))
        scanned += len(page.found)
        if scanned >= SCANNED_MAX or time.monotonic() >= until_s:
            return rows, f"{page.partition}:{page.next_offset}"
    return rows, ""


def letter_page(visit: Visit) -> Page:
    """One letter in full, with its record or its original record."""
    place, offset = visit.partition(), visit.number("offset")
    with parts_of_commands() as notes:
        queue = queue_of(visit.admin, Choice(Where(place.topic, place.partition), choice(visit).filters), changes=False)
        found = found_of(_record(visit.admin, place, offset, queue))
        sent = SentBack(visit.admin, queue, SEARCH_S, timed=True).of([found])[0]
        letter, origin = found.letter, None
        if letter is not None and letter.is_headers_only and letter.origin is not None:
            origin = origin_of(visit.admin, letter.origin, letter.topic_id, found.stored_ms)
    record, original = found.record, origin if isinstance(origin, ReadRecord) else None
    values = {
        "place": place, "queue": queue, "found": found, "letter": letter, "notes": notes, "sent": sent,
        "content": content_of(record, record.headers if letter is None else letter.others),
        "original": None if original is None else content_of(original, original.headers),
        "missing": origin if isinstance(origin, str) else "",
    }  # fmt: skip
    return Page("letter.html", values)


def _record(admin: Admin, place: TopicPartition, offset: int, queue: Queue) -> ReadRecord:
    start, end = queue.partitions.get(place.partition, Bounds(0, 0))
    try:
        read = admin.read_records(place, offset, 1)
    except OffsetOutOfRangeError:
        read = None
    found = next((record for record in read.records if record.offset == offset), None) if read is not None else None
    if found is None:
        had = f"it has {start} to {end - 1}" if end > start else "it is empty"
        raise RefusedError(f"{place.topic}-{place.partition} has no record at offset {offset}; {had}.", 404)
    return found


# Changes.


def _place(text: str) -> tuple[int, int]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise RefusedError(f"{text!r} is not the place of a letter; expected partition:offset, as in 0:17.")
    return int(match[1]), int(match[2])


def _places(visit: Visit) -> Places:
    texts = visit.texts("place")
    if not texts:
        raise RefusedError("No letter is chosen. Go back, and choose some; or redrive all that a filter matches.")
    if len(texts) > PLACES_MAX:
        raise RefusedError(f"{len(texts)} letters were chosen one by one; at most {PLACES_MAX} can be. Use a filter.")
    return frozenset(map(_place, texts))


def redrive_dry_run(visit: Visit, audited: Audited) -> Moved:
    """Find out what a redrive of all letters that pass the filters would do."""
    return _redrive_dry_run(visit, audited, Wish(choice(visit)))


def redrive_chosen_dry_run(visit: Visit, audited: Audited) -> Moved:
    """Find out what a redrive of letters that were chosen one by one would do."""
    return _redrive_dry_run(visit, audited, Wish(choice(visit), _places(visit)))


def _redrive_dry_run(visit: Visit, audited: Audited, wish: Wish) -> Moved:
    admin, settings = visit.admin, visit.session.settings
    return _begin(
        visit, audited, f"Redrive {_said(visit, wish)}: dry run", _topic(visit, wish.choice),
        lambda task: redrive(task, admin, settings, wish), changes=False,
    )  # fmt: skip


def purge_dry_run(visit: Visit, audited: Audited) -> Moved:
    """Find out what a purge would delete."""
    wanted = choice(visit)
    age = visit.text("older_than")
    if not age and visit.text("every") != "yes":
        raise RefusedError("Which letters? Give an age, such as 7d, or choose all that there are now.")
    with parts_of_commands():
        before_ms = visit.now_ms - duration_ms("The age", age) if age else None
    if wanted.filters.group is not None and wanted.where is None:
        wanted = Choice(Where(_topic(visit, wanted), None), wanted.filters)
    wish = Wish(wanted, None, before_ms)
    admin = visit.admin
    what = f"what is older than {age}" if age else "all letters"
    return _begin(
        visit, audited, f"Purge {what} of {_topic(visit, wanted)}: dry run", _topic(visit, wanted),
        lambda task: plan_purge(task, admin, wish), changes=False,
    )  # fmt: skip


def confirm(visit: Visit, audited: Audited) -> Moved:
    """Do what a dry run has shown."""
    shown = visit.tasks.get(visit.session, visit.required("id"))
    outcome = shown.data if shown is not None else None
    if not isinstance(outcome, RedriveOutcome | PurgeOutcome):
        raise RefusedError("That dry run is not here any more; make it again, and check what it shows.", 404)
    assert shown is not None
    if not shown.is_over or shown.error or not outcome.dry_run:
        raise RefusedError("Only a dry run that has ended without an error can be confirmed.")
    admin, settings = visit.admin, visit.session.settings
    title = shown.title.removesuffix(": dry run")
    if isinstance(outcome, PurgeOutcome):
        return _begin(
            visit, audited, title, outcome.queue.topic, lambda task: purge(task, admin, outcome), changes=True
        )
    return _begin(
        visit, audited, title, outcome.queue.topic,
        lambda task: redrive(task, admin, settings, outcome.wish, outcome.queue), changes=True,
    )  # fmt: skip


def _begin(
    visit: Visit, audited: Audited, title: str, topic: str, work: Callable[[Task], None], *, changes: bool
) -> Moved:
    def run(task: Task) -> None:
        end = audited(visit, title) if changes else str
        try:
            work(task)
        except BaseException as error:
            end(f"failed: {getattr(error, 'message', None) or type(error).__name__}; {_text(task)}")
            raise
        end(f"{task.error or 'done'}; {_text(task)}")

    try:
        task = visit.tasks.begin(visit.session, title, run, subject=topic, changes=changes)
    except BusyError as error:
        if changes:
            audited(visit, title)(f"refused: {error}")
        raise RefusedError(str(error), 409) from error
    return Moved(link("/task", id=task.id))


def _text(task: Task) -> str:
    return task.data.text if isinstance(task.data, RedriveOutcome | PurgeOutcome) else "nothing"


def _topic(visit: Visit, wanted: Choice) -> str:
    """Return the name of the topic, from the group's config if the fields do not say it. Raises RefusedError."""
    if wanted.where is not None:
        return wanted.where.topic
    with parts_of_commands():
        return queue_of(visit.admin, wanted, changes=True).topic


def _said(visit: Visit, wish: Wish) -> str:
    """Return in words which letters were asked for."""
    if wish.places is not None:
        many = f"{len(wish.places)} chosen letter{'' if len(wish.places) == 1 else 's'}"
    else:
        said = [f"{name} {visit.text(name)!r}" for name in ("group", *_FILTERS) if visit.text(name)]
        many = f"letters with {', '.join(said)}" if said else "all letters"
    return f"{many} of {_topic(visit, wish.choice)}"


def task_page(visit: Visit) -> Page:
    """A task: its progress, and its result."""
    task = visit.tasks.get(visit.session, visit.required("id"))
    if task is None:
        raise RefusedError("There is no such task; it may have ended long ago.", 404)
    is_over = task.is_over  # it may end while its page is made
    outcome: Any = task.data
    values: Mapping[str, Any] = {
        "task": task,
        "is_over": is_over,
        "redrive": outcome if isinstance(outcome, RedriveOutcome) else None,
        "purge": outcome if isinstance(outcome, PurgeOutcome) else None,
        "fates": [(fate.name.lower(), fate) for fate in (Fate.SENT, Fate.BEFORE, Fate.DUPLICATE, Fate.FAILED)],
        "can_confirm": is_over and not task.error and getattr(outcome, "dry_run", False),
    }
    return Page("task.html", values)


def stop(visit: Visit, audited: Audited) -> Moved:
    """Stop a task."""
    task = visit.tasks.get(visit.session, visit.required("id"))
    if task is None:
        raise RefusedError("There is no such task; it may have ended long ago.", 404)
    if task.changes:
        audited(visit, f"Stop: {task.title}")("asked")
    task.stop()
    return Moved(link("/task", id=task.id))
