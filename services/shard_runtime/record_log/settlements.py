"""What an operator settled about damaged entries of a log: values (CM-103, CM-114). Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Choice(StrEnum):
    """What replays do about an entry. SKIP: as though it had never been; DROP: besides, its key's state is deleted."""

    SKIP = "skip"
    DROP = "drop"


class Settlement(NamedTuple):
    """One decision: who made it, why, and when by the store's clock, in ms since 1970 (0: not known)."""

    choice: Choice = Choice.SKIP
    by: str = ""
    why: str = ""
    at_ms: int = 0
