"""Notes and warnings about dead letters that have not been written yet: in `groups describe --verbose` (CT-135), and
before a change discards them (PL-919, CT-24a)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shlex import quote
from typing import Final

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.ids import EXPLAINED_OFFSETS_MAX, TopicPartition
from sharegroups.admin import Admin
from sharegroups.admin_values import GroupOffsets
from sharegroups.cli.output import print_stderr
from sharegroups.insight.figures import age

#: By kind of change, what happens to the records whose dead letters are discarded.
GROUP_RESTARTS: Final = "the group begins again by share.auto.offset.reset"
BY_OFFSET: Final = "their records from the new offset on are delivered again, the others never"
_PLACES_SHOWN: Final = 5


def warn_of_waiting_letters(
    admin: Admin, groups: list[str], becomes: str, chosen: Callable[[TopicPartition], bool] = lambda _: True
) -> None:
    """For each group, warn how many dead letters of the `chosen` partitions are not written yet and will be discarded
    by the change. Print nothing if there are none. If the number is unavailable, warn about that; it never stops the
    change."""
    found = admin.list_share_group_offsets(dict.fromkeys(groups), backlog=True) if groups else {}
    for group in groups:
        offsets = found[group]
        if isinstance(offsets, GroupIdNotFoundError):
            continue
        if isinstance(offsets, KafkaError):
            print_stderr(f"Warn: It is not known whether dead letters of group '{group}' wait: {offsets.message}")
            continue
        if unknown := [part for part in offsets.errors if chosen(part)]:
            print_stderr(f"Warn: It is not known whether dead letters of group '{group}' wait in {_text(unknown)}.")
        counts = {part: entry.dead_letters or 0 for part, entry in offsets.items() if entry and chosen(part)}
        _warn(group, {part: count for part, count in counts.items() if count}, becomes)


def _warn(group: str, waiting: Mapping[TopicPartition, int], becomes: str) -> None:
    letters = sum(waiting.values())
    if letters:
        print_stderr(
            f"Warn: In group '{group}' {_many(letters)} to be written, of {_text(list(waiting))}. This change discards "
            f"what waits: it is written to no dead-letter topic, and {becomes}. To see it written first: sharegroups "
            f"groups describe --group {quote(group)} --verbose"
        )


def note_waiting_letters(group: str, offsets: GroupOffsets) -> None:
    """Print the partitions with dead letters that are not written yet, and the command that explains why; nothing if
    there are none."""
    waiting = [(part, entry) for part, entry in sorted(offsets.items()) if entry and entry.dead_letters]
    for (topic, number), entry in waiting[:_PLACES_SHOWN]:
        since = "" if entry.dead_letter_age_ms is None else f", the oldest for {age(entry.dead_letter_age_ms)}"
        start = max(entry.start_offset, 0)
        print_stderr(
            f"Note: group {group!r}, {topic}-{number}: {_many(entry.dead_letters or 0)} to be written{since}. Why: "
            f"sharegroups groups explain --group {quote(group)} --topic {quote(topic)}:{number} --offset "
            f"{start}-{start + EXPLAINED_OFFSETS_MAX - 1}"
        )
    if len(waiting) > _PLACES_SHOWN:
        print_stderr(
            f"Note: group {group!r}: dead letters wait in {len(waiting) - _PLACES_SHOWN} more partitions, see above."
        )


def _many(letters: int) -> str:
    return "1 dead letter waits" if letters == 1 else f"{letters} dead letters wait"


def _text(parts: list[TopicPartition]) -> str:
    shown = ", ".join(f"{topic}:{number}" for topic, number in sorted(parts)[:_PLACES_SHOWN])
    more = len(parts) - _PLACES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
