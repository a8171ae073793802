"""INV-12: a reader of the state with a higher epoch has fenced all lower epochs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import Applied, numbered
from tests.simulation.final import Final
from tests.simulation.history import AckAnswered, Acquired, History, Share, StateAnswered

Epoch = TypeVar("Epoch", int, tuple[int, int])


@dataclass
class _Fence(Generic[Epoch]):
    """The highest epoch confirmed so far, at each position of the history."""

    positions: list[int] = field(default_factory=list)
    raised: list[tuple[Epoch, StateAnswered]] = field(default_factory=list)

    def raise_to(self, position: int, epoch: Epoch, event: StateAnswered) -> None:
        """Note that a response confirmed an epoch."""
        if not self.raised or epoch > self.raised[-1][0]:
            self.positions.append(position)
            self.raised.append((epoch, event))

    def above(self, epoch: Epoch, asked: int) -> StateAnswered | None:
        """Return a response with a higher epoch that had been sent before this position of the history; None if there
        is none."""
        index = bisect_left(self.positions, asked)
        if index and self.raised[index - 1][0] > epoch:
            return self.raised[index - 1][1]
        return None


@dataclass
class _Fences:
    leaders: _Fence[tuple[int, int]] = field(default_factory=_Fence)
    states: _Fence[int] = field(default_factory=_Fence)


class Fencing:
    """No request with a lower epoch succeeds if it was made after a higher one was confirmed; a leader with a lower
    epoch confirms nothing. Earlier requests may succeed later. Deleted state starts from scratch.

    The last sentence is part of SC-57; the replay of its tombstone is not checked here.
    """

    rules: tuple[str, ...] = ("INV-12",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the responses of share coordinators and leaders, in order."""
        del final
        applied = Applied(history)
        fences: dict[Share, _Fences] = defaultdict(_Fences)
        for position, event in numbered(history, StateAnswered, AckAnswered, Acquired):
            if isinstance(event, StateAnswered):
                if event.code == 0:
                    yield from self._state(position, event, fences)
            elif isinstance(event, AckAnswered) and event.code == 0:
                done = applied.done(event)
                if done is not None:
                    above = fences[event.share].leaders.above((event.leader_epoch, 1 << 31), done.begun)
                    yield from _stale(event, event.leader_epoch, above)
            elif isinstance(event, Acquired):
                fence = fences[event.share].leaders
                above = fence.above((event.leader_epoch, 1 << 31), position)
                if above is not None and above.at_ms < event.locked_ms:
                    yield from _stale(event, event.leader_epoch, above)

    @staticmethod
    def _state(position: int, event: StateAnswered, fences: dict[Share, _Fences]) -> Iterator[Violation]:
        if event.call == "Delete":
            fences.pop(event.share, None)
            return
        fence = fences[event.share]
        pair = (event.leader_epoch, event.generation)
        if event.call in {"Read", "Write"}:
            yield from _broken(event, pair, fence.leaders.above(pair, event.asked))
        if event.call in {"Initialize", "Write"}:
            yield from _broken(event, event.state_epoch, fence.states.above(event.state_epoch, event.asked))
        if event.call == "Read":
            fence.leaders.raise_to(position, pair, event)
        elif event.call == "Initialize":
            fence.states.raise_to(position, event.state_epoch, event)


def _broken(event: StateAnswered, epoch: object, above: StateAnswered | None) -> Iterator[Violation]:
    if above is not None:
        yield Violation(
            "INV-12",
            f"{event.call} of {event.share} with epoch {epoch} was answered NONE at {event.at_ms}, though {above.call} "
            f"with leader epoch {above.leader_epoch}, generation {above.generation}, state epoch {above.state_epoch} "
            f"had been at {above.at_ms}",
            (above, event),
        )


def _stale(event: AckAnswered | Acquired, epoch: int, above: StateAnswered | None) -> Iterator[Violation]:
    if above is not None:
        yield Violation(
            "INV-12",
            f"the leader of epoch {epoch} of {event.share} confirmed something to {event.member_id} at {event.at_ms}, "
            f"though a leader of epoch {above.leader_epoch} had read the state at {above.at_ms}",
            (above, event),
        )
