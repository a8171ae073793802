"""Values for an operator's settlements of damaged entries of a log (CM-103, CM-114). Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Choice(StrEnum):
    """How replays treat an entry. SKIP ignores it; DROP also deletes its key's state."""

    SKIP = "skip"
    DROP = "drop"


class Settlement(NamedTuple):
    """One decision: who made it, why, and when by the store's clock, in ms since 1970 (0 when unknown)."""

    choice: Choice = Choice.SKIP
    by: str = ""
    why: str = ""
    at_ms: int = 0
