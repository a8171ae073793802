"""How one member of a share group handles records: randomly drawn values only, no actions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any, Final, Self

from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE


class Commit(StrEnum):
    """How acknowledgements are sent."""

    SYNC = "commit_sync"
    ASYNC = "commit_async"
    POLL = "with the next poll"


class Ending(StrEnum):
    """How a member ends."""

    CLOSE = "close"
    PENDING = "close with acknowledgements pending"
    IN_HAND = "close with records in hand"
    UNSUBSCRIBE = "unsubscribe, then close"
    KILLED = "killed"


#: Frequent reasons, so that neighbours have the same one; a line that is empty after a cut; two lines; the most bytes.
_REASONS: Final = ("LookupError: no price", "LookupError: no price", "\n", " \nin pay", "Refused: é\nin pay", "ü" * 512)


def reason(rng: Random) -> str:
    """Draw why a member gives a record up: none, a frequent reason, or one that no other record has."""
    draw = rng.random()
    if draw < 0.3:
        return ""
    return rng.choice(_REASONS) if draw < 0.6 else f"E{rng.getrandbits(40)}: {'x' * rng.choice([0, 10, 300])}\nat x"


@dataclass(frozen=True)
class Manners:
    """`has_callback`: True if it has an acknowledgement callback; otherwise it learns outcomes only from commit_sync.
    Chances are 0 to 1.

    `release`, `reject`: per record. `renew`, `dawdle` (handling takes longer than the lock), `partly` (a commit in the
    middle), `fickle` (it subscribes again): per poll. `pace_s`: the maximum handling time when it does not dawdle.
    `wait_ms`: how long a leader may hold its fetches. `lives_s`: its lifetime. `fails`: True if it cannot handle its
    group's poison. `poll_interval_ms`: the time between polls after which it leaves; `fetch_bytes`: how many bytes it
    requests at a time.
    """

    explicit: bool
    has_callback: bool
    commit: Commit
    ending: Ending
    record_limit: bool
    max_poll: int
    release: float
    reject: float
    renew: float
    dawdle: float
    partly: float
    fickle: float
    pace_s: float
    wait_ms: int
    lives_s: float
    fails: bool = True
    poll_interval_ms: int = 300_000
    fetch_bytes: int = 52_428_800

    @classmethod
    def draw(cls, rng: Random, explicit: float, hasty: bool) -> Self:
        """Draw manners; `hasty` members come and go every few hundred milliseconds."""
        return cls(
            explicit=rng.random() < explicit,
            has_callback=rng.random() < 0.7,
            commit=rng.choice(list(Commit)),
            ending=rng.choice(list(Ending)),
            record_limit=rng.random() < 0.3,
            max_poll=rng.choice([3, 10, 40, 500]),
            release=rng.choice([0.0, 0.1, 0.3]),
            reject=rng.choice([0.0, 0.05, 0.2]),
            renew=rng.choice([0.0, 0.0, 0.3]),
            dawdle=rng.choice([0.0, 0.0, 0.1, 0.3]),
            partly=rng.choice([0.0, 0.3]),
            fickle=rng.choice([0.0, 0.0, 0.1]),
            pace_s=rng.choice([0.3, 0.8, 1.6]),
            wait_ms=rng.choice([200, 1000, 2500]),
            lives_s=rng.uniform(0.3, 0.9) if hasty else rng.uniform(2, 9),
        )

    def pressed(self, rng: Random, pressures: Collection[str]) -> Self:
        """Return the same manners, adjusted to the run's pressures (`shape.PRESSURES`)."""
        changed = self
        if "max poll" in pressures and rng.random() < 0.6:
            changed = replace(changed, poll_interval_ms=rng.choice([500, 1_500]))
        if "bytes" in pressures and rng.random() < 0.7:
            changed = replace(changed, fetch_bytes=rng.choice([1, 60, 400]))
        if "delays" in pressures:
            changed = replace(changed, release=rng.choice([changed.release, 0.2, 0.5]))
        if "bulk" in pressures:
            changed = replace(changed, max_poll=500, pace_s=0.3, lives_s=9.0, explicit=rng.random() < 0.7)
        return changed

    def settings(self) -> dict[str, Any]:
        """Return the configuration of a consumer with these manners."""
        return {
            "share.acknowledgement.mode": "explicit" if self.explicit else "implicit",
            "share.acquire.mode": "record_limit" if self.record_limit else "batch_optimized",
            "max.poll.records": self.max_poll,
            "fetch.max.wait.ms": self.wait_ms,
            "max.poll.interval.ms": self.poll_interval_ms,
            "fetch.max.bytes": self.fetch_bytes,
            "request.timeout.ms": 2_000,
            "default.api.timeout.ms": 4_000,
        }

    def kind(self, rng: Random, poison: bool) -> int:
        """Draw the acknowledge type of a record."""
        draw = rng.random()
        if poison or draw < self.release:
            return ACK_RELEASE
        return ACK_REJECT if draw < self.release + self.reject else ACK_ACCEPT


#: The manners of the member that drains a group at the end.
TIDY = Manners(
    explicit=True,
    has_callback=True,
    commit=Commit.SYNC,
    ending=Ending.CLOSE,
    record_limit=False,
    max_poll=500,
    release=0.0,
    reject=0.0,
    renew=0.0,
    dawdle=0.0,
    partly=0.0,
    fickle=0.0,
    pace_s=0.0,
    wait_ms=2000,
    lives_s=60.0,
    fails=False,
)
