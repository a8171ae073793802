"""Describes a run for a reader: its seed and plan, the broken rules, and the relevant events around them.

An event is relevant when it touches a record, share-partition, group or value that a violation names, or when it is an
event of the world: faults, processes, phases. The whole history goes to a file (`--out`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulation import connection_events, coordinator_events, delay_events, leader_events
from tests.simulation import history as h
from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import CHANGES
from tests.simulation.outcome import Outcome
from tests.simulation.words import Words

#: The number of relevant events that are printed for one violation, before its last event and (`AFTER`) after it.
BEFORE: Final = 40
AFTER: Final = 5
#: The number of violations that are printed with their events; for the others, only the sentence is printed.
EXPLAINED_MAX: Final = 3
SENTENCES_MAX: Final = 15

#: Relevant wherever one of them is: they name no group, or no share-partition.
_CONNECTIONS: Final = frozenset(
    {
        connection_events.ConnectionEnded,
        connection_events.MoveAsked,
        connection_events.MoveRefused,
        connection_events.ShareStreamMade,
        connection_events.ShareStreamLost,
        connection_events.RightsSeen,
    }
)
_WORLD: Final = (delay_events.ClockSet, h.FaultStruck, h.ProcessChanged, h.PhaseBegan)

Span = tuple[str, int, int, int]


def story(outcome: Outcome, before: int = BEFORE) -> str:
    """Return a description of the run; it ends with the command that plays it again."""
    words = Words(outcome.topics)
    parts = [_head(outcome), "\n".join(_sentences(outcome.violations))]
    parts += [account(outcome.history.events, each, words, before) for each in outcome.violations[:EXPLAINED_MAX]]
    if not outcome.violations:
        parts.append("\n".join(map(words.of, _last(outcome.history.events, before))))
    parts.append(f"again: {command(outcome)}")
    return "\n\n".join(parts)


def command(outcome: Outcome) -> str:
    """Return the command that plays this run again."""
    if outcome.plan.drawn:
        return f"make sim SEED={outcome.seed}"
    return f"make sim SEED={outcome.seed} PLAN='{outcome.plan.text()}'"


def _head(outcome: Outcome) -> str:
    count = len(outcome.violations)
    crew = ", ".join(name for name in outcome.crew if name not in outcome.plan.without)
    return "\n".join(
        [
            f"seed {outcome.seed}: {count or 'no'} violation{'' if count == 1 else 's'}, "
            f"{outcome.operations} operations, {len(outcome.history.events)} events",
            *outcome.plan.in_words(),
            f"clients: {crew or 'none'}",
        ]
    )


def _sentences(violations: Sequence[Violation]) -> list[str]:
    shown = [f"!! {violation}" for violation in violations[:SENTENCES_MAX]]
    more = len(violations) - len(shown)
    return [*shown, f"!! and {more} more"] if more else shown


def _last(events: Sequence[h.Event], count: int) -> Sequence[h.Event]:
    return [event for event in events if isinstance(event, _WORLD)][-count:]


def account(events: Sequence[h.Event], violation: Violation, words: Words, before: int) -> str:
    """Return a violation and the relevant events, one line each; those that it names are marked."""
    focus = Focus.of(violation)
    shown = [at for at, event in enumerate(events) if focus.matters(event)]
    named = {id(event) for event in violation.events}
    ends = [number for number, at in enumerate(shown) if id(events[at]) in named]
    end = ends[-1] + 1 + AFTER if ends else len(shown)
    first = max(0, min([end - AFTER, *ends]) - before // 4, end - AFTER - before)
    lines = [f"-- around {violation.rule}: {violation.sentence}"]
    if first:
        lines.append(f"   ({first} earlier events of the same records left out)")
    lines += [(">> " if id(events[at]) in named else "   ") + words.of(events[at]) for at in shown[first:end]]
    return "\n".join(lines)


@dataclass
class Focus:
    """The subject of a violation."""

    spans: set[Span] = field(default_factory=set)
    shares: set[h.Share] = field(default_factory=set)
    values: set[bytes] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    kinds: set[type[h.Event]] = field(default_factory=set)
    named: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, violation: Violation) -> Focus:
        """Return the subject of a violation: records, if its events name any; else share-partitions, else groups."""
        focus = cls(named={id(event) for event in violation.events}, kinds={type(event) for event in violation.events})
        for event in violation.events:
            focus.values.update(_values(event))
            focus.shares.update(_shares(event))
            focus.groups.update(_groups(event))
        focus.spans = _common(span for event in violation.events for span in spans(event))
        return focus

    def matters(self, event: h.Event) -> bool:
        """Return True if the event is relevant."""
        if id(event) in self.named or isinstance(event, _WORLD):
            return True
        if self._changes(event) or (type(event) in _CONNECTIONS and not self.kinds.isdisjoint(_CONNECTIONS)):
            return True
        if self.spans or self.values:
            return not self.values.isdisjoint(_values(event)) or self._overlaps(event)
        if isinstance(event, h.StateSeen | h.GroupSeen | h.SizesSeen) and type(event) not in self.kinds:
            return False
        if self.shares:
            return not self.shares.isdisjoint(_shares(event))
        return type(event) in self.kinds and not self.groups.isdisjoint(_groups(event))

    def _changes(self, event: h.Event) -> bool:
        """Return True if the event changes a group that the violation names."""
        if isinstance(event, h.Administered):
            return event.call in CHANGES and event.target in self.groups
        return isinstance(event, coordinator_events.GroupDecided) and event.group_id in self.groups

    def _overlaps(self, event: h.Event) -> bool:
        if isinstance(event, h.StateSeen):
            return False
        groups = _groups(event)
        if self.groups and groups and self.groups.isdisjoint(groups):
            return False
        return any(_meet(span, mine) for span in spans(event) for mine in self.spans)


def _common(found: Iterable[Span]) -> set[Span]:
    """Return, for each partition, the intersection of its spans, or all of them if they have none."""
    by_partition: dict[tuple[str, int], list[Span]] = {}
    for span in found:
        by_partition.setdefault(span[:2], []).append(span)
    common = set()
    for (topic_id, partition), same in by_partition.items():
        first, last = max(span[2] for span in same), min(span[3] for span in same)
        common.update([(topic_id, partition, first, last)] if first <= last else same)
    return common


def _meet(one: Span, other: Span) -> bool:
    return one[:2] == other[:2] and one[2] <= other[3] and other[2] <= one[3]


def spans(event: h.Event) -> Iterator[Span]:
    """Yield the records that an event touches, as (topic id, partition, first offset, last offset)."""
    match event:
        case h.Produced() | h.Delivered() | h.Settled():
            place = event.place
            yield place.topic_id, place.partition, place.offset, place.offset
        case h.Acquired() | leader_events.Locked():
            yield event.share.topic_id, event.share.partition, event.first_offset, event.last_offset
        case leader_events.MemoryWrong():
            yield event.share.topic_id, event.share.partition, event.offset, event.offset
        case leader_events.GivenBack() | delay_events.TakeBackAsked():
            for first, last in event.ranges or ():
                yield event.share.topic_id, event.share.partition, first, last
        case delay_events.ReleaseAsked():
            for first, last, *_ in event.batches:
                yield event.share.topic_id, event.share.partition, first, last
        case h.AckAnswered() | leader_events.AckDone() | h.StateAnswered() | h.StateSeen():
            for batch in event.batches:
                yield event.share.topic_id, event.share.partition, batch[0], batch[1]
        case h.SessionAsked():
            for topic_id, partition, batch in event.acks:
                yield topic_id, partition, batch[0], batch[1]


def _values(event: h.Event) -> Iterable[bytes]:
    value = getattr(event, "value", None)
    return () if value is None else (value,)


def _shares(event: h.Event) -> Iterable[h.Share]:
    share = getattr(event, "share", None)
    return () if share is None else (share,)


def _groups(event: h.Event) -> Iterable[str]:
    share = getattr(event, "share", None)
    group = getattr(event, "group_id", None) if share is None else share.group_id
    return () if group is None else (group,)
