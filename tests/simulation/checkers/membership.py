"""INV-16: epochs of groups and members increase, assignments are complete, members are removed when due and not
before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kip932.ids import EPOCH_LEAVE
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import begun_ms, numbered
from tests.simulation.final import Final as FinalState
from tests.simulation.history import Administered, Configured, GroupSeen, HeartbeatAnswered, History, SessionEnded

#: The code of a heartbeat whose caller went away before the response; it may have been applied.
ABANDONED: Final = -2
#: How long after its session's end a member may still be seen, since samples and timers run at intervals.
_LATE_MS: Final = 1_500
_SESSION: Final = "share.session.timeout.ms"
#: The setting for groups that do not set their own; it may have applied before the group was first seen.
_DEFAULT: Final = "group.share.session.timeout.ms"
_INTERVAL: Final = "share.heartbeat.interval.ms"
#: The heartbeat interval of groups that set none (`shape`), and the extra time for a member that a leader has lost
#: (GC-36).
_INTERVAL_MS: Final = 1_000
_SLACK_MS: Final = 1_000
#: How long a leader's report may be in transit, unknown to its coordinator: the maximum delay of a message.
_UNDER_WAY_MS: Final = 2_000

Member = tuple[str, str]


class MemberEpochs:
    """The epoch that a member receives never decreases, and it may send only the last one that it received, or the one
    before (GC-23)."""

    rules: tuple[str, ...] = ("INV-16",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check heartbeats that were answered with NONE, except leaves: each against those that had been answered
        before it was sent."""
        del final
        answers: dict[Member, list[tuple[int, HeartbeatAnswered]]] = defaultdict(list)
        for position, event in numbered(history, HeartbeatAnswered):
            if event.code != 0 or event.sent_epoch == EPOCH_LEAVE:
                continue
            mine = answers[event.group_id, event.member_id]
            known = [before for when, before in mine if when < event.asked]
            if known and event.member_epoch < known[-1].member_epoch:
                yield Violation(
                    "INV-16",
                    f"the epoch of {event.member_id} in {event.group_id} fell from {known[-1].member_epoch} to "
                    f"{event.member_epoch}",
                    (known[-1], event),
                )
            if event.sent_epoch > 0 and event.sent_epoch not in _two_last(known):
                yield Violation(
                    "INV-16",
                    f"the heartbeat of {event.member_id} in {event.group_id} with epoch {event.sent_epoch} was taken; "
                    f"it had got {sorted({before.member_epoch for before in known})[-3:]}",
                    (*known[-2:], event),
                )
            mine.append((position, event))


def _two_last(known: list[HeartbeatAnswered]) -> list[int]:
    return list(dict.fromkeys(before.member_epoch for before in reversed(known)))[:2]


class GroupEpochs:
    """A group's epoch is no lower than its members' and its assignment's; it increases when a member joins or
    leaves."""

    rules: tuple[str, ...] = ("INV-16",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check the groups that coordinators held, sample by sample."""
        del final
        before: dict[str, GroupSeen] = {}
        for event in history.of(GroupSeen):
            highest = max((epoch for _, epoch in event.members), default=0)
            if max(event.assignment_epoch, highest) > event.group_epoch:
                yield Violation("INV-16", f"group {event.group_id} is behind its assignment or a member", (event,))
            former = before.get(event.group_id)
            if former is not None:
                yield from _succession(former, event)
            before[event.group_id] = event


def _succession(former: GroupSeen, event: GroupSeen) -> Iterator[Violation]:
    moved = {member for member, _ in former.members} != {member for member, _ in event.members}
    if event.group_epoch < former.group_epoch + moved:
        happened = "its members changed" if moved else "no member came or went"
        yield Violation(
            "INV-16",
            f"the epoch of group {event.group_id} went from {former.group_epoch} to {event.group_epoch}; {happened}",
            (former, event),
        )


@dataclass
class _Standing:
    """A group's previous sample, and whether a heartbeat was both sent and answered since."""

    seen: GroupSeen | None = None
    position: int = 0
    beaten: bool = False


class Assignments:
    """When the assignment is computed and a heartbeat was answered since, each initialised partition has an owner."""

    rules: tuple[str, ...] = ("INV-16",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Compare two samples of one coordinator at the same epoch: the heartbeat in between would have noticed
        (GC-24c)."""
        del final
        groups: dict[str, _Standing] = defaultdict(_Standing)
        for position, event in numbered(history, GroupSeen, HeartbeatAnswered):
            standing = groups[event.group_id]
            if isinstance(event, HeartbeatAnswered):
                taken = event.code == 0 and event.sent_epoch > 0 and event.asked > standing.position
                standing.beaten |= taken and standing.seen is not None and _same_process(standing.seen, event)
                continue
            if standing.seen is not None and standing.beaten:
                yield from self._left_out(standing.seen, event)
            groups[event.group_id] = _Standing(event, position)

    @staticmethod
    def _left_out(former: GroupSeen, event: GroupSeen) -> Iterator[Violation]:
        computed = former.group_epoch == former.assignment_epoch == event.group_epoch == event.assignment_epoch
        if computed and _same_process(former, event) and event.members:
            missing = _unowned(former) & _unowned(event)
            if missing:
                yield Violation(
                    "INV-16", f"no member of group {event.group_id} is assigned {sorted(missing)}", (former, event)
                )


def _unowned(event: GroupSeen) -> set[tuple[str, int]]:
    return set(event.assignable) - {partition for _, some in event.target for partition in some}


def _same_process(one: GroupSeen, other: GroupSeen | HeartbeatAnswered) -> bool:
    return (one.process, one.incarnation) == (other.process, other.incarnation)


def _asked_for(history: History, config: str) -> dict[str, list[int]]:
    """Return the requested values of a config, by group."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in history.of(Administered):
        name, _, value = event.detail.partition("=")
        if event.call == "IncrementalAlterConfigs" and name == config and value.isdecimal():
            found[event.target].append(int(value))
    return found


@dataclass
class _Beats:
    """When a member was last alive, certainly and at the latest; whether it announced that it leaves; and when leaders
    ended its sessions."""

    taken_ms: int = 0
    heard_ms: int = 0
    left: bool = False
    ended_ms: list[int] = field(default_factory=list)


@dataclass
class _Expiring:
    """A group's members and their removals. `counting_ms`: the time since which its coordinator has measured time
    without interruption, as shown by a heartbeat that it accepted without faults; −1: unknown."""

    former: GroupSeen | None = None
    counting_ms: int = -1
    shortest_ms: int = 1 << 62
    longest_ms: int = 0
    beats: dict[str, _Beats] = field(default_factory=lambda: defaultdict(_Beats))


class Expiry:
    """A silent member is removed when its session is over, as its coordinator measures it, and not before (GC-32). One
    that a leader has lost has at least a heartbeat interval plus a second, both from the loss and from its last
    heartbeat (GC-36)."""

    rules: tuple[str, ...] = ("INV-16",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check for removals that come too early, at any time, and for late ones, only without faults and a full
        session after the coordinator started measuring. A requested session timeout may have applied between two
        samples."""
        del final
        served_ms = begun_ms(history, "drain")
        groups: dict[str, _Expiring] = defaultdict(_Expiring)
        asked, intervals = _asked_for(history, _SESSION), _asked_for(history, _INTERVAL)
        begun = [int(value) for each in history.of(Configured) for name, value in each.flags if name == _DEFAULT]
        for event in history.of(HeartbeatAnswered, GroupSeen, SessionEnded):
            group = groups[event.group_id]
            if isinstance(event, SessionEnded):
                group.beats[event.member_id].ended_ms.append(event.at_ms)
                continue
            if isinstance(event, HeartbeatAnswered):
                self._beat(group, event, served_ms)
                continue
            timeouts = [event.session_timeout_ms, *asked[event.group_id]]
            group.shortest_ms = min(group.shortest_ms, *timeouts, *begun)
            group.longest_ms = max(group.longest_ms, *timeouts)
            yield from self._too_early(group, event, min([_INTERVAL_MS, *intervals[event.group_id]]))
            yield from self._too_late(group, event)
            group.former = event

    @staticmethod
    def _beat(group: _Expiring, event: HeartbeatAnswered, served_ms: int | None) -> None:
        beats = group.beats[event.member_id]
        if event.sent_epoch == EPOCH_LEAVE:
            beats.left = True  # it may have been applied, whatever the response
        if event.code not in {0, ABANDONED}:
            return
        beats.heard_ms = max(beats.heard_ms, event.asked_ms)
        if event.code == 0:  # a heartbeat whose caller went away may have been refused because its session was over
            beats.left = event.sent_epoch == EPOCH_LEAVE
            beats.taken_ms = max(beats.taken_ms, event.asked_ms)
        if group.counting_ms < 0 and served_ms is not None and event.asked_ms >= served_ms:
            group.counting_ms = event.at_ms

    @staticmethod
    def _too_early(group: _Expiring, event: GroupSeen, interval_ms: int) -> Iterator[Violation]:
        if group.former is None or not _same_process(group.former, event):
            return
        here = {member for member, _ in event.members}
        for member, _ in group.former.members:
            beats = group.beats.get(member)
            if member in here or beats is None or beats.left:
                continue
            lost = [at_ms for at_ms in beats.ended_ms if at_ms >= beats.taken_ms - _SLACK_MS - _UNDER_WAY_MS]
            over_ms = beats.taken_ms + group.shortest_ms
            if lost:  # a later loss changes nothing
                over_ms = min(over_ms, max(beats.taken_ms, lost[0]) + interval_ms + _SLACK_MS)
            if event.at_ms < over_ms:
                yield Violation(
                    "INV-16",
                    f"{member} is gone from group {event.group_id} at {event.at_ms}; it was heard of at "
                    f"{beats.taken_ms}{f', lost at {lost[0]}' if lost else ''} and has until {over_ms}",
                    (group.former, event),
                )

    @staticmethod
    def _too_late(group: _Expiring, event: GroupSeen) -> Iterator[Violation]:
        former = group.former
        if group.counting_ms < 0 or former is None or not _same_process(former, event):
            return
        for member, _ in event.members:
            beats = group.beats.get(member)
            since_ms = max(group.counting_ms, beats.heard_ms if beats is not None else 0)
            if event.at_ms > since_ms + group.longest_ms + _LATE_MS:
                yield Violation(
                    "INV-16",
                    f"{member} is still in group {event.group_id} at {event.at_ms}, though it has been silent since "
                    f"{since_ms} and has {group.longest_ms} ms",
                    (event,),
                )
