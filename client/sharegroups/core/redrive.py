"""What becomes of each letter that is to be redriven, and how far the queue may be deleted then (CT-126, CT-127)."""

from __future__ import annotations

from enum import Enum

from sharegroups.core.dead_letters import Letter
from sharegroups.core.met_origins import MetOrigins, Scope


class Fate(Enum):
    """What becomes of a record of a DLQ topic.

    LEFT: it is no letter, or was not chosen. SENT: a fresh record is produced. BEFORE: its fresh record is there
    already. DUPLICATE: an earlier letter of this run has the same origin, group and content. FAILED: it cannot be
    redriven.
    """

    LEFT = "left"
    SENT = "redriven"
    BEFORE = "redriven_before"
    DUPLICATE = "duplicates"
    FAILED = "failed"


def scope_of(letter: Letter) -> tuple[Scope, int]:
    """The origin of a letter that is not garbled: its scope, and the offset."""
    assert letter.origin is not None
    assert letter.group is not None
    topic, partition, offset = letter.origin
    return Scope(letter.group, topic, partition, letter.topic_id), offset


class Redrive:
    """Decides for one letter after the other. `before`: the origins whose fresh records are there already.

    After a letter with SENT could not be sent, call `failed`. Contents are those of `letter_content`.
    """

    def __init__(self, before: MetOrigins) -> None:
        self._before = before
        self._met = MetOrigins()

    def is_claimed(self, letter: Letter) -> bool:
        """Whether some record says that it is the fresh record of this letter, whatever its content.

        Ask for letters that are not garbled only.
        """
        return self._before.has_any(*scope_of(letter))

    def decide(self, letter: Letter | None, is_chosen: bool, content: int, fresh: int | None) -> Fate:
        """The fate of the next record. `fresh`: the content that its fresh record has, None when it is not known; then
        a record that claims to be the fresh one is believed, and the letter stays (`is_settled`)."""
        if letter is None or not is_chosen:
            return Fate.LEFT
        if letter.is_garbled:
            return Fate.FAILED
        scope, offset = scope_of(letter)
        if self._before.has_any(scope, offset) if fresh is None else self._before.has(scope, offset, fresh):
            return Fate.BEFORE
        return Fate.SENT if self._met.add(scope, offset, content) else Fate.DUPLICATE

    def failed(self, letter: Letter, content: int) -> None:
        """The letter was not redriven after all: another one with its origin is no duplicate."""
        self._met.discard(*scope_of(letter), content)

    def is_settled(self, letter: Letter | None, fate: Fate, content: int, fresh: int | None) -> bool:
        """Whether a fresh record with the letter's content stands for it, so that the letter may be deleted.

        Ask when everything that was sent has been confirmed, or has failed.
        """
        if fate is Fate.DUPLICATE:
            assert letter is not None
            return self._met.has(*scope_of(letter), content)
        return fate is Fate.SENT or (fate is Fate.BEFORE and fresh is not None)


class SettledPrefix:
    """The beginning of a partition in which every letter is settled: what may be deleted.

    `is_open`: False once a record was met that must stay.
    """

    def __init__(self, start: int) -> None:
        self.end = start
        self.is_open = True

    def meet(self, offset: int, is_settled: bool) -> None:
        """The next record of the partition."""
        if self.is_open and not is_settled:
            self.end, self.is_open = offset, False

    def reach(self, offset: int) -> None:
        """Everything before the offset was met."""
        if self.is_open:
            self.end = max(self.end, offset)
