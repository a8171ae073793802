"""INV-11: changes are in the store when they are confirmed, and are still there at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kip932.ids import ACK_RELEASE, ACK_RENEW, STATE_ARCHIVING, TERMINAL_STATES
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import (
    Applied,
    Partition,
    StateKey,
    doomed,
    finished_in,
    offsets,
    partition_of,
    typed,
)
from tests.simulation.final import Final
from tests.simulation.history import (
    AckAnswered,
    History,
    Settled,
    Share,
    StateAnswered,
    StateSeen,
)
from tests.simulation.leader_events import AckDone

_LEAVING = TERMINAL_STATES | {STATE_ARCHIVING}


@dataclass
class _Stored:
    """The confirmed writes of one state: the start offset, the offsets written, and those written as terminal or
    Archiving."""

    start_offset: int = -1
    touched: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)

    def write(self, event: StateAnswered) -> None:
        """Note a write or read with the response NONE."""
        self.start_offset = max(self.start_offset, event.start_offset)
        for first, last, state, *_ in event.batches:
            self.touched.update(offsets(first, last))
            if state in _LEAVING:
                self.leaving.update(offsets(first, last))

    def backs(self, offset: int, kind: int) -> bool:
        """Return True if a confirmed acknowledgement of that type is stored."""
        return offset < self.start_offset or offset in (self.touched if kind == ACK_RELEASE else self.leaving)


class DurableBeforeConfirmed:
    """A NONE response that depends on a write comes after the share coordinator confirmed that write; the final state
    shows it too."""

    rules: tuple[str, ...] = ("INV-11",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check writes and responses in order, then the states at the end."""
        applied = Applied(history)
        states: dict[StateKey, _Stored] = defaultdict(_Stored)
        confirmed: dict[StateKey, dict[int, AckAnswered]] = defaultdict(dict)
        deleted_ms: dict[Share, int] = {}
        for event in history.of(StateAnswered, AckAnswered):
            if isinstance(event, StateAnswered):
                if event.code == 0 and event.call == "Delete":
                    _forget(event.share, states, confirmed)
                    deleted_ms[event.share] = event.at_ms
                elif event.code == 0 and event.call in {"Read", "Write"}:
                    states[StateKey(event.share, event.state_epoch)].write(event)
            elif event.code == 0:
                key, done = StateKey(event.share, event.state_epoch), applied.done(event)
                if done is not None and done.persisted and done.at_ms > deleted_ms.get(event.share, -1):
                    yield from self._answered(event, done, states[key], confirmed[key])
        existing = {partition for partition in final.logs if partition[0] not in doomed(history)}
        for name, found in (("served", final.served), ("replayed", final.replayed), ("rebuilt", final.rebuilt)):
            yield from self._at_end(name, found, confirmed, existing)

    @staticmethod
    def _answered(
        event: AckAnswered, done: AckDone, stored: _Stored, confirmed: dict[int, AckAnswered]
    ) -> Iterator[Violation]:
        missing = None
        for offset, kind in typed(event.batches):
            if kind == ACK_RENEW or offset < done.start_offset:
                continue
            if kind != ACK_RELEASE:
                confirmed.setdefault(offset, event)
            if missing is None and not stored.backs(offset, kind):
                missing = offset
        if missing is not None:
            yield Violation(
                "INV-11",
                f"{event.share} offset {missing}: {event.member_id}'s acknowledgement was answered NONE at "
                f"{event.at_ms} before any write of it was confirmed",
                (event,),
            )

    @staticmethod
    def _at_end(
        name: str,
        found: Mapping[Share, StateSeen],
        confirmed: Mapping[StateKey, Mapping[int, AckAnswered]],
        existing: set[Partition],
    ) -> Iterator[Violation]:
        newest = {key.share: key for key in sorted(confirmed)}
        for share, key in newest.items():
            if not found or partition_of(share) not in existing:
                continue
            state = found.get(share)
            if state is not None and state.state_epoch != key.state_epoch:
                continue  # reset since
            gone = set() if state is None else set(finished_in(state.batches))
            start = -1 if state is None else state.start_offset
            lost = [offset for offset in confirmed[key] if offset >= start and offset not in gone]
            if lost:
                yield Violation(
                    "INV-11",
                    f"{share} offset {lost[0]} was confirmed as finished, but the state as {name} at the end "
                    + ("does not exist" if state is None else f"begins at {start} without it"),
                    (confirmed[key][lost[0]],) if state is None else (confirmed[key][lost[0]], state),
                )


def _forget(share: Share, *tables: dict[StateKey, _Stored] | dict[StateKey, dict[int, AckAnswered]]) -> None:
    for table in tables:
        for key in [key for key in table if key.share == share]:
            del table[key]


class ConfirmedTruthfully:
    """A client reports an acknowledgement to its application as done only after a leader's response of NONE."""

    rules: tuple[str, ...] = ("INV-11",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the leaders' responses and the reports to applications, in order."""
        del final
        answered: dict[tuple[str, Share], set[tuple[int, int]]] = defaultdict(set)
        for event in history.of(AckAnswered, Settled):
            if isinstance(event, AckAnswered):
                if event.code == 0:
                    answered[event.member_id, event.share].update(typed(event.batches))
            elif event.error == "":
                place = event.place
                share = Share(event.group_id, place.topic_id, place.partition)
                if (place.offset, event.type) not in answered.get((event.member_id, share), ()):
                    yield Violation(
                        "INV-11",
                        f"{event.member_id} learned that its acknowledgement of {place} was done, which no leader "
                        "had answered",
                        (event,),
                    )
