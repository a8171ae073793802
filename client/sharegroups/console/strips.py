"""The strip of a share-partition: its records from the start offset on, in runs of one state, as a picture and in
words (CT-168). Pure."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from sharegroups.admin_values import RecordExplanation, RecordsExplained

#: The width of a strip, in the units of its picture.
WIDTH: Final = 1_000
#: A run is drawn at least so wide, so that one record among thousands can be seen.
_LEAST: Final = 4
#: What a record is to its group, by state; a delayed one is available, with an obstacle.
_KINDS: Final = {
    "available": "available", "acquired": "held", "pending": "written", "acknowledged": "finished",
    "archiving": "archiving", "archived": "archived", "finished": "finished", "deleted": "gone", "hole": "gone",
    "beyond_end": "gone", "not_initialized": "unknown",
}  # fmt: skip
WORDS: Final = {
    "available": "can be delivered", "delayed": "wait for a delay or a transaction", "held": "held by members",
    "written": "acknowledgement being written", "finished": "finished", "archiving": "being archived",
    "archived": "archived", "gone": "no record", "unknown": "not begun",
}  # fmt: skip


class Run(NamedTuple):
    """Neighbouring records of one kind. `x`, `width`: where it is drawn; `text`: what it is."""

    kind: str
    x: float
    width: float
    text: str
    first_offset: int


class Strip(NamedTuple):
    """A picture and its words. `holders`: who holds records, with the longest time that a lock still has, in ms."""

    runs: tuple[Run, ...]
    words: str
    holders: tuple[tuple[str, int, int | None], ...]


def kind_of(record: RecordExplanation) -> str:
    """Return the kind of a record."""
    if record.obstacle in ("delayed", "uncommitted") or (record.delay_remaining_ms or 0) > 0:
        return "delayed"
    return _KINDS.get(record.state, "unknown")


def strip_of(answer: RecordsExplained) -> Strip:
    """Return the strip of the explained records."""
    total = sum(_size(record) for record in answer.records) or 1
    counts: Counter[str] = Counter()
    holders: dict[str, tuple[int, int | None]] = {}
    runs: list[Run] = []
    at = 0.0
    least = min(_LEAST, WIDTH / max(len(answer.records), 1))
    scale = (WIDTH - least * len(answer.records)) / total
    for record in answer.records:
        kind, size = kind_of(record), _size(record)
        counts[kind] += size
        if kind == "held":
            name = record.client_id or record.member_id or "a member"
            many, left = holders.get(name, (0, None))
            longest = max(filter(None, (left, record.lock_remaining_ms)), default=record.lock_remaining_ms)
            holders[name] = (many + size, longest)
        width = least + size * scale
        span = str(record.first_offset) if size == 1 else f"{record.first_offset} to {record.last_offset}"
        runs.append(Run(kind, round(at, 2), round(width, 2), f"{span}: {record.explanation}", record.first_offset))
        at += width
    words = ", ".join(f"{counts[kind]} {WORDS[kind]}" for kind in WORDS if counts[kind])
    return Strip(tuple(runs), words, tuple((name, *values) for name, values in sorted(holders.items())))


def _size(record: RecordExplanation) -> int:
    return record.last_offset - record.first_offset + 1
