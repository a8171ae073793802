"""The operations and writes that the naive model's leader keeps, and the orders that an event must cause."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model.records import Rank, Reason

#: First and last offset, types, delays of releases (PL-930), which releases take their delivery back (PL-941), why the
#: records are given up (PL-942; "": not said).
Ack = tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[bool, ...], str]


@dataclass(slots=True)
class Reported:
    """A write's causes, and the numbers of its records that were accepted, released, rejected, timed out, and archived
    or sent to the dead-letter queue at the delivery limit (PL-702, PM-20 X2, X3)."""

    causes: set[str] = field(default_factory=set)
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    timed_out: int = 0
    limited: int = 0
    given_back: int = 0

    def add(self, other: Reported) -> None:
        """Add the counts and causes of `other`."""
        self.causes |= other.causes
        self.accepted += other.accepted
        self.released += other.released
        self.rejected += other.rejected
        self.timed_out += other.timed_out
        self.limited += other.limited
        self.given_back += other.given_back

    @property
    def counters(self) -> tuple[int, ...]:
        """Return the counters in the order of a write."""
        return self.accepted, self.released, self.rejected, self.timed_out, self.limited, self.given_back


@dataclass(slots=True)
class Asked:
    """An acknowledgement, or the release of a session, that waits for its write. `letters`: offset → cause; `archived`:
    offset → (cause, delivery count). `limit`, `dlq`: the settings at the time of the request (PL-307). `reasons`: by
    offset (PL-942)."""

    number: int
    member: str
    limit: int
    dlq: bool
    offsets: set[int] = field(default_factory=set)
    taken_back: set[int] = field(default_factory=set)
    letters: dict[int, str] = field(default_factory=dict)
    archived: dict[int, tuple[str, int]] = field(default_factory=dict)
    reasons: dict[int, Reason] = field(default_factory=dict)
    types: tuple[int, ...] = ()
    reported: Reported = field(default_factory=Reported)


@dataclass(slots=True)
class Sent:
    """The outstanding write."""

    asked: list[Asked]
    carried: set[int]
    archiving: set[int]
    archived: dict[int, int]
    reported: Reported
    progress: tuple[int, int]
    first: bool = False

    @property
    def reasons(self) -> dict[int, Reason]:
        """Return why its records are given up."""
        return {offset: why for asked in self.asked for offset, why in asked.reasons.items()}


@dataclass(slots=True)
class Orders:
    """The orders that an event must cause.

    `write`: generation, start offset, delivery complete count, offset → rank (delays by the wall clock), SPEO, offset →
    reason. `wrote`: its causes; its counters, with the maximum and the sum of the delivery counts of the records it
    finishes (PM-20 X4). `letters`: cause → offset → count. `said`: offset → reason of these letters. `reported`: as
    `letters`, for records archived for good. `ends`: fenced, dropped.
    """

    replies: dict[int, tuple[str, bool, tuple[int, ...]]] = field(default_factory=dict)
    write: tuple[int, int, int, dict[int, Rank], int, dict[int, Reason]] | None = None
    wrote: tuple[set[str], tuple[int, ...]] | None = None
    letters: dict[str, dict[int, int]] = field(default_factory=dict)
    said: dict[int, str] = field(default_factory=dict)
    reported: dict[str, dict[int, int]] = field(default_factory=dict)
    read_back: int | None = None
    got: dict[int, int] | None = None
    ends: list[str] = field(default_factory=list)
