"""The strip of a share-partition: a character for each record from the group's start offset on (CT-158)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kip932.printable import printable
from sharegroups.admin_values import RecordExplanation, RecordsExplained
from sharegroups.insight.figures import duration

LOCKED, WRITTEN, DELAYED, AVAILABLE, ARCHIVED, FINISHED = "#", "w", "z", "o", "x", "."
#: What each character means. If a cell covers several records, it shows the first of these that one of them has.
LEGEND: Final = {
    LOCKED: "locked",
    WRITTEN: "being written",
    DELAYED: "waits",
    AVAILABLE: "available",
    ARCHIVED: "archived",
    FINISHED: "finished",
}
_RANK: Final = {symbol: rank for rank, symbol in enumerate(LEGEND)}
_BY_STATE: Final = {"acquired": LOCKED, "pending": WRITTEN, "archiving": WRITTEN, "archived": ARCHIVED}
_FINISHED: Final = frozenset({"acknowledged", "finished", "deleted", "hole"})
#: What keeps an available record from being delivered though members fetch.
_WAITS: Final = frozenset({"delayed", "uncommitted"})
_BEYOND_END: Final = "beyond_end"


def legend() -> str:
    """Return what the characters mean, in one line."""
    return "  ".join(f"{symbol} {meaning}" for symbol, meaning in LEGEND.items())


def strip(answer: RecordsExplained, width: int) -> tuple[str, int]:
    """Return the strip, at most `width` characters, and how many records each of them covers."""
    symbols = "".join(symbol * count for symbol, count in _runs(answer))
    if not symbols or width < 1:
        return "", 1
    each = -(-len(symbols) // width)
    cells = (symbols[at : at + each] for at in range(0, len(symbols), each))
    return "".join(min(cell, key=lambda symbol: _RANK[symbol]) for cell in cells), each


def _runs(answer: RecordsExplained) -> Iterator[tuple[str, int]]:
    start = max(answer.start_offset or 0, answer.log_start_offset)
    for record in answer.records:
        first = max(record.first_offset, start)
        if record.state != _BEYOND_END and first <= record.last_offset:
            yield _symbol(record), record.last_offset - first + 1


def _symbol(record: RecordExplanation) -> str:
    if record.state in _FINISHED:
        return FINISHED
    return _BY_STATE.get(record.state) or (DELAYED if record.obstacle in _WAITS else AVAILABLE)


def holders(answer: RecordsExplained) -> Iterator[str]:
    """Yield who holds which records, and for how much longer."""
    for record in answer.records:
        if record.state != "acquired" or not record.member_id:
            continue
        first, last = record.first_offset, record.last_offset
        span = str(first) if first == last else f"{first}-{last}"
        left = "" if record.lock_remaining_ms is None else f", {duration(max(record.lock_remaining_ms, 0))} left"
        client = f" ({printable(record.client_id)})" if record.client_id else ""
        yield f"{span} held by {printable(record.member_id)}{client}{left}"
