"""INV-9: a share-partition starts at the offset to which `share.auto.offset.reset` resolves, and nothing else sets
it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import Partition, StateKey, doomed, numbered, partition_of, shortened
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    Administered,
    Configured,
    FaultStruck,
    History,
    Produced,
    ProduceSent,
    StateAnswered,
)
from tests.simulation.leader_events import ObjectMade, StartResolved
from tests.simulation.shape import SKEW_MS

_CONFIG: Final = "share.auto.offset.reset"
_LATEST: Final = "latest"
_EARLIEST: Final = "earliest"
_BY_DURATION: Final = "by_duration:PT"
_CLOCK: Final = "the clock of"


@dataclass(frozen=True, slots=True)
class _Record:
    """A confirmed record: when it was sent and confirmed, by position in the history and by time."""

    offset: int
    sent: int
    sent_ms: int
    confirmed: int
    confirmed_ms: int


class FirstStart:
    """A resolved start offset fits one of the policies that may have applied; the first start offset stored was
    resolved.

    earliest: 0, or the log start to which records were deleted. latest: after all records confirmed before the object
    was made, and not after any record sent after the resolution. by_duration: after records that were old enough, and
    not after younger ones, within the clock skew.
    """

    rules: tuple[str, ...] = ("INV-9",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check every resolution, then the first start offset of each state."""
        del final
        judge = _Judge(history)
        for position, event in numbered(history, StartResolved):
            yield from judge.resolved(position, event)
        yield from _stored(history)


class _Judge:
    def __init__(self, history: History) -> None:
        self._gone = doomed(history)
        self._records: dict[Partition, list[_Record]] = defaultdict(list)
        self._made: dict[int, tuple[int, int]] = {}
        self._asked: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._default = _LATEST
        self._cut = shortened(history)
        self._clocks = False
        sent: dict[bytes, tuple[int, int]] = {}
        for position, event in enumerate(history.events):
            if isinstance(event, ProduceSent):
                sent[event.value] = position, event.at_ms
            elif isinstance(event, Produced):
                record = _Record(event.place.offset, *sent.get(event.value, (0, 0)), position, event.at_ms)
                self._records[event.place[:2]].append(record)
            elif isinstance(event, ObjectMade):
                self._made[event.object_id] = position, event.at_ms
            elif isinstance(event, Configured):
                self._default = dict(event.flags).get("group.share.auto.offset.reset", _LATEST)
            elif isinstance(event, FaultStruck):
                self._clocks = self._clocks or event.fault.startswith(_CLOCK)
            elif isinstance(event, Administered):
                self._administered(event)

    def _administered(self, event: Administered) -> None:
        name, _, value = event.detail.partition("=")
        if event.call == "DeleteRecords":
            self._cut.add(event.detail.partition("/")[0])
        elif event.call == "IncrementalAlterConfigs" and name == _CONFIG:
            self._asked[event.target].append((event.asked_ms, value))

    def resolved(self, position: int, event: StartResolved) -> Iterator[Violation]:
        """Check the resolved start offset of one share-partition."""
        if event.at_ms >= self._gone.get(event.share.topic_id, event.at_ms + 1):
            return
        asked = [value for asked_ms, value in self._asked[event.share.group_id] if asked_ms <= event.at_ms]
        policies = sorted({self._default, *asked})
        wrong = {policy: self._wrong(policy, position, event) for policy in policies}
        if all(wrong.values()):
            reasons = "; ".join(f"by {policy} {why}" for policy, why in wrong.items())
            yield Violation("INV-9", f"{event.share} begins at {event.start_offset}: {reasons}", (event,))

    def _wrong(self, policy: str, position: int, event: StartResolved) -> str:
        """Return the reason why a policy does not explain a start offset; "" if it does."""
        start, records = event.start_offset, self._records[partition_of(event.share)]
        made, made_ms = self._made.get(event.object_id, (position, event.at_ms))
        if policy == _EARLIEST:
            first = event.log_start_offset if event.share.topic_id in self._cut else 0
            return "" if start <= first else f"it would at {first} at most"
        if start > event.high_watermark:
            return f"it would at {event.high_watermark} at most"
        late = [each.offset for each in records if each.sent > position and each.offset < start]
        if late:
            return f"{late[0]} was sent afterwards"
        if policy == _LATEST:
            early = [each.offset for each in records if each.confirmed < made and each.offset >= start]
            return f"{early[0]} was confirmed before" if early else ""
        return "" if self._clocks else self._by_age(policy, (made, made_ms), event)

    def _by_age(self, policy: str, made: tuple[int, int], event: StartResolved) -> str:
        """Return the same for by_duration; a record's timestamp is between the times at which it was sent and
        confirmed."""
        start, records = event.start_offset, self._records[partition_of(event.share)]
        age_ms = int(float(policy.removeprefix(_BY_DURATION).removesuffix("S")) * 1000)
        young = [
            each.offset
            for each in records
            if each.confirmed < made[0] and event.log_start_offset <= each.offset < start
            if each.sent_ms > event.at_ms - age_ms + SKEW_MS
        ]
        if young:
            return f"{young[0]} is young enough"
        old = [
            each.offset for each in records if each.offset == start and each.confirmed_ms < made[1] - age_ms - SKEW_MS
        ]
        return f"{start} is too old" if old else ""


def _stored(history: History) -> Iterator[Violation]:
    """Check that the first write after an Initialize without a start is no lower than the resolved offset."""
    lowest: dict[StateKey, int] = {}
    bare: dict[StateKey, StateAnswered] = {}
    for event in history.of(StateAnswered, StartResolved):
        key = StateKey(event.share, event.state_epoch)
        if isinstance(event, StartResolved):
            lowest[key] = min(event.start_offset, lowest.get(key, event.start_offset))
        elif event.code == 0 and event.call == "Initialize" and event.start_offset < 0:
            bare[key] = event
        elif event.code == 0 and event.call == "Write" and key in bare and event.start_offset >= 0:
            asked = bare.pop(key)
            if event.start_offset < lowest.get(key, event.start_offset + 1):
                yield Violation(
                    "INV-9",
                    f"{event.share} is stored with start {event.start_offset}, and no leader resolved that",
                    (asked, event),
                )
