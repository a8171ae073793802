"""INV-1: records are deleted as consumed only after every group has finished them (CM-160, CM-162).

Only what must not be deleted is checked: a leader that deletes nothing, or late (CM-160 (a)), is found by
`test_consumed_retention.py` of the unit and integration tests.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import doomed
from tests.simulation.final import Final
from tests.simulation.history import History
from tests.simulation.leader_events import Consumed


class OnlyConsumed:
    """No leader moves a log start past the start offset of a group that had state when the leader asked and still has
    it.

    A start offset never moves back within a state epoch, so the start offset stored when the log start moves is at
    least the one that the leader read. A group that is created or reset during a round has no such guarantee.
    """

    rules: tuple[str, ...] = ("INV-1",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check every move of a log start under this policy."""
        del final
        gone = doomed(history)
        for event in history.of(Consumed):
            asked = dict(event.asked)
            for group_id, state_epoch, start_offset in event.now if event.topic_id not in gone else ():
                if asked.get(group_id) == state_epoch and start_offset < event.log_start_offset:
                    where = f"at {start_offset}" if state_epoch >= 0 else "without state for the partition yet"
                    yield Violation(
                        "INV-1",
                        f"{event.topic_id}-{event.partition} is to begin at {event.log_start_offset}, since every "
                        f"group has finished what is before it, and {group_id} is {where}",
                        (event,),
                    )
