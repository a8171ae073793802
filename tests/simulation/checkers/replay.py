"""INV-13 and the snapshot law: the log determines the state, whichever process rebuilds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.simulation.checkers import Violation
from tests.simulation.final import Final
from tests.simulation.history import History, Share, StateAnswered, StateBatchSeen, StateSeen


def misshapen(start_offset: int, batches: tuple[StateBatchSeen, ...]) -> str:
    """Return what is wrong with a list of state batches, "" if nothing: they must be sorted, disjoint, at or after the
    start, and equal neighbours must be merged."""
    before: StateBatchSeen | None = None
    for batch in batches:
        first, last, state, count, *_ = batch
        if first > last or first < start_offset:
            return f"batch {batch} is empty or begins below the start offset {start_offset}"
        if before is not None:
            if first <= before[1]:
                return f"batch {batch} overlaps {before}"
            if first == before[1] + 1 and (state, count) == before[2:]:
                return f"batch {batch} was not merged with its equal neighbour {before}"
        before = batch
    return ""


class LogEqualsState:
    """The served state, the state replayed after a restart and the state that a reader of the streams rebuilds are
    equal and well formed."""

    rules: tuple[str, ...] = ("INV-13",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the form of every state that was seen; then compare the three at the end."""
        for event in history.of(StateSeen, StateAnswered):
            if isinstance(event, StateSeen) or (event.call == "Read" and event.code == 0):
                wrong = misshapen(event.start_offset, event.batches)
                if wrong:
                    yield Violation("INV-13", f"the state of {event.share} at {event.at_ms}: {wrong}", (event,))
        if final.replayed:
            yield from _compare("replayed", final.served, final.replayed)
        if final.rebuilt:
            yield from _compare("rebuilt from the streams", final.served, final.rebuilt)
        yield from (Violation("INV-13", sentence) for sentence in final.torn)


def _compare(how: str, served: Mapping[Share, StateSeen], other: Mapping[Share, StateSeen]) -> Iterator[Violation]:
    for share in sorted(served.keys() | other.keys()):
        one, two = served.get(share), other.get(share)
        if one is None or two is None or shown(one) != shown(two):
            shapes = ["nothing" if state is None else str(shown(state)) for state in (one, two)]
            yield Violation(
                "INV-13",
                f"{share} was served as {shapes[0]} and is {how} as {shapes[1]}",
                tuple(state for state in (one, two) if state is not None),
            )


def shown(state: StateSeen) -> tuple[object, ...]:
    """Return the part of a state that must survive every process: (state epoch, leader epoch, start, finished,
    batches, reasons)."""
    return (
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
        state.batches,
        state.failures,
    )


class LogsOutlive:
    """The end of a log does not depend on the process that leads it (CM-40)."""

    rules: tuple[str, ...] = ("CM-40",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Compare the log ends before and after every process was killed."""
        del history
        if final.logs_replayed and final.logs_replayed != final.logs:
            for partition in sorted(final.logs.keys() | final.logs_replayed.keys()):
                before, after = final.logs.get(partition), final.logs_replayed.get(partition)
                if before != after:
                    yield Violation("CM-40", f"the log of {partition} was {before} and is {after} after a restart")
