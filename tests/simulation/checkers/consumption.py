"""INV-1: what a topic lets go since every group has finished it, every group had finished (CM-160, CM-162)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import doomed
from tests.simulation.final import Final
from tests.simulation.history import History
from tests.simulation.leader_events import Consumed


class OnlyConsumed:
    """No leader moves a log start past the start offset of a group that had state when it asked, and has it still.

    A start offset never steps back within a state epoch, so what is stored when the log start moves is at least what
    the leader was told. A group that is made, or reset, while a round is under way is promised nothing.
    """

    rules: tuple[str, ...] = ("INV-1",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Every move of a log start by this policy."""
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
                        f"group has finished what lies before it, and {group_id} is {where}",
                        (event,),
                    )
