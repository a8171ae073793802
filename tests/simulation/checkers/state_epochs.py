"""INV-12, INV-15: state is created once; it is deleted or reset only on request, or if the store lost it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import Changes
from tests.simulation.checkers.reading import AT_THE_END, doomed, numbered
from tests.simulation.final import Final
from tests.simulation.history import Administered, FaultStruck, History, Share, StateAnswered, StateSeen

#: The name of the fault that loses the store's latest entries; only this fault makes a repair necessary (GC-82).
FAIL_OVER = "fail-over of the store"
_EPOCH_CALLS = frozenset({"Initialize", "Read", "Write", "Summary"})


class StateEpochs:
    """The state epoch of a share-partition changes only after an alteration of its start offset, or a deletion of its
    group or of the group's offsets for its topic, and then it increases (GC-93); a repair requires a fail-over of the
    store. State is deleted only in these cases, or with its topic. It is created without a start offset, at 0 if its
    partition was added later (GC-71) or is repaired, or at the offset that an alteration sets."""

    rules: tuple[str, ...] = ("INV-9", "INV-12", "INV-15")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check every response and sample that shows a state, then the states at the end."""
        judge = _Judge(history)
        for position, event in numbered(history, StateAnswered, StateSeen, FaultStruck):
            if isinstance(event, FaultStruck):
                judge.lost = judge.lost or event.fault.startswith(FAIL_OVER)
            elif isinstance(event, StateSeen):
                yield from judge.changed(position, position, event, event.at_ms)
            elif event.code == 0:
                yield from judge.answered(position, event)
        for state in [*final.served.values(), *final.replayed.values(), *final.rebuilt.values()]:
            yield from judge.changed(AT_THE_END, AT_THE_END, state, AT_THE_END)


class _Judge:
    """`lost`: the store may have lost a tail by now. `seen`: each state's highest epoch and where it was first seen."""

    def __init__(self, history: History) -> None:
        self.lost = False
        self._changes = Changes(history)
        self._gone = doomed(history)
        self._grown = _grown(history)
        self._seen: dict[Share, tuple[int, StateAnswered | StateSeen]] = {}

    def answered(self, position: int, event: StateAnswered) -> Iterator[Violation]:
        """Check a call with the response NONE."""
        share, topic_id = event.share, event.share.topic_id
        if event.call == "Delete":
            gone = event.at_ms >= self._gone.get(topic_id, event.at_ms + 1)
            if not gone and not self._changes.deletes(share, event.at_ms):
                yield Violation("INV-15", f"the state of {share} was deleted, and no request asked for that", (event,))
            return
        if event.call in _EPOCH_CALLS:
            yield from self.changed(event.asked, position, event, event.at_ms)
        later = event.at_ms >= self._grown.get(topic_id, event.at_ms + 1)
        explained = event.start_offset == -1 or (event.start_offset == 0 and (later or self.lost))
        explained = explained or event.start_offset in self._changes.starts(share, event.at_ms)
        if event.call == "Initialize" and not explained and topic_id not in self._gone:
            yield Violation(
                "INV-9", f"{share} was initialised at {event.start_offset}, and nothing asked for that", (event,)
            )

    def changed(self, asked: int, position: int, event: StateAnswered | StateSeen, at_ms: int) -> Iterator[Violation]:
        """Check one more sample of a state; 0 or less means that nothing is stored. A sample requested before the
        current epoch was seen may show the previous one."""
        if event.state_epoch <= 0:
            return
        since, before = self._seen.setdefault(event.share, (position, event))
        late = event.state_epoch < before.state_epoch and asked < since
        if before.state_epoch == event.state_epoch or late:
            return
        self._seen[event.share] = (position, event)
        rises = event.state_epoch > before.state_epoch
        if not self.lost and not (rises and self._changes.touches(event.share, at_ms)):
            yield Violation(
                "INV-12",
                f"the state epoch of {event.share} went from {before.state_epoch} to {event.state_epoch} by "
                f"{event.at_ms}, and nothing explains that",
                (before, event),
            )


def _grown(history: History) -> dict[str, int]:
    """Return, by id, the time at which more partitions were requested for a topic."""
    found: dict[str, int] = {}
    for event in history.of(Administered):
        if event.call == "CreatePartitions":
            topic_id = event.detail.partition(" ")[0]
            found[topic_id] = min(event.asked_ms, found.get(topic_id, event.asked_ms))
    return found
