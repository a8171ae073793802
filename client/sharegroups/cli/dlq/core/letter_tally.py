"""Counts dead letters by what they have in common, within bounded memory (CT-123, CT-128)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: The maximum number of rows. The headers of dead letters are untrusted, and could name any number of keys.
ROWS_MAX: Final = 1_000


@dataclass(slots=True)
class SentCounts:
    """How many dead letters were sent back, how many were not, and for how many that is not known."""

    back: int = 0
    waiting: int = 0
    unknown: int = 0

    def add(self, is_sent: bool | None) -> None:
        """Count one dead letter. `is_sent`: whether it was sent back; None when that is not known."""
        if is_sent is None:
            self.unknown += 1
        elif is_sent:
            self.back += 1
        else:
            self.waiting += 1

    @property
    def text(self) -> str:
        """How many were sent back: `18+` when there may be more, `-` when nothing is known."""
        if self.unknown and not self.back and not self.waiting:
            return "-"
        return f"{self.back}+" if self.unknown else str(self.back)


@dataclass(slots=True)
class Row:
    """The number of dead letters, how many are duplicates, when the first and last were stored, ms since 1970, and how
    many were sent back."""

    letters: int = 0
    duplicates: int = 0
    first_ms: int = 0
    last_ms: int = 0
    sent: SentCounts = field(default_factory=SentCounts)

    def add(self, stored_ms: int, is_duplicate: bool, is_sent: bool | None) -> None:
        """Count one dead letter."""
        self.first_ms = stored_ms if not self.letters else min(self.first_ms, stored_ms)
        self.last_ms = max(self.last_ms, stored_ms)
        self.letters += 1
        self.duplicates += is_duplicate
        self.sent.add(is_sent)


class Tally:
    """Rows by key, each key a tuple of texts. Once there are `rows_max` rows, dead letters of new keys are counted in
    `others`."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self.letters = 0
        self.others = Row()
        self._rows_max = rows_max
        self._rows: dict[tuple[str, ...], Row] = {}

    def add(
        self, key: tuple[str, ...], stored_ms: int, is_duplicate: bool = False, is_sent: bool | None = None
    ) -> None:
        """Count one dead letter. `is_sent`: whether it was sent back; None when that is not known."""
        self.letters += 1
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._rows_max:
                row = self.others
            else:
                row = self._rows[key] = Row()
        row.add(stored_ms, is_duplicate, is_sent)

    def rows(self) -> list[tuple[tuple[str, ...], Row]]:
        """Return the rows, those with the most dead letters first, then by key."""
        return sorted(self._rows.items(), key=lambda item: (-item[1].letters, item[0]))
