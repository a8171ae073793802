"""A share consumer's warnings about locks that have expired or soon will: one line per cause, with repetitions counted.

Rule CL-81. Pure: events are passed in with their times in ms, and the methods return lines to log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kip932.errors import KafkaError

#: The interval, in ms, after which a cause is logged again, with the number of records affected since.
QUIET_MS: Final = 300_000
_TEXT_MAX: Final = 300

Ranges = Sequence[tuple[int, int]]


class Hold(NamedTuple):
    """Records of one topic-partition, how long they have been locked so far, and how long the lock lasts, in ms."""

    place: str
    held_ms: int
    lock_ms: int


class LockWarnings:
    """Decides which warnings are logged. A method returns None if its cause was logged recently; it then only counts
    the event.

    `advice` is a text that says what the application can change. Not thread-safe: use it only on the client's event
    loop.
    """

    def __init__(self, advice: str) -> None:
        self._advice = advice
        #: By cause: when it was last logged, and the number of records affected since then.
        self._logged: dict[str, list[int]] = {}

    def held(self, hold: Hold, offset: int, records: int, now_ms: int) -> str | None:
        """Return the warning that the application has held records for half of their lock duration."""
        more = f", one of {records} records that poll returned," if records > 1 else ""
        return self._line(
            "held",
            records,
            now_ms,
            f"{hold.place} offset {offset}{more} has been held for {_s(hold.held_ms)} without an acknowledgement sent; "
            f"its lock expires after {_s(hold.lock_ms)}, and then it is redelivered. {self._advice}",
        )

    def refused(self, hold: Hold, ranges: Ranges, now_ms: int) -> str | None:
        """Return the warning that the leader refused an acknowledgement because the records' lock had expired."""
        return self._line(
            "refused",
            _count(ranges),
            now_ms,
            f"the acknowledgement of {hold.place} {_offsets(ranges)} was refused: held for {_s(hold.held_ms)}, locked "
            f"for {_s(hold.lock_ms)}. The consumer that gets {_them(ranges)} next may do the same work again. "
            f"{self._advice}",
        )

    def failed(self, place: str, ranges: Ranges, error: KafkaError, now_ms: int) -> str | None:
        """Return the warning that an acknowledgement, whose outcome the application does not wait for, failed for
        another reason."""
        text = error.message if len(error.message) <= _TEXT_MAX else error.message[: _TEXT_MAX - 1] + "…"
        return self._line(
            error.name,
            _count(ranges),
            now_ms,
            f"the acknowledgement of {place} {_offsets(ranges)} failed: {error.name}: {text}. Unless it took effect "
            "anyway, they are redelivered. Set an acknowledgement commit callback, or use commit_sync, to "
            "handle each failure.",
        )

    def expired(self, hold: Hold, ranges: Ranges, now_ms: int) -> str | None:
        """Return the warning that records are not handed out, because their lock expired, or nearly did, while they
        waited in the client."""
        return self._line(
            "expired",
            _count(ranges),
            now_ms,
            f"{hold.place} {_offsets(ranges)} not handed out: fetched {_s(hold.held_ms)} ago and locked for "
            f"{_s(hold.lock_ms)}; released. Poll sooner after a poll that returned nothing; "
            "share.acquire.mode=record_limit fetches nothing ahead.",
        )

    def rest(self) -> list[str]:
        """Return lines for the events that were counted but not logged; call it when the consumer closes."""
        return [
            f"{records} more records since the last warning of their kind: {_KINDS.get(cause, cause)}"
            for cause, (_, records) in self._logged.items()
            if records
        ]

    def _line(self, cause: str, records: int, now_ms: int, line: str) -> str | None:
        logged = self._logged.get(cause)
        if logged is not None and now_ms - logged[0] < QUIET_MS:
            logged[1] += records
            return None
        before = logged[1] if logged is not None else 0
        self._logged[cause] = [now_ms, 0]
        return f"{line} ({before} more records since the last such warning)" if before else line


_KINDS: Final = {
    "held": "held for half of their lock duration or longer",
    "refused": "acknowledgement refused because their lock had expired",
    "expired": "not handed out because their lock had expired",
}


def _s(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def _count(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _them(ranges: Ranges) -> str:
    return "it" if _count(ranges) == 1 else "them"


def _offsets(ranges: Ranges) -> str:
    count = _count(ranges)
    if count == 1:
        return f"offset {ranges[0][0]}"
    return f"offsets {ranges[0][0]} to {ranges[-1][1]} ({count} records)"
