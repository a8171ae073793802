"""INV-12, INV-15: state begins once, goes with its topic, and begins anew only where the store has lost it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import doomed, numbered
from tests.simulation.final import Final
from tests.simulation.history import Administered, FaultStruck, History, Share, StateAnswered, StateSeen

#: What a fault says of itself that takes the latest entries from the store; only such a one makes a repair (GC-82).
FAIL_OVER = "fail-over of the store"
_EPOCH_CALLS = frozenset({"Initialize", "Read", "Write", "Summary"})


class StateEpochs:
    """The state epoch of a share-partition never changes: offsets cannot be altered yet, a topic that is created again
    has another id, and a repair needs a fail-over of the store. State is deleted only with its topic. It begins without
    a start offset, or at 0 where its partition came later (GC-71) or is repaired."""

    rules: tuple[str, ...] = ("INV-9", "INV-12", "INV-15")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Every answer and sample of a state, then those at the end."""
        gone = doomed(history)
        seen: dict[Share, StateAnswered | StateSeen] = {}
        grown = _grown(history)
        lost = False
        for _, event in numbered(history, StateAnswered, StateSeen, FaultStruck):
            if isinstance(event, FaultStruck):
                lost = lost or event.fault.startswith(FAIL_OVER)
            elif isinstance(event, StateSeen):
                yield from _changed(seen, event, lost)
            elif event.code == 0:
                yield from self._answered(seen, event, gone, grown, lost)
        for state in [*final.served.values(), *final.replayed.values(), *final.rebuilt.values()]:
            yield from _changed(seen, state, lost)

    @staticmethod
    def _answered(
        seen: dict[Share, StateAnswered | StateSeen],
        event: StateAnswered,
        gone: dict[str, int],
        grown: dict[str, int],
        lost: bool,
    ) -> Iterator[Violation]:
        topic_id = event.share.topic_id
        if event.call == "Delete":
            if event.at_ms < gone.get(topic_id, event.at_ms + 1):
                yield Violation("INV-15", f"the state of {event.share} was deleted, though its topic was not", (event,))
            return
        if event.call in _EPOCH_CALLS:
            yield from _changed(seen, event, lost)
        later = event.at_ms >= grown.get(topic_id, event.at_ms + 1)
        explained = event.start_offset == -1 or (event.start_offset == 0 and (later or lost))
        if event.call == "Initialize" and not explained and topic_id not in gone:
            yield Violation(
                "INV-9", f"{event.share} was initialised at {event.start_offset}, and nothing asked for that", (event,)
            )


def _grown(history: History) -> dict[str, int]:
    """Topics that more partitions were asked for, by id, and since when."""
    found: dict[str, int] = {}
    for event in history.of(Administered):
        if event.call == "CreatePartitions":
            topic_id = event.detail.partition(" ")[0]
            found[topic_id] = min(event.asked_ms, found.get(topic_id, event.asked_ms))
    return found


def _changed(
    seen: dict[Share, StateAnswered | StateSeen], event: StateAnswered | StateSeen, lost: bool
) -> Iterator[Violation]:
    """One more sight of a state; nothing stored (0 or less) is no epoch."""
    if event.state_epoch <= 0:
        return
    before = seen.setdefault(event.share, event)
    if before.state_epoch != event.state_epoch:
        seen[event.share] = event
        if not lost:
            yield Violation(
                "INV-12",
                f"the state epoch of {event.share} went from {before.state_epoch} to {event.state_epoch} by "
                f"{event.at_ms}, and nothing explains that",
                (before, event),
            )
