"""INV-16 for members that are lost or paused: they, and no others, are removed in time with their share sessions.

`membership.Expiry` checks that no member is removed too early.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kip932.ids import EPOCH_JOIN, EPOCH_LEAVE
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import numbered
from tests.simulation.checkers.undisturbed import Undisturbed
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    Administered,
    Event,
    GroupSeen,
    HeartbeatAnswered,
    History,
    ProcessChanged,
    SessionEnded,
)
from tests.simulation.member_events import (
    ClocksRestarted,
    LossTaken,
    MemberRemoved,
    RemovalHeard,
    ReturnTaken,
    SessionOpened,
)

_INTERVAL: Final = "share.heartbeat.interval.ms"
#: The heartbeat interval of groups that set none (`shape`), and the extra time for a lost member (GC-36).
_INTERVAL_MS: Final = 1_000
_SLACK_MS: Final = 1_000
#: A heartbeat this soon after the loss proves nothing (GC-37).
_UNDER_WAY_MS: Final = 1_000
#: How late samples and timers may be, including an order to a leader.
_LATE_MS: Final = 1_500
#: The time after a removal within which each leader must have learned of it and ended the session (GC-39b): removals
#: are gathered, sent and carried out.
_REPORTED_MS: Final = 1_500

Life = tuple[str, int]
Member = tuple[str, str]


def _life(event: Event) -> Life:
    return event.process, getattr(event, "incarnation", 0)


def _longest_interval_ms(history: History) -> int:
    """Return the longest heartbeat interval that any group may have had."""
    found = [_INTERVAL_MS]
    for event in history.of(Administered):
        name, _, value = event.detail.partition("=")
        if event.call == "IncrementalAlterConfigs" and name == _INTERVAL and value.isdecimal():
            found.append(int(value))
    return max(found)


@dataclass
class _Expected:
    event: LossTaken
    lost_ms: int
    over_ms: int


class LostGo:
    """A member that a leader reported as lost is removed within the grace period of GC-36, unless it sends a heartbeat
    or returns."""

    rules: tuple[str, ...] = ("INV-16",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Report a member that is seen after the grace period, if no fault had effects from before the report until
        then."""
        del final
        calm = Undisturbed(history)
        grace_ms = _longest_interval_ms(history) + _SLACK_MS
        expected: dict[Life, dict[Member, _Expected]] = defaultdict(dict)
        for event in history.of(LossTaken, ReturnTaken, ClocksRestarted, HeartbeatAnswered, GroupSeen):
            here = expected[_life(event)]
            if isinstance(event, ClocksRestarted):
                here.clear()
            elif isinstance(event, LossTaken):
                made = _Expected(event, event.at_ms - event.ago_ms, event.at_ms + grace_ms)
                here.setdefault((event.group_id, event.member_id), made)
            elif isinstance(event, ReturnTaken):
                here.pop((event.group_id, event.member_id), None)
            elif isinstance(event, HeartbeatAnswered):
                self._beat(here, event, grace_ms)
            else:
                yield from self._seen(here, event, calm)

    @staticmethod
    def _beat(here: dict[Member, _Expected], event: HeartbeatAnswered, grace_ms: int) -> None:
        found = here.get((event.group_id, event.member_id))
        if found is None or event.code > 0:
            return
        if event.at_ms - found.lost_ms < _UNDER_WAY_MS and event.sent_epoch != EPOCH_LEAVE:
            found.over_ms = event.at_ms + grace_ms
        else:
            del here[event.group_id, event.member_id]

    @staticmethod
    def _seen(here: dict[Member, _Expected], event: GroupSeen, calm: Undisturbed) -> Iterator[Violation]:
        members = {member for member, _ in event.members}
        for (group_id, member), found in list(here.items()):
            if group_id != event.group_id:
                continue
            if member not in members:
                del here[group_id, member]
            elif event.at_ms > found.over_ms + _LATE_MS and calm.between(found.event.at_ms, event.at_ms):
                del here[group_id, member]
                yield Violation(
                    "INV-16",
                    f"{member} is still in group {group_id} at {event.at_ms}: a leader lost it at {found.lost_ms}, "
                    f"nothing was heard of it, and it had until {found.over_ms}",
                    (found.event, event),
                )


class RemovedEnd:
    """The share sessions of a removed member end at every leader; those of its later memberships do not."""

    rules: tuple[str, ...] = ("INV-16",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check that they ended in time if no fault had effects meanwhile, and in any case that no later membership's
        session was ended."""
        del final
        sessions, calm = _Sessions(), Undisturbed(history)
        waiting: list[tuple[int, MemberRemoved]] = []
        kinds = (SessionOpened, SessionEnded, RemovalHeard, MemberRemoved, HeartbeatAnswered, ProcessChanged, GroupSeen)
        for position, event in numbered(history, *kinds):
            while waiting and waiting[0][1].at_ms + _REPORTED_MS < event.at_ms:
                at, removed = waiting.pop(0)
                if calm.between(removed.at_ms, event.at_ms):
                    yield from sessions.left_open(at, removed, event.at_ms)
            if isinstance(event, MemberRemoved):
                waiting.append((position, event))
            if isinstance(event, RemovalHeard):
                yield from sessions.heard(event)
            else:
                sessions.note(position, event)


@dataclass
class _Session:
    """`ends`: how many end events are still due; a replaced session's end is recorded after the start of the one
    replacing it."""

    opened: SessionOpened
    position: int
    ends: int


class _Sessions:
    """The share sessions of all leaders, and the successive memberships of members."""

    def __init__(self) -> None:
        self._open: dict[Life, dict[Member, _Session]] = defaultdict(dict)
        self._ended: dict[Life, dict[Member, _Session]] = defaultdict(dict)
        self._removed: dict[tuple[str, str, int], int] = {}
        #: The history position of each member's last join request; `_joined`: that of its response.
        self._asked: dict[Member, int] = {}
        self._joined: dict[Member, int] = {}

    def note(self, position: int, event: Event) -> None:
        here = self._open[_life(event)]
        if isinstance(event, SessionOpened):
            session = _Session(event, position, 2 if event.replaced else 1)
            here[event.group_id, event.member_id] = session
        elif isinstance(event, SessionEnded):
            self._end(_life(event), (event.group_id, event.member_id))
        elif isinstance(event, MemberRemoved):
            self._removed[event.group_id, event.member_id, event.group_epoch] = position
        elif isinstance(event, ProcessChanged) and event.what not in {"paused", "resumed"}:
            for life in [life for life in self._open if life[0] == event.process]:
                del self._open[life]
        elif isinstance(event, HeartbeatAnswered) and event.sent_epoch == EPOCH_JOIN and event.code <= 0:
            key = event.group_id, event.member_id
            self._asked[key] = max(self._asked.get(key, -1), event.asked)
            self._joined[key] = position

    def _end(self, life: Life, key: Member) -> None:
        session = self._open[life].get(key)
        if session is not None:
            session.ends -= 1
            if not session.ends:
                self._ended[life][key] = self._open[life].pop(key)

    def left_open(self, position: int, removed: MemberRemoved, now_ms: int) -> Iterator[Violation]:
        """Report open sessions of a member that was removed at that time and has not joined again."""
        key = removed.group_id, removed.member_id
        if self._joined.get(key, -1) > position:
            return
        for sessions in self._open.values():
            session = sessions.get(key)
            if session is not None and session.position < position and session.opened.member_epoch > 0:
                yield Violation(
                    "INV-16",
                    f"{key[1]} was removed from group {key[0]} at {removed.at_ms}, and {session.opened.process} still "
                    f"has its share session at {now_ms}",
                    (session.opened, removed),
                )

    def heard(self, event: RemovalHeard) -> Iterator[Violation]:
        """Check that the session ended by an order was opened before the member joined again."""
        key = event.group_id, event.member_id
        session = self._ended[_life(event)].get(key) if event.ended else None
        removed = self._removed.get((*key, event.group_epoch))
        if session is not None and removed is not None and removed < self._asked.get(key, -1) < session.position:
            yield Violation(
                "INV-16",
                f"{event.process} ended the share session of {key[1]} in group {key[0]}, which had joined again since "
                f"the removal at epoch {event.group_epoch}",
                (session.opened, event),
            )
