"""Changes that are known to have no effect, each with its reason: `equivalent.txt`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.changes import Change, changes
from tests.mutation.rooms import ROOT, Place

LIST: Final = Path(__file__).with_name("equivalent.txt")


@dataclass(frozen=True, slots=True)
class Equivalents:
    """Reasons, keyed by what `_words` returns for a change, since line numbers would not stay valid."""

    reasons: dict[tuple[str, str, str], str]

    @classmethod
    def load(cls, path: Path) -> Equivalents:
        """Load the list. Raises ValueError for an incomplete line."""
        found = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                file, text, change, reason = line.split(" | ")
                found[file, text, change] = reason
        return cls(found)

    def reason(self, place: Place) -> str:
        """Return the reason why the change has no effect; empty if it is not known to have none."""
        return self.reasons.get(_words(place.path, place.change), "")

    def stale(self) -> list[tuple[str, str, str]]:
        """Return the entries that match no change to the current sources."""
        paths = sorted({path for path, *_ in self.reasons})
        offered = {
            _words(path, change) for path in paths for change in changes((ROOT / path).read_text(encoding="utf-8"))
        }
        return [words for words in self.reasons if words not in offered]


def _words(path: str, change: Change) -> tuple[str, str, str]:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    line = lines[change.line - 1].strip() if change.line <= len(lines) else ""
    return path, line, str(change).partition(": ")[2]
