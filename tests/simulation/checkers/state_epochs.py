"""INV-12, INV-15: state begins once; it is deleted or reset only when that was requested, or when the store lost it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import Changes
from tests.simulation.checkers.reading import AT_THE_END, doomed, numbered
from tests.simulation.final import Final
from tests.simulation.history import Administered, FaultStruck, History, Share, StateAnswered, StateSeen

#: The name of the fault that takes the latest entries from the store; only such a fault calls for a repair (GC-82).
FAIL_OVER = "fail-over of the store"
_EPOCH_CALLS = frozenset({"Initialize", "Read", "Write", "Summary"})


class StateEpochs:
    """The state epoch of a share-partition changes only after an alteration of its start offset, or a deletion of its
    group or of the group's offsets of its topic, and then it rises (GC-93); a repair needs a fail-over of the store.
    State is deleted only in these cases, or with its topic. It begins without a start offset, at 0 where its partition
    was added later (GC-71) or is repaired, or where an alteration says."""

    rules: tuple[str, ...] = ("INV-9", "INV-12", "INV-15")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check every answer and sample of a state, then those at the end."""
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
        """Check a call that was answered NONE."""
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
        """Check one more sample of a state; nothing stored (0 or less) is no epoch. One that was asked for before the
        present epoch was seen may show the former."""
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
    """Return, by id, since when more partitions were requested for a topic."""
    found: dict[str, int] = {}
    for event in history.of(Administered):
        if event.call == "CreatePartitions":
            topic_id = event.detail.partition(" ")[0]
            found[topic_id] = min(event.asked_ms, found.get(topic_id, event.asked_ms))
    return found
