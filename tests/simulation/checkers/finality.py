"""INV-4 and INV-5: a record that was confirmed as accepted or rejected, or is stored as finished, is never delivered
again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kip932.ids import ACK_ACCEPT, ACK_REJECT
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import StateKey, finished_in, offsets, typed
from tests.simulation.final import Final
from tests.simulation.history import AckAnswered, Acquired, History, Share, StateAnswered, StateSeen

_FINAL = frozenset({ACK_ACCEPT, ACK_REJECT})

Finals = dict[int, AckAnswered]
Stored = StateAnswered | StateSeen


class AcceptIsFinal:
    """After a NONE for ACCEPT or REJECT, no response delivers that record to a member, unless it was acquired before.

    Altering or deleting offsets starts a new state epoch from scratch; so does deleting the group, which deletes its
    state. A NONE for offsets below the start offset changes nothing, but those offsets are just as final.
    """

    rules: tuple[str, ...] = ("INV-4",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check responses in the order in which they were sent; a range counts from the time when it was locked."""
        del final
        confirmed: dict[Share, dict[StateKey, Finals]] = defaultdict(lambda: defaultdict(dict))
        for event in history.of(AckAnswered, Acquired, StateAnswered):
            if isinstance(event, StateAnswered):
                if event.call == "Delete" and event.code == 0:
                    confirmed.pop(event.share, None)
                continue
            finals = confirmed[event.share][StateKey(event.share, event.state_epoch)]
            if isinstance(event, Acquired):
                yield from self._acquired(event, finals)
            elif event.code == 0:
                for offset, kind in typed(event.batches):
                    if kind in _FINAL:
                        finals.setdefault(offset, event)

    @staticmethod
    def _acquired(event: Acquired, finals: Finals) -> Iterator[Violation]:
        if not finals:
            return
        for offset in offsets(event.first_offset, event.last_offset):
            before = finals.get(offset)
            if before is not None and event.locked_ms > before.at_ms:
                yield Violation(
                    "INV-4",
                    f"{event.share} offset {offset} was acquired by {event.member_id} at {event.locked_ms}, though "
                    f"{before.member_id}'s acknowledgement was answered NONE at {before.at_ms}",
                    (before, event),
                )
                return


class StoredIsFinal:
    """A record stored as finished is not in an acquired range afterwards. A leader that does not know whether its write
    succeeded must read the state before it delivers the records again (PL-707)."""

    rules: tuple[str, ...] = ("INV-5",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check confirmed states against the ranges that were locked after them."""
        del final
        states: dict[StateKey, _Finished] = defaultdict(_Finished)
        for event in history.of(StateAnswered, StateSeen, Acquired):
            key = StateKey(event.share, event.state_epoch)
            if isinstance(event, Acquired):
                before = states[key].before(event)
                if before is not None:
                    yield Violation(
                        "INV-5",
                        f"{event.share} offsets {event.first_offset}-{event.last_offset} were acquired by "
                        f"{event.member_id} at {event.locked_ms}, though some of them were stored as finished at "
                        f"{before.at_ms}",
                        (before, event),
                    )
            elif isinstance(event, StateSeen) or (event.code == 0 and event.call in {"Read", "Write"}):
                states[key].stored(event)
            elif event.code == 0 and event.call == "Delete":
                for gone in [each for each in states if each.share == event.share]:
                    del states[gone]


@dataclass
class _Finished:
    """The offsets known to be stored as finished in one state. `passed`: the events that moved the start offset, in
    order."""

    offsets: dict[int, Stored] = field(default_factory=dict)
    passed: list[Stored] = field(default_factory=list)

    def stored(self, event: Stored) -> None:
        """Note a state that was confirmed, or sampled with nothing unconfirmed in it."""
        if not self.passed or event.start_offset > self.passed[-1].start_offset:
            self.passed.append(event)
        for offset in finished_in(event.batches):
            self.offsets.setdefault(offset, event)

    def before(self, event: Acquired) -> Stored | None:
        """Return the event that had finished part of a range before it was locked."""
        for one in self.passed:
            if one.start_offset > event.first_offset and one.at_ms < event.locked_ms:
                return one
        for offset in offsets(event.first_offset, event.last_offset):
            found = self.offsets.get(offset)
            if found is not None and found.at_ms < event.locked_ms:
                return found
        return None
