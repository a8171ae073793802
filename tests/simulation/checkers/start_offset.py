"""INV-9: start offsets only move forward, between the log's start and its end."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import ObjectKey, StateKey, numbered, object_of, partition_of
from tests.simulation.final import Final
from tests.simulation.history import Acquired, Event, History, LagSeen, Share, StateAnswered, StateSeen


@dataclass
class _Highest:
    """The highest start offset known so far, at each position of the history."""

    positions: list[int] = field(default_factory=list)
    seen: list[tuple[int, Event]] = field(default_factory=list)

    def before(self, position: int) -> tuple[int, Event] | None:
        """Return the highest one known at this position of the history."""
        index = bisect_left(self.positions, position)
        return self.seen[index - 1] if index else None

    def note(self, position: int, start_offset: int, event: Event) -> None:
        """Note one more."""
        if not self.seen or start_offset > self.seen[-1][0]:
            self.positions.append(position)
            self.seen.append((start_offset, event))


class StartOffset:
    """A stored start offset never moves back within a state epoch, nor does an object's in its lifetime."""

    rules: tuple[str, ...] = ("INV-9",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check responses in the order of their requests, since they may have been overtaken."""
        stored: dict[StateKey, _Highest] = defaultdict(_Highest)
        objects: dict[ObjectKey, _Highest] = defaultdict(_Highest)
        seen_by: dict[tuple[Share, str], _Highest] = defaultdict(_Highest)
        reset = _reset(history)
        for position, event in numbered(history, StateAnswered, StateSeen, Acquired, LagSeen):
            if isinstance(event, StateSeen):
                yield from self._step(stored[_key(event)], position, position, event.start_offset, event)
            elif isinstance(event, StateAnswered):
                if event.code == 0 and event.call == "Delete":
                    for key in [key for key in stored if key.share == event.share]:
                        del stored[key]
                elif event.code == 0 and event.call in {"Read", "Summary"}:
                    yield from self._step(stored[_key(event)], event.asked, position, event.start_offset, event)
            elif isinstance(event, Acquired):
                yield from self._acquired(objects[object_of(event)], position, event)
            elif isinstance(event, LagSeen) and event.share not in reset:
                # A client asks again only after it has received the response.
                client = seen_by[event.share, event.process]
                yield from self._step(client, position, position, event.start_offset, event)
        for state in final.served.values():
            yield from self._at_end(state, final)

    def _acquired(self, highest: _Highest, position: int, event: Acquired) -> Iterator[Violation]:
        if not event.log_start_offset <= event.start_offset <= event.high_watermark:
            yield Violation(
                "INV-9",
                f"{event.share} starts at {event.start_offset}, outside of its log from {event.log_start_offset} to "
                f"{event.high_watermark}",
                (event,),
            )
        # Responses are sent after their ranges were locked, so their order proves nothing if the lock times are equal.
        before = highest.seen[-1] if highest.seen else None
        if before is not None and event.start_offset < before[0]:
            assert isinstance(before[1], Acquired)
            if event.locked_ms > before[1].locked_ms:
                yield _back(event, event.start_offset, before)
        highest.note(position, event.start_offset, event)

    @staticmethod
    def _step(highest: _Highest, asked: int, position: int, start: int, event: Event) -> Iterator[Violation]:
        if start < 0:
            return
        before = highest.before(asked)
        if before is not None and start < before[0]:
            yield _back(event, start, before)
        highest.note(position, start, event)

    @staticmethod
    def _at_end(state: StateSeen, final: Final) -> Iterator[Violation]:
        log = final.logs.get(partition_of(state.share))
        if log is not None and state.start_offset > log.high_watermark:
            yield Violation(
                "INV-9",
                f"{state.share} rests at {state.start_offset}, after the end of its log at {log.high_watermark}",
                (state,),
            )


def _key(event: StateAnswered | StateSeen) -> StateKey:
    return StateKey(event.share, event.state_epoch)


def _back(event: Event, start: int, before: tuple[int, Event]) -> Violation:
    share = getattr(event, "share", None)
    sentence = f"{share} starts at {start} at {event.at_ms}, but started at {before[0]} at {before[1].at_ms}"
    return Violation("INV-9", sentence, (before[1], event))


def _reset(history: History) -> set[Share]:
    """Return the share-partitions whose start offset was reset: the start offset that a client receives for them may
    move back."""
    epochs: dict[Share, set[int]] = defaultdict(set)
    found = set()
    for event in history.of(StateAnswered):
        if event.code == 0 and event.call == "Delete":
            found.add(event.share)
        elif event.code == 0 and event.call == "Initialize":
            epochs[event.share].add(event.state_epoch)
    return found | {share for share, some in epochs.items() if len(some) > 1}
