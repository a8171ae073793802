"""Why a group is behind in a topic, in a few words (CT-155).

The words never claim more than the figures show: causes that the figures cannot
distinguish are named as what was seen, and a figure that is missing makes the cause unknown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kip932.printable import printable
from sharegroups.insight.figures import duration
from sharegroups.share_progress import ShareProgress

#: A record that is held for longer than this, in ms, is named: twice the lock that a member gets without renewing it.
LONG_HELD_MS: Final = 60_000
#: While the oldest record is younger than this, in ms, and records are finished, a group keeps up.
FRESH_MS: Final = 10_000
_ID_SHOWN: Final = 12
_STATE_EMPTY: Final = "Empty"
#: The states in which a coordinator does not serve a group as it is.
_UNSERVED: Final = {"Dead": "it is being deleted", "Unknown": "its state is in quarantine"}

NO_MEMBER: Final = "no member"
NONE_FETCHES: Final = "members, but none fetches"
BUSY: Final = "handlers busy"
ONLY_DELAYED: Final = "only delayed records"
DEAD_LETTERS: Final = "dead letters wait"
KEEPS_UP: Final = "keeps up"
#: For a group without a member and without a lag: nothing is wrong.
NOTHING_WAITS: Final = "nothing waits"
NOTHING_GIVEN: Final = "members fetch, but get no record"


class Group(NamedTuple):
    """A group as its coordinator lists it; None: unknown."""

    state: str | None
    members: int | None

    @property
    def is_empty(self) -> bool:
        """True if the group is known to have no member."""
        return self.members == 0 or (self.members is None and self.state == _STATE_EMPTY)

    @property
    def has_members(self) -> bool:
        """True if the group is known to have a member."""
        return bool(self.members) or (self.members is None and self.state == "Stable")


def why(progress: ShareProgress | None, group: Group, missing: tuple[str, ...]) -> str:
    """Return why a group is behind in a topic. `progress`: None when no leader counts it. `missing`: the leaders that
    did not answer, which may lead partitions of it."""
    if group.state in _UNSERVED:
        return f"unknown: {_UNSERVED[group.state]}"
    if progress is None or progress.lag is None:
        return _of_unknown(progress, group, missing)
    if not progress.lag:
        return _of_none_left(progress, group, missing)
    if group.is_empty:
        return NO_MEMBER
    return _held(progress) or _of_what_waits(progress) or _of_lag(progress, group, missing)


def _of_unknown(progress: ShareProgress | None, group: Group, missing: tuple[str, ...]) -> str:
    if group.is_empty:
        return NO_MEMBER
    if missing:
        return _silent(missing)
    if progress is None:
        return NONE_FETCHES if group.has_members else "unknown: no leader knows of it"
    return "unknown: a leader has not read its state yet"


def _of_none_left(progress: ShareProgress, group: Group, missing: tuple[str, ...]) -> str:
    if progress.dead_letters:
        return DEAD_LETTERS
    if missing:
        return _silent(missing)
    return NOTHING_WAITS if group.is_empty else KEEPS_UP


def _held(progress: ShareProgress) -> str:
    """Name the holder when what it holds is all that is left, or when nothing else has been finished meanwhile."""
    if not progress.longest_member or progress.longest_held_ms < LONG_HELD_MS:
        return ""
    since = progress.since_finish_ms
    is_rest = progress.in_flight + progress.delayed >= (progress.lag or 0)
    if not is_rest and since is not None and since < progress.longest_held_ms:
        return ""
    return f"held {duration(progress.longest_held_ms)} by {short_id(progress.longest_member)}"


def _of_what_waits(progress: ShareProgress) -> str:
    """Name what the records wait for if no handler could take any of them now."""
    lag = progress.lag or 0
    if progress.delayed >= lag:
        return ONLY_DELAYED
    return DEAD_LETTERS if progress.dead_letters and progress.dead_letters + progress.delayed >= lag else ""


def _of_lag(progress: ShareProgress, group: Group, missing: tuple[str, ...]) -> str:
    if missing and not progress.recent_finished:
        return _silent(missing)
    young = progress.oldest_ms is not None and progress.oldest_ms < FRESH_MS
    if young and progress.recent_finished:
        return KEEPS_UP
    if progress.in_flight:
        return BUSY
    if not progress.fetching:
        return NONE_FETCHES if group.has_members else "none fetches; its members are unknown"
    return KEEPS_UP if young else NOTHING_GIVEN


def short_id(member_id: str) -> str:
    """Return a member id for a sentence: printable, and cut if it is long, since it usually is a UUID."""
    shown = printable(member_id)
    return shown if len(shown) <= _ID_SHOWN else f"{shown[: _ID_SHOWN - 4]}…"


def _silent(missing: tuple[str, ...]) -> str:
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"unknown: node {printable(missing[0])}{more} did not answer"
