"""Decides what happens to each dead letter in a redrive, and up to which offset the queue may be deleted afterwards
(CT-126, CT-127)."""

from __future__ import annotations

from enum import Enum

from sharegroups.cli.dlq.core.dead_letters import Letter
from sharegroups.cli.dlq.core.seen_origins import Scope, SeenOrigins


class Fate(Enum):
    """The outcome for a record of a DLQ topic.

    LEFT: it is not a letter, or was not chosen. SENT: a fresh record is produced. BEFORE: its fresh record already
    exists. DUPLICATE: an earlier dead letter of this run has the same origin, group and content. FAILED: it cannot be
    redriven.
    """

    LEFT = "left"
    SENT = "redriven"
    BEFORE = "redriven_before"
    DUPLICATE = "duplicates"
    FAILED = "failed"


def scope_of(letter: Letter) -> tuple[Scope, int]:
    """Return the origin of a dead letter, which must not be garbled: its scope and its offset."""
    assert letter.origin is not None
    assert letter.group is not None
    topic, partition, offset = letter.origin
    return Scope(letter.group, topic, partition, letter.topic_id), offset


def was_redriven(before: SeenOrigins, letter: Letter, fresh: int | None) -> bool:
    """Return whether `before`, the origins of fresh records, has that of a dead letter. `fresh`: the content of its
    fresh record; None when it is unknown, and then any record that claims to be the fresh one is believed."""
    scope, offset = scope_of(letter)
    return before.has_any(scope, offset) if fresh is None else before.has(scope, offset, fresh)


class Redrive:
    """Decides each dead letter's fate in turn. `before`: the origins whose fresh records already exist.

    When a letter with the fate SENT could not be sent, call `failed`. Contents are hashes returned by `letter_content`.
    """

    def __init__(self, before: SeenOrigins) -> None:
        self._before = before
        self._met = SeenOrigins()

    def is_claimed(self, letter: Letter) -> bool:
        """Return whether a record claims to be the fresh record of this dead letter, whatever that record's content.

        Call it only for letters that are not garbled.
        """
        return self._before.has_any(*scope_of(letter))

    def decide(self, letter: Letter | None, is_chosen: bool, content: int, fresh: int | None) -> Fate:
        """Return the fate of the next record. `fresh`: the content of its fresh record; None when it is unknown. In
        that case a record that claims to be the fresh one is believed, and the dead letter is not deleted
        (`is_settled`)."""
        if letter is None or not is_chosen:
            return Fate.LEFT
        if letter.is_garbled:
            return Fate.FAILED
        scope, offset = scope_of(letter)
        if was_redriven(self._before, letter, fresh):
            return Fate.BEFORE
        return Fate.SENT if self._met.add(scope, offset, content) else Fate.DUPLICATE

    def failed(self, letter: Letter, content: int) -> None:
        """Note that the dead letter was not redriven after all, so that another one with its origin is not a
        duplicate."""
        self._met.discard(*scope_of(letter), content)

    def is_settled(self, letter: Letter | None, fate: Fate, content: int, fresh: int | None) -> bool:
        """Return whether a fresh record with the dead letter's content exists, so that the letter may be deleted.

        Call it when everything that was sent has been confirmed or has failed.
        """
        if fate is Fate.DUPLICATE:
            assert letter is not None
            return self._met.has(*scope_of(letter), content)
        return fate is Fate.SENT or (fate is Fate.BEFORE and fresh is not None)


class SettledPrefix:
    """The beginning of a partition that may be deleted, because every dead letter in it is settled.

    `is_open`: False after a record that must stay.
    """

    def __init__(self, start: int) -> None:
        self.end = start
        self.is_open = True

    def meet(self, offset: int, is_settled: bool) -> None:
        """Process the next record of the partition."""
        if self.is_open and not is_settled:
            self.end, self.is_open = offset, False

    def reach(self, offset: int) -> None:
        """Note that every record before the offset has been processed."""
        if self.is_open:
            self.end = max(self.end, offset)
