"""INV-4: what was confirmed as accepted or rejected is never given out again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kip932.ids import ACK_ACCEPT, ACK_REJECT
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import StateKey, offsets, typed
from tests.simulation.final import Final
from tests.simulation.history import AckAnswered, Acquired, History, Share, StateAnswered

_FINAL = frozenset({ACK_ACCEPT, ACK_REJECT})

Finals = dict[int, AckAnswered]


class AcceptIsFinal:
    """After a NONE for ACCEPT or REJECT no member is answered that record as acquired, unless it was acquired before.

    Altered or deleted offsets begin a new state epoch, and with it anew; so does a deleted group, whose state is
    deleted. A NONE for what lies below the start offset changes nothing, yet what lies there is as final.
    """

    rules: tuple[str, ...] = ("INV-4",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Answers in the order in which they left; what counts for a range is when it was locked."""
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
